"""The interfaces between a console and the voices on it."""

from __future__ import annotations

from typing import Protocol

from holdfast.act.nonblocking_writer import Buffer


class ConsoleStream(Protocol):
    """One worker's stream on a console. `path`: the file with all of it. `now`: on the console's clock."""

    path: str

    def write(self, block: bytes, now: float) -> None:
        """The stream's next bytes."""
        ...

    def release(self, now: float) -> None:
        """Show the unfinished line so far."""
        ...

    def close(self, now: float) -> None:
        """The stream has ended: show the rest, and end its line."""
        ...


class ConsoleScreen(Protocol):
    """The console, as its voices use it."""

    #: The voice whose unfinished line is on the screen.
    owner: ConsoleStream | None

    @property
    def closed(self) -> bool:
        """Output is dropped: there is no reader any more."""
        ...

    def put(
        self, voice: ConsoleStream, pieces: list[Buffer], source_bytes: int, now: float, *, unfinished: bool
    ) -> None:
        """A voice's next bytes. `source_bytes`: the number of the worker's own bytes that they stand for."""
        ...

    def hold(self, voice: ConsoleStream, now: float) -> None:
        """The voice has an unfinished line, to be shown when nothing ends it in time."""
        ...

    def unhold(self, voice: ConsoleStream) -> None:
        """The voice's line is finished."""
        ...
