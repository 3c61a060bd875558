"""Matches text with all patterns of a catalogue, in linear time. Patterns are in re2's syntax.

The prefilter finds the patterns that a line or a block may match. Only these patterns are matched exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import re2

from holdfast.catalogue.exit_rows import Catalogue, ExitRow, Wording, load
from holdfast.explain.logs.prefilter import KNOWN_LINE, KNOWN_MOST, Prefilter, is_blind, options, shape

#: Texts that show progress of a program, for searches in whole blocks. `line_reader` checks single lines more strictly.
PROGRESS = (
    r"(?i)(?:^|[^\w.])(?:global[_ ]?)?(?:step|iter|iters|iteration|iterations|epoch|batch|update)\s*[:=#\[(]?\s*\d+"
    r"|\bloss['\"]?\s*[:=]?\s*\d+\.\d|it/s\b|s/it\b|tokens?/s(?:ec)?\b|samples?/s|throughput\s*[:=(]|\" 200 OK\b"
)


class Hit(NamedTuple):
    """A match of a catalogue pattern (`Wording`) in a line."""

    row: ExitRow
    wording: Wording
    fields: dict[str, str]
    #: Length of the match in characters. Of two matches in a line, the longer one is more specific.
    span: int = 0
    #: Whether the matching pattern is from a user's file. Such a pattern takes precedence over built-in patterns.
    chosen: bool = False
    #: The text that was matched, and where the match begins in it.
    text: str = ""
    start: int = 0


def refused(pattern: str) -> str:
    """Return re2's message if re2 refuses a pattern; empty if re2 accepts it."""
    try:
        re2.compile(pattern, options())
    except re2.error as error:
        return _words(error)
    return ""


class Matcher:
    """The matcher of one catalogue. A pattern that re2 refuses never matches, and is listed in `broken`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.broken: list[tuple[str, str]] = []
        self._wordings = catalogue.wordings
        self._compiled: dict[tuple[str, bool], Any] = {}
        #: Shape of a line (the line with 0 for each digit) → the indices of catalogue patterns that the line may match.
        self._known: dict[str, tuple[int, ...]] = {}
        self._blind: dict[str, bool] = {}
        self._sieve = Prefilter([wording for _, wording in self._wordings], self.compiled)

    def line(self, text: str) -> list[Hit]:
        """Return all catalogue matches in a line without prefixes, in the catalogue's order."""
        if not self._wordings or not text:
            return []
        key = shape(text)
        known = self._known.get(key)
        hits = []
        left = []
        for index in self._sieve.likely(text) if known is None else known:
            row, wording = self._wordings[index]
            if match := self.compiled(wording.pattern).search(text):
                groups = {name: value for name, value in match.groupdict().items() if value is not None}
                span = match.end() - match.start()
                hits.append(Hit(row, wording, groups, span, wording.id in self.catalogue.first, text, match.start()))
            elif known is None and self._is_blind(wording.pattern):
                continue
            left.append(index)
        if known is None and len(key) <= KNOWN_LINE:
            if len(self._known) >= KNOWN_MOST:
                self._known.clear()
            self._known[key] = tuple(left)
        return hits

    def _is_blind(self, pattern: str) -> bool:
        if (told := self._blind.get(pattern)) is None:
            told = self._blind[pattern] = is_blind(pattern)
        return told

    def places(self, block: bytes, most: int) -> list[tuple[int, Wording]]:
        """Return sorted pairs (offset, index of a catalogue pattern): for each pattern the first `most` lines of the
        block that match it."""
        return [(place, self._wordings[index][1]) for place, index in self._sieve.places(block, most)]

    def progress(self, data: bytes, start: int = 0) -> int:
        """Return the offset of the first sign of progress in these bytes, from `start` on; -1: there is none."""
        match = self.compiled(PROGRESS, data=True).search(data, start)
        return match.start() if match is not None else -1

    def last_progress(self, data: bytes) -> int:
        """Return the offset of the last sign of progress in these bytes; -1: there is none."""
        pattern = self.compiled(PROGRESS, data=True)
        end = len(data)
        step = 16 << 10
        while end > 0:
            begin = max(0, end - step)
            begin = data.rfind(b"\n", 0, begin) + 1
            last = -1
            for match in pattern.finditer(data[begin:end]):
                last = match.start()
            if last >= 0:
                return begin + last
            end, step = begin, step * 4
        return -1

    def has(self, pattern: str, texts: Sequence[str]) -> bool:
        """Return whether the pattern matches any of these lines."""
        compiled = self.compiled(pattern)
        return any(compiled.search(text) for text in texts if text)

    def fields(self, pattern: str, texts: Sequence[str]) -> dict[str, str]:
        """Return the named groups of the pattern in the first line that matches it; empty if no line does."""
        compiled = self.compiled(pattern)
        for text in texts:
            if match := compiled.search(text):
                return {k: v for k, v in match.groupdict().items() if v is not None}
        return {}

    def compiled(self, pattern: str, *, data: bool = False) -> Any:
        """Return the compiled pattern for text, or for bytes (`data`). Each pattern is compiled once.

        A pattern that re2 refuses matches nothing and is listed in `broken`.
        """
        if (known := self._compiled.get((pattern, data))) is None:
            try:
                known = re2.compile(pattern.encode() if data else pattern, options())
            except re2.error as error:
                self.broken.append((pattern, _words(error)))
                known = re2.compile(b"[^\\s\\S]" if data else "[^\\s\\S]")
            self._compiled[pattern, data] = known
        return known


@functools.cache
def built_in() -> Matcher:
    """Return the matcher of the built-in catalogue, made once per process."""
    return Matcher(load())


def _words(error: Exception) -> str:
    word = error.args[0] if error.args else error
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
