"""Distinguishes new lines of a worker from repeated ones, because a repeated heartbeat line must not hide a hang.

A line repeats an earlier one if the two differ only in words with digits, such as numbers, times and addresses. But a
line whose count rises (a step, a progress bar, `12/80`) is new. Only the ends of the streams are compared, and only for
a sample of the owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.lazy_pattern import Lazy
from holdfast.observe.step_counter import counts_in

#: This many bytes at the end of a stream are compared, because a sample reads the streams of many ranks at the same
#: time.
END_BYTES = 4096
#: At most this many forms of lines are remembered. Beyond it, all are forgotten.
MOST_FORMS = 4096

_ANSI = Lazy(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NUMBERED = Lazy(r"\S*\d\S*")
_NO_LETTERS = Lazy(r"[\W_]+")
_PART = Lazy(r"(?<![\d./:-])(\d{1,9})/(\d{1,9})(?![\d./:-])")


class RepeatedLines:
    """Remembers the lines of one worker in one attempt."""

    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._counts: dict[str, tuple[float, float]] = {}
        self._read_at: float | None = None
        self._new_at: float | None = None

    def new_at(self, last_output_at: float | None, ends: Iterable[bytes], *, only_counts: bool) -> float | None:
        """Return when the worker last printed a new line, by the ends of its streams; None without output.

        `last_output_at`: when the worker last printed anything. `ends`: the ends of its streams. `only_counts`: only a
        line with a rising count is new, because the worker reports its steps itself.
        """
        if last_output_at is None or last_output_at == self._read_at:
            return self._new_at
        rises = forms = False
        for end in ends:
            text = _ANSI.sub("", end[-END_BYTES:].decode("utf-8", "replace"))
            rises |= self._rises(text)
            forms |= self._has_new_form(text)
        if self._read_at is None or rises or (forms and not only_counts):
            self._new_at = last_output_at
        self._read_at = last_output_at
        return self._new_at

    def _rises(self, text: str) -> bool:
        counts = {count.name: (count.epoch or 0.0, count.value) for count in counts_in(text)}
        for part in _PART.finditer(text):
            counts[f"part of {part[2]}"] = (0.0, float(part[1]))
        higher = {name: place for name, place in counts.items() if place > self._counts.get(name, (-1.0, -1.0))}
        self._counts.update(higher)
        return bool(higher)

    def _has_new_form(self, text: str) -> bool:
        # The first line may be cut off, so leave it out.
        lines = text.replace("\r", "\n").split("\n")[1 if len(text) >= END_BYTES else 0 :]
        forms = {_NO_LETTERS.sub(" ", _NUMBERED.sub("", line)).strip().lower() for line in lines} - {""}
        if len(self._forms) > MOST_FORMS:
            self._forms.clear()
        new = not forms <= self._forms
        self._forms |= forms
        return new
