"""The interfaces between a console and the streams that write to it."""

from __future__ import annotations

from typing import Protocol

from holdfast.act.nonblocking_writer import Buffer


class ConsoleStream(Protocol):
    """One worker's stream on a console. `path`: the log file that contains all its output. `now`: seconds on the
    console's clock."""

    path: str

    def write(self, block: bytes, now: float) -> None:
        """Write the stream's next bytes."""
        ...

    def release(self, now: float) -> None:
        """Show the unfinished line so far."""
        ...

    def close(self, now: float) -> None:
        """Show the rest after the stream has ended, and end its line."""
        ...


class ConsoleScreen(Protocol):
    """The part of a console that its streams use."""

    #: The stream whose unfinished line is on the screen.
    owner: ConsoleStream | None

    @property
    def closed(self) -> bool:
        """Whether the reader has closed the console: all output is dropped."""
        ...

    def put(
        self, voice: ConsoleStream, pieces: list[Buffer], source_bytes: int, now: float, *, unfinished: bool
    ) -> None:
        """Write a stream's next bytes. `source_bytes`: how many bytes the worker wrote for them, without prefixes."""
        ...

    def hold(self, voice: ConsoleStream, now: float) -> None:
        """Note that the stream has an unfinished line, which is shown if it does not end in time."""
        ...

    def unhold(self, voice: ConsoleStream) -> None:
        """Note that the stream's line is finished or shown."""
        ...
