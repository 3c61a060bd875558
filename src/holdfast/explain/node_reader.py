"""The node's part of the explanation: the agent reads the logs of the node's workers."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue
from holdfast.explain.causes.attribution import EvidenceStrength, kind_of
from holdfast.explain.log_selection import matcher_of, readings_of
from holdfast.explain.logs.last_lines import last_line
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.text.sentences import shortened
from holdfast.model.codec import encode
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import Evidence
from holdfast.model.worker_reading import (
    READING_BYTES,
    Clue,
    EndNote,
    OwnMatch,
    QuotedLine,
    RaisedException,
    UncaughtException,
    WorkerReading,
)

#: Ranks, line numbers and statuses from this size on are invalid and are dropped.
LARGEST = 2**31
#: Limit on the name of a type, a host or a file, in characters.
_NAME = 200
#: Limit on how many linked exceptions, above and below one, are sent to the owner.
MOST_LINKS = 5
#: Bytes by which a log reading may grow in a message: an integer in a float field becomes `3.0` when it is decoded.
_SLACK = 128
#: Limit on a pattern of a user's rows, in characters. Matches of longer patterns are not sent to the owner.
_PATTERN = 400


class _Limits(NamedTuple):
    """Limits on the parts of a log reading: lengths in characters, and numbers of items."""

    #: Maximum length of each text of the strongest clue.
    best: int
    #: Maximum length of each text that is not of the strongest clue.
    text: int
    clues: int
    weaker: int
    notes: int
    ranks: int
    fields: int


#: The limits to try, in this order, until the log reading is small enough. The last limits always suffice.
_STEPS = (
    _Limits(best=2000, text=2000, clues=16, weaker=8, notes=16, ranks=512, fields=16),
    _Limits(best=2000, text=600, clues=16, weaker=8, notes=16, ranks=512, fields=16),
    _Limits(best=1200, text=320, clues=8, weaker=4, notes=8, ranks=256, fields=12),
    _Limits(best=600, text=320, clues=4, weaker=2, notes=4, ranks=64, fields=8),
    _Limits(best=300, text=160, clues=2, weaker=1, notes=2, ranks=16, fields=4),
    _Limits(best=100, text=60, clues=1, weaker=0, notes=1, ranks=4, fields=2),
)


def bounded(said: WorkerReading) -> WorkerReading:
    """Cut the log reading to at most `READING_BYTES` as JSON.

    A reading that is already small keeps everything that a report shows.
    """
    small = said
    for limits in _STEPS:
        small = _within(said, limits)
        if len(encode(small)) <= READING_BYTES - _SLACK:
            break
    return small


def _within(said: WorkerReading, limits: _Limits) -> WorkerReading:
    clues = [_clue(clue, limits, best=place == 0) for place, clue in enumerate(said.clues[: limits.clues])]
    return replace(
        said,
        clues=tuple(clues),
        weaker=tuple(_clue(clue, limits) for clue in said.weaker[: limits.weaker]),
        notes=tuple(_note(note, limits) for note in _ends(said.notes, limits.notes)),
        ranks=_numbers(said.ranks, limits.ranks),
        blames=_numbers(said.blames, limits.ranks),
        own_matches=tuple(_own_matches(said.own_matches, limits)),
        end=_quote(said.end, limits.text, limits.text) if said.end is not None else None,
        tagged=_number(said.tagged),
        last_line=_evidence(said.last_line, limits.text) if said.last_line is not None else None,
        crashed_in=_kept(said.crashed_in, limits.text),
        last_raised=_raised(said.last_raised, limits.text) if said.last_raised is not None else None,
        uncaught=_uncaught(said.uncaught, limits.text) if said.uncaught is not None else None,
        bug=_kept(said.bug, limits.text),
    )


T = TypeVar("T")


def _ends(items: tuple[T, ...], most: int) -> tuple[T, ...]:
    """Return the first items, and the last item, which shows how the log ended."""
    return items if len(items) <= most else (*items[: most - 1], items[-1])


def _number(value: int | None) -> int | None:
    return value if value is not None and -LARGEST < value < LARGEST else None


def _numbers(values: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(value for value in values if value < LARGEST)[:most]


def _own_matches(found: tuple[OwnMatch, ...], limits: _Limits) -> list[OwnMatch]:
    short = [match for match in found if len(match.pattern) <= _PATTERN]
    return [replace(match, line=_quote(match.line, limits.text, 0)) for match in short[: limits.notes]]


def _clue(clue: Clue, limits: _Limits, *, best: bool = False) -> Clue:
    text = limits.best if best else limits.text
    return replace(
        clue,
        line=_quote(clue.line, text, text),
        stream="",
        wording=clue.wording if len(clue.wording) <= _NAME else "",
        fields={name: _kept(value, limits.text) for name, value in list(clue.fields.items())[: limits.fields]},
        raised=_raised(clue.raised, text) if clue.raised is not None else None,
        rank=_number(clue.rank),
        note=_note(clue.note, limits) if clue.note is not None else None,
    )


def _quote(line: QuotedLine, text: int, prefixed: int) -> QuotedLine:
    return replace(
        line,
        text=_kept(line.text, text),
        prefixed=_kept(line.prefixed, prefixed),
        source=_kept(line.source, _NAME),
        rank=_number(line.rank),
    )


def _kept(text: str, limit: int) -> str:
    """Return the text, shortened if it is longer than `limit`. Leave a short text as it is, with its indentation."""
    return text if len(text) <= limit else shortened(text, limit)


def _raised(raised: RaisedException, limit: int) -> RaisedException:
    frame = raised.frame
    return replace(
        raised,
        type=_kept(raised.type, _NAME),
        message=_kept(raised.message, limit),
        words=_kept(raised.words, limit),
        told=_kept(raised.told, limit),
        above=tuple(_kept(text, limit) for text in raised.above[:MOST_LINKS]),
        below=tuple(_kept(text, limit) for text in raised.below[:MOST_LINKS]),
        frame=(_kept(frame[0], _NAME), min(frame[1], LARGEST), _kept(frame[2], _NAME)) if frame is not None else None,
    )


def _uncaught(thrown: UncaughtException, limit: int) -> UncaughtException:
    return replace(
        thrown,
        type=_kept(thrown.type, _NAME),
        what=_kept(thrown.what, limit),
        text=_kept(thrown.text, limit),
        source=_kept(thrown.source, _NAME),
    )


def _note(note: EndNote, limits: _Limits) -> EndNote:
    return replace(
        note,
        line=_quote(note.line, limits.text, limits.text),
        rank=_number(note.rank),
        exit_code=_number(note.exit_code),
        signal=_number(note.signal),
        host=_kept(note.host, _NAME),
        error_file=_kept(note.error_file, _NAME),
    )


def _evidence(item: Evidence, limit: int) -> Evidence:
    return replace(item, text=_kept(item.text, limit), source=_kept(item.source, _NAME))


#: Limit on the workers whose last lines are kept although their logs were not read. They are kept only if no worker
#: failed by itself.
MOST_LAST_LINES = 64


def read_workers(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> AttemptEvidence:
    """Return the evidence with each worker's reading in place of its logs and its last output. Never raises.

    As for a report, `readings_of` decides which logs to read completely, and of which to read only the end.
    """
    try:
        matcher = matcher_of(catalogue)
        readings = readings_of(evidence, matcher)
        found = any(kind_of(reading, evidence) is EvidenceStrength.OWN for reading in readings)
        workers = [_with_reading(reading.worker, bounded(reading.said)) for reading in _told(readings, found)]
    except Exception as error:  # a bug in the reader must not cost the job its report
        workers = [_with_reading(worker, _broken(error)) for worker in evidence.workers]
    return replace(evidence, workers=tuple(workers))


def _told(readings: list[Reading], found: bool) -> list[Reading]:
    """If no worker failed by itself (`found` is False), add the workers' last lines, which may be the only evidence."""
    left = 0 if found else MOST_LAST_LINES
    told = []
    for reading in readings:
        said = reading.said
        if left and said.last_line is None:
            left -= 1
            said = replace(said, last_line=last_line(reading.worker))
        told.append(Reading(reading.worker, said))
    return told


def _with_reading(worker: WorkerEvidence, said: WorkerReading) -> WorkerEvidence:
    ended = worker.exit
    if ended is not None:
        ended = replace(ended, last_words="", last_words_stream="", error_file="")
    return replace(worker, reading=said, exit=ended, log=None, stdout=None, stderr=None)


def _broken(error: Exception) -> WorkerReading:
    return WorkerReading(bug=f"{type(error).__name__}: {str(error)[:300]}")
