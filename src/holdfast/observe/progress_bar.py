r"""Thins out a stream's progress bars: of the lines that begin or end with `\r`, the terminal shows only the last of
each second.

In a terminal, each state of a progress bar overwrites the state before. In the output of several workers each state
would become a separate line. A line that ends with a newline, and text without a `\r`, are shown at once.
"""

from __future__ import annotations

#: Shortest time between two shown states of a progress bar, in seconds.
BAR_S = 1.0
#: A longer state of a progress bar is shown at once, so that it is not kept in memory (bytes).
BAR_BYTES = 8 * 1024

_UP = b"\x1b[A"


class ProgressBar:
    """Decides which states of one stream's progress bars are shown. It does no input or output. `now`: seconds on the
    caller's monotonic clock.
    """

    __slots__ = ("_due", "_held", "_several")

    def __init__(self) -> None:
        #: The latest state of the progress bar, which waits to be shown.
        self._held = b""
        self._due = 0.0
        #: Whether the stream has several progress bars on adjacent lines: a newline moves to the next bar, and `_UP`
        #: back. Among other workers' lines the cursor cannot move back, so these bars take turns on one line.
        self._several = False

    def take(self, block: bytes, now: float) -> bytes:
        """Take the stream's next bytes. Return the bytes to show now."""
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
        # A blank state erases the bar. Show it together with the text after it.
        early = now < self._due or not bar.strip()
        if (b"\r" in bar or move) and early and len(bar) <= BAR_BYTES:
            self._held = bar + move
            return lines
        if b"\r" in bar:
            self._due = now + BAR_S
        self._held = move
        return lines + bar

    def next_wake(self) -> float | None:
        """Return when the waiting state of the progress bar is due; None if no state waits."""
        return self._due if self._held.strip() else None

    def release(self, now: float) -> bytes:
        """Return the state of the progress bar that has waited long enough, or waits at the stream's end."""
        held, self._held = self._held, b""
        self._due = now + BAR_S
        return held


def _last_of_line(line: bytes) -> bytes:
    r"""Return the last state in a complete line, like `_last_state`. A `\r` at the line's end belongs to its
    newline.
    """
    text = line.rstrip(b"\r")
    return _last_state(text) + line[len(text) :]


def _last_state(text: bytes) -> bytes:
    r"""Return the last state of a progress bar with its `\r`. If a blank state before it erases a longer one, return
    both.
    """
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
