"""Words that a text must hold for a pattern to match: most rows are ruled out by them before anything is compiled.

Compiling a thousand patterns takes longer than reading a small log. A pattern's atoms are strings of which at least one
stands, in lower case, in every text that it matches; a pattern without any is always tried. Worked out once, when
rows are stored.
"""

from __future__ import annotations

import re
import warnings
from re import _constants as const  # type: ignore[attr-defined] # the parser has no typed door
from re import _parser as parser  # type: ignore[attr-defined] # the same
from typing import Any

SHORTEST = 3
MOST = 24
_ESCAPED = '"\\\t\n'
"""Written otherwise where a log is wrapped in JSON."""


def atoms(pattern: str) -> tuple[str, ...]:
    """Lower-case strings, one of which is in every match; empty where none can be told."""
    flags = re.IGNORECASE if "(?i" in pattern[:6] else 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parser.parse(pattern, flags)
    except (re.error, OverflowError, RecursionError):
        return ()  # re2's syntax has a few forms that Python's has not
    found = _of_sequence(list(tree))
    return tuple(sorted(found)) if found is not None and len(found) <= MOST else ()


def _of_sequence(items: list[Any]) -> set[str] | None:
    """The best set over the parts of a sequence: fewest and longest strings."""
    best: set[str] | None = None
    run = ""

    def offer(candidate: set[str] | None) -> None:
        nonlocal best
        if candidate and (best is None or _worth(candidate) > _worth(best)):
            best = candidate

    for op, value in items:
        if op is const.LITERAL and value < 0x80 and chr(value) not in _ESCAPED:
            run += chr(value).lower()
            continue
        if len(run) >= SHORTEST:
            offer({run})
        run = ""
        if op is const.SUBPATTERN:
            offer(_of_sequence(list(value[3])))
        elif op is const.BRANCH:
            offer(_of_branches(value[1]))
        elif op in (const.MAX_REPEAT, const.MIN_REPEAT) and value[0] >= 1:
            offer(_of_sequence(list(value[2])))
    if len(run) >= SHORTEST:
        offer({run})
    return best


def _of_branches(branches: list[Any]) -> set[str] | None:
    union: set[str] = set()
    for branch in branches:
        one = _of_sequence(list(branch))
        if one is None:
            return None
        union |= one
    return union if len(union) <= MOST else None


def _worth(candidate: set[str]) -> tuple[int, int]:
    shortest = min(len(text) for text in candidate)
    return (min(shortest, 8) - len(candidate) // 4, shortest)
