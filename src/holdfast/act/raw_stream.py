"""The stream of a worker that has the screen to itself: its bytes appear as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.act.nonblocking_writer import Buffer

if TYPE_CHECKING:
    from holdfast.act.console_api import ConsoleScreen


class RawStream:
    """No prefix, and no byte is held back: a prompt, a progress bar or a key's echo is there at once."""

    __slots__ = ("_console", "path")

    def __init__(self, console: ConsoleScreen, path: str) -> None:
        self._console = console
        self.path = path

    def write(self, block: bytes, now: float) -> None:
        console = self._console
        if not block or console.closed:
            return
        pieces: list[Buffer] = [block]
        # The worker's other stream is the same voice.
        if console.owner is not None and not isinstance(console.owner, RawStream):
            pieces.insert(0, b"\n")
        console.put(self, pieces, len(block), now, unfinished=not block.endswith(b"\n"))

    def release(self, now: float) -> None:
        """No byte is ever held."""

    def close(self, now: float) -> None:
        """The stream has ended: end its line."""
        if self._console.owner is self:
            self._console.put(self, [b"\n"], 0, now, unfinished=False)
