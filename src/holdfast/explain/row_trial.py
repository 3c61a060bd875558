"""Tries all rows of a catalogue on a log: which wordings match which line, and whether their conditions hold."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.catalogue.exit_rows import Wording
from holdfast.explain.logs.line_reader import NeighbourLines
from holdfast.explain.logs.log_lines import Line, parse
from holdfast.explain.logs.row_matcher import Hit, Matcher
from holdfast.model.evidence import LogExcerpt


class RowMatch(msgspec.Struct, frozen=True, kw_only=True):
    """One wording of a row that matches one line."""

    number: int
    text: str
    phrase: str
    wording: str
    strength: str
    #: The condition of the wording that does not hold, as a clause; empty: the match counts.
    fails: str = ""


def row_matches(log: LogExcerpt, matcher: Matcher) -> Iterator[RowMatch]:
    """Yield every match in the order of lines, and for each line in the order of the catalogue."""
    firsts = (*log.cutting_lines, log.first_line)
    for first, text in zip(firsts, (*log.cuttings, log.text), strict=False):
        lines = parse(text, first)
        around = NeighbourLines([line.text for line in lines], matcher)
        for line in lines:
            for hit in _hits(line, matcher):
                yield RowMatch(
                    number=line.number,
                    text=line.text,
                    phrase=hit.row.phrase,
                    wording=hit.wording.id,
                    strength=hit.wording.strength.value,
                    fails=_fails(hit.wording, around),
                )


def _hits(line: Line, matcher: Matcher) -> list[Hit]:
    """Return the matches in a line without its prefixes, and the further ones in the line with them."""
    found = matcher.line(line.text)
    known = {hit.wording.id for hit in found}
    return found + [hit for hit in matcher.line(line.raw) if hit.wording.id not in known]


def _fails(wording: Wording, around: NeighbourLines) -> str:
    if wording.beside and not around.has(wording.beside):
        return "no line has its `beside`"
    if wording.within and not around.has(wording.within):
        return "no line has its `within`"
    if wording.unless and around.has(wording.unless):
        return "a line has its `unless`"
    return ""
