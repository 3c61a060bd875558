"""Follows a job through its log: which lines show work, what came after a line, and where a later run begins.

Several processes write into one log, each as a stream of its own: what one reports is not fatal if the others work on.
"""

# ruff: noqa: E501 - one alternative of a pattern per line, even if long
from __future__ import annotations

import bisect
from collections.abc import Sequence

from holdfast.explain.logs.log_lines import Line
from holdfast.explain.logs.prefilter import shape
from holdfast.lazy_pattern import Lazy

#: A person starts the program again at a prompt.
_PROMPT = Lazy(
    r"^(?:\([\w.-]{1,40}\) )?(?:[\w.-]+@[\w.:~/-]+ ?|[\w.~/-]{0,60} ?)[$#%>] (?:[A-Z_]+=\S+ )*(?:time |nohup |sudo |uv run )?(?:python[\d.]*|torchrun|srun|sbatch|accelerate|deepspeed|mpirun|mpiexec|bash|sh|ray|vllm|horovodrun|\./\S+) "
)
#: The job starts its workers again.
_AGAIN = Lazy(
    r"(?i)\brestart(?:ing|ed) (?:the )?(?:worker group|workers|job|run|training|attempt)\b|\bwill restart worker group\b|\b(?:resum(?:ing|ed)|restored|continuing) (?:the )?(?:training |run |job )?(?:from|at) |\b(?:starting|beginning) (?:attempt|try|run) (?:[2-9]|\d\d)\b|\brecovered from (?:the )?failure"
)
_COUNTER = Lazy(r"(?i)\b(?P<word>epoch|step|iter(?:ation)?)\w?\b\W{0,3}(?P<a>\d{1,9})(?:\D{1,12}?(?P<b>\d{1,9}))?")
#: This many lines of progress after the restart prove that the later run worked.
_WORKS = 3


class JobFlow:
    """The course of a job in one text."""

    def __init__(self, lines: Sequence[Line], working: Sequence[bool], ordinary: Sequence[bool]) -> None:
        """working: for each line, whether it shows the program at work. ordinary: whether it is another plain line."""
        self._at = {id(line): index for index, line in enumerate(lines)}
        self._working = [index for index, works in enumerate(working) if works]
        self._plain = [index for index, plain in enumerate(ordinary) if plain]
        self._lines = lines
        self._last_run = self._begin_of_last_run()
        self._seen: dict[str, list[int]] | None = None

    def progress_after(self, line: Line) -> int:
        """Return how many lines after this one show the job at work."""
        return len(self._working) - bisect.bisect_right(self._working, self._at[id(line)])

    def followed(self, line: Line) -> bool:
        """Return whether the job wrote any plain line, or one that shows work, after this line."""
        at = self._at[id(line)]
        return (self._working or [-1])[-1] > at or (self._plain or [-1])[-1] > at

    def in_earlier_run(self, line: Line) -> bool:
        return self._at[id(line)] < self._last_run

    def is_standing(self, line: Line) -> bool:
        """Return whether the line came several times while the job worked on between."""
        if self._seen is None:
            self._seen = {}
            for index, other in enumerate(self._lines):
                self._seen.setdefault(shape(other.text), []).append(index)
        places = self._seen.get(shape(line.text), ())
        if len(places) < 2:
            return False
        begin = bisect.bisect_right(self._working, places[0])
        return begin < len(self._working) and self._working[begin] < places[-1]

    def _begin_of_last_run(self) -> int:
        begin = 0
        for index, line in enumerate(self._lines):
            text = line.text
            prompt = _PROMPT.match(text) if "$ " in text or "# " in text or "% " in text or "> " in text else None
            again = prompt is None and _AGAIN.search(text) is not None
            works = len(self._working) - bisect.bisect_right(self._working, index)
            if (prompt is not None and works) or (again and works >= _WORKS):
                begin = index
        return max(begin, self._restarted_counter())

    def _restarted_counter(self) -> int:
        """Return the index of the line at which the program's counters begin again and then go much further; 0: none.

        Several ranks whose output is stored until they end count alike, so their counters go about equally far.
        """
        first: dict[tuple[str, str], tuple[int, int]] = {}
        most: dict[tuple[str, str], tuple[int, int]] = {}
        again: dict[tuple[str, str], tuple[int, tuple[int, int]]] = {}
        for index in self._working:
            line = self._lines[index]
            match = _COUNTER.search(line.text)
            if match is None:
                continue
            key = (line.stream, match["word"].lower())
            now = int(match["a"]), int(match["b"] or 0)
            if key not in first:
                first[key] = most[key] = now
            elif now <= first[key] and now < most[key] and key not in again:
                again[key] = index, most[key]
            most[key] = max(most[key], now) if key not in again else now
        found = [at for key, (at, before) in again.items() if most[key][0] >= 2 * max(1, before[0])]
        return max(found, default=0)
