"""The catalogue as one machine: every pattern of every row searched in one pass, in linear time, whatever the text.

Patterns are re2's. One set answers which wordings are in a line or a block; only those are then run for their fields.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
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


NARROW_MOST = 4 << 20
"""Characters: in a longer text, looking for every atom costs more than compiling everything."""


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
        self._wordings = list(catalogue.wordings)
        self._compiled: dict[tuple[str, bool], Any] = {}
        self._lines: tuple[Any, list[int]] | None = None
        self._blocks: tuple[Any, list[int]] | None = None
        self._narrow = False

    def narrowed(self, text: str) -> Matcher:
        """The same for this text and its parts only: wordings whose atoms are not in it are left out, uncompiled."""
        if len(text) > NARROW_MOST:
            return self
        low = text.lower()
        told: dict[str, bool] = {}

        def stands(atom: str) -> bool:
            if (known := told.get(atom)) is None:
                known = told[atom] = atom in low
            return known

        part = Matcher.__new__(Matcher)
        part.catalogue, part.broken, part._compiled = self.catalogue, self.broken, self._compiled
        part._wordings = [
            (row, wording)
            for row, wording in self._wordings
            if not wording.atoms or any(stands(atom) for atom in wording.atoms)
        ]
        part._lines = part._blocks = None
        part._narrow = True
        return part

    def line(self, text: str) -> list[Hit]:
        """All wordings in one bare line, in the catalogue's order."""
        if not self._wordings or not text:
            return []
        hits = []
        for row, wording in self._likely(text):
            if match := self.compiled(wording.pattern).search(text):
                groups = {name: value for name, value in match.groupdict().items() if value is not None}
                span = match.end() - match.start()
                hits.append(Hit(row, wording, groups, span, wording.id in self.catalogue.first))
        return hits

    def _likely(self, text: str) -> list[tuple[ExitRow, Wording]]:
        """The wordings that may be in this line: by their atoms where few are left, else by one pass of a set."""
        if self._narrow:
            low = text.lower()
            return [
                (row, wording)
                for row, wording in self._wordings
                if not wording.atoms or any(atom in low for atom in wording.atoms)
            ]
        if self._lines is None:
            self._lines = self._set((index, wording.pattern) for index, (_, wording) in enumerate(self._wordings))
        chosen, numbers = self._lines
        return [self._wordings[numbers[index]] for index in sorted(chosen.Match(text) or ())] if numbers else []

    def block(self, data: bytes) -> list[int]:
        """Which wordings are in a block of raw bytes: numbers for `positions`."""
        if self._blocks is None:
            # A block has no bare lines: anchors of a line's ends would miss what stands behind a prefix.
            self._blocks = self._set(
                (index, _unanchored(wording.pattern)) for index, (_, wording) in enumerate(self._wordings)
            )
        chosen, numbers = self._blocks
        return sorted(numbers[index] for index in chosen.Match(data) or ()) if numbers else []

    def progress(self, data: bytes, start: int = 0) -> int:
        """Where the first sign of progress stands in these bytes from `start` on; -1 where there is none."""
        match = self.compiled(PROGRESS, data=True).search(data, start)
        return match.start() if match is not None else -1

    def last_progress(self, data: bytes) -> int:
        """Where the last sign of progress stands in these bytes; -1 where there is none."""
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

    def _set(self, patterns: Iterable[tuple[int, str]]) -> tuple[Any, list[int]]:
        chosen = re2.Set.SearchSet(options())
        numbers: list[int] = []
        for index, pattern in patterns:
            try:
                chosen.Add(pattern)
            except re2.error as error:
                self.broken.append((self._wordings[index][1].id, _words(error)))
                continue
            numbers.append(index)
        if numbers:
            chosen.Compile()
        return chosen, numbers

    def positions(self, index: int, data: bytes, limit: int) -> Iterator[int]:
        """Where what `block` named stands in the block: the first offset of each line, at most `limit` of them."""
        pattern = self.compiled(_unanchored(self._wordings[index][1].pattern), data=True)
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
        return self._wordings[index][1]

    def has(self, pattern: str, texts: Sequence[str]) -> bool:
        """Is the pattern in any of these lines?"""
        compiled = self.compiled(pattern)
        return any(compiled.search(text) for text in texts if text)

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
