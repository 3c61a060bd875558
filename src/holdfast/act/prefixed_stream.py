r"""One worker's stream on a console: its lines behind its prefix, in blocks.

A line that has not ended is held back, so that lines of several workers never mix: until its newline, a `\r`, the
stream's end, `HOLD_BYTES`, or `HOLD_S` of the console without an end. When another voice has to speak while a line
stands unfinished on the screen, that line is ended first; when it goes on later, its rest gets the prefix again. So a
single worker's progress bar moves in place, and the bars of several become lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.act.nonblocking_writer import Buffer

if TYPE_CHECKING:
    from holdfast.act.console_api import ConsoleScreen

HOLD_BYTES = 8 * 1024

_NEWLINE = 0x0A
_RETURN = 0x0D


class PrefixedStream:
    """A stream whose bytes, any bytes, appear on its console, each line after the prefix."""

    __slots__ = ("_console", "_held", "_open", "_prefix", "_separator", "path")

    def __init__(self, console: ConsoleScreen, prefix: bytes, path: str) -> None:
        self._console = console
        self._prefix = prefix
        self._separator = b"\n" + prefix
        self._held = b""
        self._open = False
        """Whether the last shown byte was no newline; the console knows whether that line is still the screen's
        last."""
        self.path = path

    def write(self, block: bytes, now: float) -> None:
        console = self._console
        if not block or console.closed:
            return
        held = self._held
        returns = b"\r" in block
        if held and (returns or held[0] == _RETURN):
            block, held, returns = held + block, b"", True
        # Otherwise the two stay apart: a copy of each block, only to put its line's beginning before it, would cost a
        # quarter of what the prefixes do.
        cut = block.rfind(b"\n") + 1
        if returns:
            # A return begins what follows it: shown alone it would only put an empty line on the screen.
            cut = max(cut, block.rfind(b"\r"))
        if cut:
            text = self._prefixed(block, returns)
            self._held = rest = block[cut:]
            # After the part to show, `text` has a prefix (where a newline ends that part) and the rest, whose own
            # return, if it begins with one, is followed by a prefix too.
            end = len(text) - len(rest) - len(self._prefix) * ((block[cut - 1] == _NEWLINE) + (rest[:1] == b"\r"))
            console.unhold(self)
            self._show(held, text, end, len(held) + cut, now)
        else:
            self._held = held + block
        if len(self._held) > HOLD_BYTES:
            console.unhold(self)
            self.release(now)
        elif self._held:
            console.hold(self, now)

    def release(self, now: float) -> None:
        """Show the unfinished line so far, except for a character of which only the first bytes have arrived."""
        held = self._held
        whole = len(held) - _cut_short(held)
        if held[:whole] not in (b"", b"\r"):
            self._held = held[whole:]
            text = self._prefixed(held[:whole], held[0] == _RETURN)
            self._show(b"", text, len(text), whole, now)

    def close(self, now: float) -> None:
        """The stream has ended: show the rest, and end its line."""
        self._console.unhold(self)
        held, self._held = self._held, b""
        if held not in (b"", b"\r"):
            text = self._prefixed(held, held[0] == _RETURN)
            self._show(b"", text, len(text), len(held), now)
        if self._open and self._console.owner is self:
            self._console.put(self, [b"\n"], 0, now, unfinished=False)
        self._open = False

    def _prefixed(self, block: bytes, returns: bool) -> bytes:
        r"""The prefix after every newline and every `\r`, but not inside `\r\n`."""
        text = block.replace(b"\n", self._separator)
        if returns:
            again = b"\r" + self._prefix
            text = text.replace(b"\r", again).replace(again + self._separator, b"\r" + self._separator)
        return text

    def _show(self, held: bytes, text: bytes, end: int, source_bytes: int, now: float) -> None:
        """The line's beginning, if it was held, and the text up to `end`, joined to the text on the screen."""
        console = self._console
        start = 0
        before = b""
        if console.owner is not self:
            before = self._prefix if console.owner is None else self._separator
            prefixed = False
            if not held and text[0] == _RETURN:
                # On a line of its own there is nothing to return over.
                start = 1
                prefixed = text[1:2] != b"\n"
            if self._open and not held and text[start : start + 1] == b"\n":
                # The voice that came between has ended this line already.
                start += 1
                prefixed = True
            if prefixed:
                before = b"" if console.owner is None else b"\n"
        if start < end:
            self._open = text[end - 1] != _NEWLINE
            pieces: list[Buffer] = [piece for piece in (before, held) if piece]
            pieces.append(memoryview(text)[start:end])
            console.put(self, pieces, source_bytes, now, unfinished=self._open)
        else:
            self._open = False


def _cut_short(data: bytes) -> int:
    """The number of bytes at the end that begin a UTF-8 character whose other bytes have not arrived yet."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if needs > back else 0
    return 0
