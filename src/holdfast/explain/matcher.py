"""The catalogue as one machine: every pattern of every row searched in one pass, in linear time, whatever the text.

Patterns are re2's. One set answers which wordings are in a line or a block; only those are then run for their fields.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import re2

from holdfast.catalogue.exits import Catalogue, ExitRow, Wording, load

_SET_MEMORY = 64 << 20
"""Bytes for the set's automaton: it is built as the text needs it and forgotten when full."""


PROGRESS = (
    r"(?i)(?:^|[^\w.])(?:global[_ ]?)?(?:step|iter|iters|iteration|iterations|epoch|batch|update)\s*[:=#\[(]?\s*\d+"
    r"|\bloss['\"]?\s*[:=]?\s*\d+\.\d|it/s\b|s/it\b|tokens?/s(?:ec)?\b|samples?/s|throughput\s*[:=(]|\" 200 OK\b"
)
"""What a program writes while its work goes on, in a block of raw text; lines are judged more closely when read."""


class Hit(NamedTuple):
    """A wording found in a line."""

    row: ExitRow
    wording: Wording
    fields: dict[str, str]
    span: int = 0
    """Length of what matched: of two wordings in one line the longer says more."""
    chosen: bool = False
    """A user's own row: it goes before the built-in ones."""


def options() -> Any:
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.max_mem = _SET_MEMORY
    return chosen


def refused(pattern: str) -> str:
    """Why re2 refuses a pattern, in its words; empty where it does not."""
    try:
        re2.compile(pattern, options())
    except re2.error as error:
        return _words(error)
    return ""


class Matcher:
    """Compiled once a catalogue. A wording whose pattern is refused is left out and named in `broken`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.broken: list[tuple[str, str]] = []
        self._wordings: list[tuple[ExitRow, Wording]] = []
        self._compiled: dict[tuple[str, bool], Any] = {}
        lines, blocks = options(), options()
        blocks.never_nl = True
        self._lines = re2.Set.SearchSet(lines)
        self._blocks = re2.Set.SearchSet(blocks)
        self._blocks.Add(PROGRESS)
        for row, wording in catalogue.wordings:
            try:
                self._lines.Add(wording.pattern)
            except re2.error as error:
                self.broken.append((wording.id, _words(error)))
                continue
            # A block has no bare lines: anchors of a line's ends would miss what stands behind a prefix.
            self._blocks.Add(_unanchored(wording.pattern))
            self._wordings.append((row, wording))
        self._line_ready = self._block_ready = False

    def line(self, text: str) -> list[Hit]:
        """All wordings in one bare line, in the catalogue's order."""
        if not self._wordings or not text:
            return []
        if not self._line_ready:
            self._lines.Compile()
            self._line_ready = True
        hits = []
        for index in sorted(self._lines.Match(text) or ()):
            row, wording = self._wordings[index]
            if match := self.compiled(wording.pattern).search(text):
                hits.append(
                    Hit(
                        row,
                        wording,
                        {k: v for k, v in match.groupdict().items() if v is not None},
                        match.end() - match.start(),
                        wording.id in self.catalogue.first,
                    )
                )
        return hits

    def block(self, data: bytes) -> list[int]:
        """Which wordings are in a block of raw bytes: numbers for `positions`; 0 stands for signs of progress."""
        if not self._block_ready:
            self._blocks.Compile()
            self._block_ready = True
        return sorted(self._blocks.Match(data) or ())

    def positions(self, index: int, data: bytes, limit: int) -> Iterator[int]:
        """Where what `block` named stands in the block: the first offset of each line, at most `limit` of them."""
        pattern = self.compiled(
            PROGRESS if index == 0 else _unanchored(self._wordings[index - 1][1].pattern), data=True
        )
        at = 0
        for _ in range(limit):
            match = pattern.search(data, at)
            if match is None:
                return
            yield match.start()
            newline = data.find(b"\n", match.end())
            if newline < 0:
                return
            at = newline + 1

    def wording(self, index: int) -> Wording:
        return self._wordings[index - 1][1]

    def has(self, pattern: str, texts: Sequence[str]) -> bool:
        """Is the pattern in any of these lines?"""
        compiled = self.compiled(pattern)
        return any(compiled.search(text) for text in texts)

    def fields(self, pattern: str, texts: Sequence[str]) -> dict[str, str]:
        """Named groups of the first of these lines that matches."""
        compiled = self.compiled(pattern)
        for text in texts:
            if match := compiled.search(text):
                return {k: v for k, v in match.groupdict().items() if v is not None}
        return {}

    def compiled(self, pattern: str, *, data: bool = False) -> Any:
        """The pattern for text, or for bytes: compiled once; one that is refused matches nothing and is in `broken`."""
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
    """The matcher of the built-in catalogue, made once a process."""
    return Matcher(load())


_ANCHORS = re.compile(r"^(\(\?[a-z]+\))?\^|(?<!\\)\$$")


def _unanchored(pattern: str) -> str:
    return _ANCHORS.sub(lambda m: m[1] or "", pattern)


def _words(error: Exception) -> str:
    word = error.args[0] if error.args else error
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
