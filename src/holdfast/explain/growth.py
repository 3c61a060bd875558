"""A bare SIGKILL and memory that was growing: what a memory kill looks like where nobody tells of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from holdfast.explain.cause import Cause
from holdfast.explain.matcher import Matcher
from holdfast.explain.reading import Reading
from holdfast.lazy import Lazy

_SIGKILL = Lazy(r"Killed|SIGKILL|137|-9\b|signal:? 9\b")
_AMOUNT = Lazy(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[KMGT])i?B\b")
_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def kill_with_memory(causes: list[Cause], reading: Reading, matcher: Matcher) -> list[Cause]:
    """A bare SIGKILL after lines that show memory growing is a memory kill in all likelihood, and is told so."""
    out = []
    for cause in causes:
        if cause.phrase == "KilledBySignal" and _SIGKILL.search(cause.line.text):
            before = [line for line in reading.lines if line.number < cause.line.number][-40:]
            if grown := growth([line.text for line in before]):
                cause.phrase = "HostOutOfMemoryKilled"
                cause.row = matcher.catalogue.row("HostOutOfMemoryKilled")
                cause.wording = None
                cause.fields["grown"] = grown
        out.append(cause)
    return out


def growth(texts: Sequence[str]) -> str:
    """`16 MiB to 176 MiB` where the last amounts in these lines only grow, at least threefold."""
    found = [match for text in texts if (match := _AMOUNT.search(text))]
    tail = [(float(match["number"]) * _UNIT[match["unit"]], match[0]) for match in found[-8:]]
    if len(tail) < 3 or any(b[0] <= a[0] for a, b in itertools.pairwise(tail)):
        return ""
    return f"{tail[0][1]} to {tail[-1][1]}" if tail[-1][0] >= 3 * tail[0][0] else ""
