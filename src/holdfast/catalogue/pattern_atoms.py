"""Computes the atoms of a pattern. They rule out most rows before their patterns are compiled.

An atom is a lower-case string. Every text that the pattern matches contains at least one of its atoms, ignoring case. A
pattern without atoms is always tried. Atoms save time: compiling a thousand patterns takes longer than reading a small
log, and running them all takes longer than reading a big log. Atoms are computed when rows are stored.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from re import _constants as const  # type: ignore[attr-defined] # no type stubs declare this module
from re import _parser as parser  # type: ignore[attr-defined] # as above
from typing import Any

SHORTEST = 3
MOST = 96
#: Limit of the spellings of one part of a pattern, such as `[Ll]ink (?:up|down)`.
_MOST_SPELLINGS = 64
#: Characters that are escaped in a log in JSON format. So no atom may contain them.
_ESCAPED = '"\\\t\n'

_ORDINARY = frozenset(
    """
    a after ailed aim an and are as at available barrier batch be been by cache call can cannot check checkpoint
    client closed code count cpu cuda data dataset debug device devices dim do does done down drop eer end epoch err
    error errors eval exit exited fail failed failure fi file files find for found from gpu gpus grad has have hccl
    http https id image in inf info init initialized ink into is it iter its job jobs key kv left lib limit link
    links live load local log logs loss lost max mem memory min missing model must name nccl need needs new no node
    nodes none norm not npu num of on open or p2p path peer port ports process processgroup processgroupnccl pull
    python quit rank ranks read request requests reset ret retry run save saved server set shape size start started
    state step steps still stop stopped table task tasks test that the then this time timed timeout times to token
    tokens torch total train training use user using value version wait waiting warn warning was were will with
    worker workers world write you your
    """.split()  # noqa: SIM905 - a list of words is easier to read than a list of strings
)
_LOGGERS = frozenset({"nccl", "hccl", "info", "warn", "warning", "error", "debug"})
#: Log levels that make a line notable. `NCCL INFO` fills logs, but `NCCL WARN` does not.
_TROUBLED = frozenset({"warn", "error"})
_HEX = frozenset("abcdef")
#: A number with at least this many digits rarely occurs by chance.
_TELLING_DIGITS = 6


def ordinary(atom: str) -> bool:
    """Whether the atom is common in the lines of healthy jobs. Such an atom rules out few logs."""
    words = atom.split()
    if len(words) > 1:
        return all(word in _LOGGERS for word in words) and _TROUBLED.isdisjoint(words)
    core = atom.strip(" :.,;=-_/()[]'")
    if not core.isalpha():
        return len(core) < (_TELLING_DIGITS if core.isdigit() else SHORTEST + 1)
    return core in _ORDINARY or len(core) < SHORTEST or (len(core) == SHORTEST and _HEX.issuperset(core))


def atoms(pattern: str, usual: Collection[str] = ()) -> tuple[str, ...]:
    """Return lower-case strings of which every match of the pattern contains at least one.

    Return () if none can be determined.

    usual: strings that are common in logs. They are used only if there are no others.
    """
    flags = re.IGNORECASE if "(?i" in pattern[:6] else 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parser.parse(pattern, flags)
    except (re.error, OverflowError, RecursionError):
        return ()  # return no atoms: Python's parser does not know all of re2's syntax
    found = _of_sequence(list(tree), usual)
    return tuple(sorted(_without_longer(found))) if found is not None and len(found) <= MOST else ()


def _of_sequence(items: list[Any], usual: Collection[str]) -> set[str] | None:
    """Return the best set of strings from the parts of a pattern: few strings, each long and rare. A text that matches
    the pattern contains one of them.
    """
    best: set[str] | None = None
    run = {""}

    def offer(candidate: set[str] | None) -> None:
        nonlocal best
        if candidate and (best is None or _worth(candidate, usual) > _worth(best, usual)):
            best = candidate

    def end_run() -> None:
        if min(map(len, run)) >= SHORTEST:
            offer(set(run))

    for item in items:
        op, value = item
        spelt = _spellings(op, value)
        if spelt is not None and len(run) * len(spelt) <= _MOST_SPELLINGS:
            run = {head + tail for head in run for tail in spelt}
            continue
        end_run()
        run = spelt if spelt is not None else {""}
        if op is const.SUBPATTERN:
            offer(_of_sequence(list(value[3]), usual))
        elif op is const.BRANCH:
            offer(_of_branches(value[1], usual))
        elif op in (const.MAX_REPEAT, const.MIN_REPEAT) and value[0] >= 1:
            offer(_of_sequence(list(value[2]), usual))
    end_run()
    return best


def _spellings(op: Any, value: Any) -> set[str] | None:
    """Return all texts that a part of a pattern can match, in lower case. Return None if there are too many."""
    if op is const.LITERAL:
        return {chr(value).lower()} if value < 0x80 and chr(value) not in _ESCAPED else None
    if op is const.AT:
        return {""}
    if op is const.IN:
        if any(kind not in (const.LITERAL, const.RANGE) for kind, _ in value):
            return None
        return _few(_spellings(kind, one) for kind, one in value)
    if op is const.RANGE:
        first, last = value
        return _few(_spellings(const.LITERAL, one) for one in range(first, last + 1)) if last - first < 10 else None
    if op is const.SUBPATTERN:
        return _spelt(list(value[3]))
    if op is const.BRANCH:
        return _few(_spelt(list(branch)) for branch in value[1])
    if op in (const.MAX_REPEAT, const.MIN_REPEAT) and value[1] == 1:
        once = _spelt(list(value[2]))
        return {"", *once} if once is not None and value[0] == 0 else once
    return None


def _spelt(items: list[Any]) -> set[str] | None:
    whole = {""}
    for op, value in items:
        part = _spellings(op, value)
        if part is None or len(whole) * len(part) > _MOST_SPELLINGS:
            return None
        whole = {head + tail for head in whole for tail in part}
    return whole


def _few(parts: Any) -> set[str] | None:
    union: set[str] = set()
    for part in parts:
        if part is None:
            return None
        union |= part
    return union if len(union) <= _MOST_SPELLINGS else None


def _of_branches(branches: list[Any], usual: Collection[str]) -> set[str] | None:
    union: set[str] = set()
    for branch in branches:
        one = _of_sequence(list(branch), usual)
        if one is None:
            return None
        union |= one
    union = _without_longer(union)
    return union if len(union) <= MOST else None


def _without_longer(found: set[str]) -> set[str]:
    """Remove each string that contains another string of the set, because the shorter string suffices."""
    return {one for one in found if not any(other != one and other in one for other in found)}


def _worth(candidate: set[str], usual: Collection[str]) -> tuple[int, int, int]:
    poor = sum(1 for text in candidate if text in usual or ordinary(text))
    shortest = min(len(text) for text in candidate)
    return (-poor, min(shortest, 8) - len(candidate).bit_length() // 2, shortest)
