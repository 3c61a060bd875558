r"""The streams that write to a console. Each belongs to one worker, and shows its bytes with or without a prefix.

A stream with a prefix delays an unfinished line, so that lines of several workers never mix. The line is shown at its
newline, at a `\r`, at the stream's end, when it exceeds `HOLD_BYTES`, or after the console's `HOLD_S`. If another
stream writes after an unfinished line, the console first ends that line, and its rest gets the prefix again. So the
progress bar of a single worker moves in place, and the bars of several workers become lines.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.act.nonblocking_writer import Buffer

HOLD_BYTES = 8 * 1024

_NEWLINE = 0x0A
_RETURN = 0x0D


class ConsoleStream(Protocol):
    """One worker's stream on a console. `path`: the log file with all output of the stream. `now`: seconds on the
    console's clock.
    """

    path: str

    def write(self, block: bytes, now: float) -> None:
        """Write the next bytes of the stream to the console."""
        ...

    def release(self, now: float) -> None:
        """Show the beginning of a line whose newline has not arrived yet."""
        ...

    def close(self, now: float) -> None:
        """Show the rest of the stream's output and end its last line, because the stream has ended."""
        ...


class ConsoleScreen(Protocol):
    """The part of a console that its streams use."""

    #: The stream whose unfinished line is on the screen.
    owner: ConsoleStream | None

    @property
    def closed(self) -> bool:
        """Return whether the reader has closed the console. All further output is then dropped."""
        ...

    def put(
        self, writer: ConsoleStream, pieces: list[Buffer], source_bytes: int, now: float, *, unfinished: bool
    ) -> None:
        """Write the next bytes (`pieces`) of a stream (`writer`). `source_bytes`: the number of bytes from the worker,
        without prefixes. `unfinished`: the last line has no newline yet.
        """
        ...

    def hold(self, writer: ConsoleStream, now: float) -> None:
        """Record that the stream `writer` has an unfinished line. The console shows the line if it does not end in
        time.
        """
        ...

    def unhold(self, writer: ConsoleStream) -> None:
        """Record that the stream `writer` has no unfinished line any more, because the line has ended or is shown."""
        ...


class PrefixedStream:
    """Shows a stream of bytes on a console, with the prefix before each line."""

    __slots__ = ("_console", "_held", "_open", "_prefix", "_separator", "path")

    def __init__(self, console: ConsoleScreen, prefix: bytes, path: str) -> None:
        """Create a stream on `console`. `prefix`: the text before each line. `path`: the log file that contains all
        output of the stream."""
        self._console = console
        self._prefix = prefix
        self._separator = b"\n" + prefix
        self._held = b""
        #: True if the last shown byte was no newline. Another stream may have ended the line since; the console's
        #: `owner` shows that.
        self._open = False
        self.path = path

    def write(self, block: bytes, now: float) -> None:
        console = self._console
        if not block or console.closed:
            return
        held = self._held
        returns = b"\r" in block
        if held and (returns or held[0] == _RETURN):
            block, held, returns = held + block, b"", True
        # Do not copy the delayed bytes and the block together, because the copy costs a quarter of the time that the
        # prefixes cost.
        cut = block.rfind(b"\n") + 1
        if returns:
            # A `\r` belongs to the text after it. Alone it would show an empty line.
            cut = max(cut, block.rfind(b"\r"))
        if cut:
            text = self._prefixed(block, returns)
            self._held = rest = block[cut:]
            # `text` has the part to show, then a prefix if that part ends with a newline, then the rest. If the rest
            # begins with `\r`, a prefix follows this `\r` too.
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
        """Show the beginning of a line whose newline has not arrived. Leave out an incomplete UTF-8 character at its
        end.
        """
        held = self._held
        whole = len(held) - _cut_short(held)
        if held[:whole] not in (b"", b"\r"):
            self._held = held[whole:]
            text = self._prefixed(held[:whole], held[0] == _RETURN)
            self._show(b"", text, len(text), whole, now)

    def close(self, now: float) -> None:
        """Show the rest of the stream's output and end its last line, because the stream has ended."""
        self._console.unhold(self)
        held, self._held = self._held, b""
        if held not in (b"", b"\r"):
            text = self._prefixed(held, held[0] == _RETURN)
            self._show(b"", text, len(text), len(held), now)
        if self._open and self._console.owner is self:
            self._console.put(self, [b"\n"], 0, now, unfinished=False)
        self._open = False

    def _prefixed(self, block: bytes, returns: bool) -> bytes:
        r"""Insert the prefix after every newline and every `\r`, but not inside `\r\n`."""
        text = block.replace(b"\n", self._separator)
        if returns:
            again = b"\r" + self._prefix
            text = text.replace(b"\r", again).replace(again + self._separator, b"\r" + self._separator)
        return text

    def _show(self, held: bytes, text: bytes, end: int, source_bytes: int, now: float) -> None:
        """Show `held` (the line's beginning), then `text` up to `end`, after the text on the screen. `source_bytes`:
        the number of these bytes from the worker.
        """
        console = self._console
        start = 0
        before = b""
        if console.owner is not self:
            before = self._prefix if console.owner is None else self._separator
            prefixed = False
            if not held and text[0] == _RETURN:
                # At the start of a line `\r` has no effect, so leave it out.
                start = 1
                prefixed = text[1:2] != b"\n"
            if self._open and not held and text[start : start + 1] == b"\n":
                # Another stream has ended this line already, so leave out its newline.
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
    """Return how many bytes at the end of `data` begin an incomplete UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if needs > back else 0
    return 0


class RawStream:
    """Shows bytes without a prefix and without delay. A prompt, a progress bar and the echo of a key appear at once."""

    __slots__ = ("_console", "path")

    def __init__(self, console: ConsoleScreen, path: str) -> None:
        self._console = console
        self.path = path

    def write(self, block: bytes, now: float) -> None:
        console = self._console
        if not block or console.closed:
            return
        pieces: list[Buffer] = [block]
        # Begin a new line, unless the unfinished line is from a raw stream (without prefixes) too.
        if console.owner is not None and not isinstance(console.owner, RawStream):
            pieces.insert(0, b"\n")
        console.put(self, pieces, len(block), now, unfinished=not block.endswith(b"\n"))

    def release(self, now: float) -> None:
        """Do nothing, because this stream delays no output."""

    def close(self, now: float) -> None:
        """End the stream's last line, because the stream has ended."""
        if self._console.owner is self:
            self._console.put(self, [b"\n"], 0, now, unfinished=False)
