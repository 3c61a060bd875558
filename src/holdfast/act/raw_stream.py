"""The stream of the only worker on a screen: its bytes are shown unchanged, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.act.nonblocking_writer import Buffer

if TYPE_CHECKING:
    from holdfast.act.console_api import ConsoleScreen


class RawStream:
    """Shows bytes without a prefix and without delay, so that a prompt, a progress bar or a key's echo
    appears at once."""

    __slots__ = ("_console", "path")

    def __init__(self, console: ConsoleScreen, path: str) -> None:
        self._console = console
        self.path = path

    def write(self, block: bytes, now: float) -> None:
        console = self._console
        if not block or console.closed:
            return
        pieces: list[Buffer] = [block]
        # The worker's other raw stream may continue the same line.
        if console.owner is not None and not isinstance(console.owner, RawStream):
            pieces.insert(0, b"\n")
        console.put(self, pieces, len(block), now, unfinished=not block.endswith(b"\n"))

    def release(self, now: float) -> None:
        """Do nothing: no byte is ever held."""

    def close(self, now: float) -> None:
        """End the last line after the stream has ended."""
        if self._console.owner is self:
            self._console.put(self, [b"\n"], 0, now, unfinished=False)
