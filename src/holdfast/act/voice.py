"""What a console and the voices on it know of each other."""

from __future__ import annotations

from typing import Protocol

from holdfast.act.outlet import Buffer


class Voice(Protocol):
    """One worker's stream on a console. `path`: the file that has all of it too. `now`: on the console's clock."""

    path: str

    def write(self, block: bytes, now: float) -> None:
        """The stream's next bytes."""
        ...

    def release(self, now: float) -> None:
        """Show the unfinished line as far as it goes."""
        ...

    def close(self, now: float) -> None:
        """The stream has ended: show what is left, and end its line."""
        ...


class Screen(Protocol):
    """What a voice asks of its console."""

    owner: Voice | None
    """Whose line stands unfinished on the screen."""

    @property
    def closed(self) -> bool:
        """What is written is forgotten: it has no reader any more."""
        ...

    def put(self, voice: Voice, pieces: list[Buffer], source_bytes: int, now: float, *, unfinished: bool) -> None:
        """A voice's next bytes. `source_bytes` is how many of the worker's own they stand for."""
        ...

    def hold(self, voice: Voice, now: float) -> None:
        """The voice has an unfinished line, to be shown when nothing ends it in time."""
        ...

    def unhold(self, voice: Voice) -> None:
        """Its line is not unfinished any more."""
        ...
