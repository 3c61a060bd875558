r"""Thins out a stream's progress bars: of the lines that end or begin with `\r`, the last one of a second is shown.

Each of these lines overwrites the one before, so nothing is lost; with several workers, each would take a line of its
own. A line with a newline passes at once, and so does text without a `\r`.
"""

from __future__ import annotations

#: Seconds between two states of a bar.
BAR_S = 1.0
#: The most bytes of a state that waits; a longer one is shown at once.
BAR_BYTES = 8 * 1024

_UP = b"\x1b[A"


class ProgressBar:
    """The bar of one stream. Pure: `now` is in seconds on the caller's clock, which never goes back."""

    __slots__ = ("_due", "_held", "_several")

    def __init__(self) -> None:
        #: The last state of the bar, which waits for its turn.
        self._held = b""
        self._due = 0.0
        #: The stream has bars below each other: a newline leads to the next one, and `_UP` back. Among the lines of
        #: other workers there is no way back, so these bars take turns on one line.
        self._several = False

    def take(self, block: bytes, now: float) -> bytes:
        """Return the bytes to show now, for the stream's next bytes."""
        if not self._held and b"\r" not in block and not self._several:
            return block
        text = self._held + block
        self._held = move = b""
        if self._several or _UP in text:
            self._several = True
            text = text.replace(_UP, b"").replace(b"\n\r", b"\r")
            line = text[text.rfind(b"\n", 0, -1) + 1 :]
            if line == b"\n" or (b"\r" in line and line.endswith(b"\n")):
                text, move = text[:-1], b"\n"
        cut = text.rfind(b"\n") + 1
        lines, bar = text[:cut], _last_state(text[cut:])
        if cut:
            lines = b"\n".join(map(_last_of_line, lines.split(b"\n")))
        early = now < self._due or not bar.strip()  # a blank state erases the bar: it goes with what follows
        if (b"\r" in bar or move) and early and len(bar) <= BAR_BYTES:
            self._held = bar + move
            return lines
        if b"\r" in bar:
            self._due = now + BAR_S
        self._held = move
        return lines + bar

    def next_wake(self) -> float | None:
        """Return when the waiting state is due; None if none waits."""
        return self._due if self._held.strip() else None

    def release(self, now: float) -> bytes:
        """Return the waiting state, because it is due or the stream has ended."""
        held, self._held = self._held, b""
        self._due = now + BAR_S
        return held


def _last_of_line(line: bytes) -> bytes:
    r"""Return a whole line, without its newline, as `_last_state` does; `\r` at its end belongs to the newline."""
    text = line.rstrip(b"\r")
    return _last_state(text) + line[len(text) :]


def _last_state(text: bytes) -> bytes:
    r"""Return the last state of a bar with its `\r`, and before it the last blank state, which erases a longer one."""
    if b"\r" not in text:
        return text
    states = text.split(b"\r")
    end = b"" if states[-1] else b"\r"
    shown = [index for index, state in enumerate(states) if state]
    if not shown:
        return b"\r"
    last = shown[-1]
    blank = next((index for index in reversed(shown[:-1]) if not states[index].strip()), None)
    erased = b"" if blank is None else b"\r" + states[blank]
    return erased + (b"\r" if last else b"") + states[last] + end
