"""Recognises a SIGKILL after growing memory use as a memory kill that the kernel log did not report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.explain.log_lines import Line
from holdfast.lazy_pattern import Lazy
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, QuotedLine

#: Number of lines before the end in which amounts of memory are searched.
LINES = 40
_SIGKILL = Lazy(r"Killed|SIGKILL|137|-9\b|signal:? 9\b")
_AMOUNT = Lazy(r"(?<!\d)(?P<number>\d{1,15}(?:\.\d{1,9})?) ?(?P<unit>[KMGT])i?B\b")
_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def growth_before(line: QuotedLine, lines: Sequence[Line]) -> str:
    """Return how memory grew in the lines before a line about a SIGKILL; empty if it did not."""
    if not _SIGKILL.search(line.text):
        return ""
    before = [other.text for other in lines if other.number < line.number]
    return growth(before[-LINES:])


def kill_with_memory(clues: Sequence[Clue]) -> list[Clue]:
    """Turn each clue of a plain SIGKILL into a memory kill, if the lines before it show growing memory."""
    return [
        replace(clue, phrase=Phrase.HOST_OUT_OF_MEMORY_KILLED, wording="", fields={**clue.fields, "grown": clue.grown})
        if clue.phrase == Phrase.KILLED_BY_SIGNAL and clue.grown
        else clue
        for clue in clues
    ]


def growth(texts: Sequence[str]) -> str:
    """Return a text such as `16 MiB to 176 MiB`, if the last amounts in these lines grow steadily and at least
    threefold; else empty."""
    found = [match for text in texts if (match := _AMOUNT.search(text))]
    tail = [(float(match["number"]) * _UNIT[match["unit"]], match[0]) for match in found[-8:]]
    if len(tail) < 3 or any(b[0] <= a[0] for a, b in itertools.pairwise(tail)):
        return ""
    return f"{tail[0][1]} to {tail[-1][1]}" if tail[-1][0] >= 3 * tail[0][0] else ""
