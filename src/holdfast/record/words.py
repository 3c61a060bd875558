"""Times, spans and ranks in words: the same in a stored report as on the screen."""

from __future__ import annotations

import time
from collections.abc import Sequence


def clock(at: float) -> str:
    """Local date and time of `at` (seconds since the epoch), to the second; the bare number where it is no time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"


def duration(seconds: float) -> str:
    """`40 ms`, `0.4 s`, `12 s`, `3 min 20 s`, `5 h 2 min`, `3 d 4 h`."""
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit_s, unit, part_s, part in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit_s:
            more = whole % unit_s // part_s
            return f"{whole // unit_s} {unit} {more} {part}" if more else f"{whole // unit_s} {unit}"
    raise AssertionError("unreachable: whole is at least 60")


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 3`, or `ranks 0–2, 5`; each number once."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    spans = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in runs]
    return f"rank{'' if len(set(ranks)) == 1 else 's'} {', '.join(spans)}"
