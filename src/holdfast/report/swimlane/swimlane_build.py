"""Builds the swimlane from a job's journal: attempts become bands, nodes and ranks rows, and events marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.model.decisions import AttemptRecord
from holdfast.model.events import Event
from holdfast.model.exit_report import ExitReport
from holdfast.model.gang_protocol import MemberState
from holdfast.report.swimlane.journal_pass import AttemptHistory, RankHistory, SwimlaneFacts, swimlane_facts
from holdfast.report.swimlane.row_folding import RankRow, fold_rows, thin_marks
from holdfast.report.swimlane.swimlane_model import Band, Mark, MarkKind, PhaseSpan, Stretch, Swimlane

#: Maximum number of attempts that are drawn: the last ones.
MOST_BANDS = 24

_BEFORE_START = ("backoff", "assembling")
_BESIDE = frozenset({"first_output"})


def swimlane_of(
    events: Iterable[tuple[float, Event]], attempts: Sequence[AttemptRecord], *, now: float | None
) -> Swimlane:
    """Build the swimlane of one job.

    `events`: the job's journal, as `record.views.events` returns it; if it is empty, the bands come from `attempts`
    alone.
    `attempts`, `now`: see `swimlane_from`.
    """
    return swimlane_from(swimlane_facts(events), attempts, now=now)


def swimlane_from(told: SwimlaneFacts, attempts: Sequence[AttemptRecord], *, now: float | None) -> Swimlane:
    """Build the swimlane from the facts of the job's journal, which stay as they are.

    `attempts`: the records of ended attempts. `now`: for a running job, seconds since the epoch; None: the job has
    ended.
    """
    records = {record.attempt: record for record in attempts}
    numbers = sorted({*records, *told.attempts})
    shown = numbers[-MOST_BANDS:]
    bands = tuple(_band(number, records.get(number), told.attempts.get(number), told, now) for number in shown)
    start = min((part.start for band in bands for part in band.parts), default=told.last)
    end = max([band.end for band in bands], default=told.last)
    by_attempt = {band.attempt: band for band in bands}
    rows = _rows(told, by_attempt, records)
    nodes, marks = _of_nodes(told, rows, start)
    # Leave out stops that holdfast requests after the job's end.
    of_job = [
        mark for mark in told.marks if mark.at >= start and (mark.kind is not MarkKind.STOP_ASKED or mark.at <= end)
    ]
    of_job += [mark for band in bands for mark in _of_attempt(band, records, told)]
    return Swimlane(
        start=start,
        end=max(end, start),
        bands=bands,
        nodes=fold_rows(rows, nodes, bands),
        marks=thin_marks(sorted([*of_job, *marks], key=lambda mark: mark.at), end - start),
        ranks=len({rank for attempt in told.attempts.values() for rank in attempt.ranks}),
        machines=len({row.node for row in rows} | set(nodes)),
        left_out=len(numbers) - len(shown),
    )


def _band(
    number: int, record: AttemptRecord | None, attempt: AttemptHistory | None, told: SwimlaneFacts, now: float | None
) -> Band:
    if record is None:
        assert attempt is not None  # either the record or the history has the number
        end = max(now if now is not None else told.last, attempt.last)
        return Band(attempt=number, start=attempt.began, end=end, parts=_so_far(attempt, end), running=now is not None)
    before = [(name, record.parts.get(name, 0.0)) for name in _BEFORE_START]
    at = record.started_at - sum(seconds for _, seconds in before)
    parts = []
    rest = [(name, took) for name, took in record.parts.items() if name not in _BESIDE and name not in _BEFORE_START]
    for name, seconds in (*before, *rest):
        if seconds > 0:
            parts.append(PhaseSpan(name=name, start=at, end=at + seconds))
            at += seconds
    if not parts:  # the attempt's owner was lost before it recorded the attempt's parts
        parts = [PhaseSpan(name="running", start=record.started_at, end=max(record.ended_at, record.started_at))]
    return Band(
        attempt=number,
        start=record.started_at,
        end=max(record.ended_at, parts[-1].end),
        parts=tuple(parts),
        phrase=record.report.phrase,
        decision=f"{record.decision.kind.value}: {record.decision.reason}",
    )


def _so_far(attempt: AttemptHistory, end: float) -> tuple[PhaseSpan, ...]:
    """Return the phases of an attempt without a record, as far as its events show them. `end`: the end of the last
    phase.
    """
    turns = [("checking", attempt.began), ("preparing", attempt.checked), ("starting", attempt.going)]
    turns += [("running", attempt.up), ("draining", attempt.trouble)]
    known = [(name, at) for name, at in turns if at is not None]
    parts = []
    for index, (name, at) in enumerate(known):
        until = known[index + 1][1] if index + 1 < len(known) else end
        if until > at or index + 1 == len(known):
            parts.append(PhaseSpan(name=name, start=at, end=max(at, until)))
    return tuple(parts)


def _rows(told: SwimlaneFacts, bands: Mapping[int, Band], records: Mapping[int, AttemptRecord]) -> list[RankRow]:
    """Build one row for each rank on each node on which the rank ran."""
    rows: dict[tuple[str, int], RankRow] = {}
    for number, band in bands.items():
        attempt = told.attempts.get(number)
        if attempt is None:
            continue
        record = records.get(number)
        ends = _Ends(attempt, record.report if record is not None else None)
        for index, rank in attempt.ranks.items():
            if rank.begun is None and rank.ended is None and not rank.start_failed:
                continue
            row = rows.get((rank.node, index))
            if row is None:
                row = rows[rank.node, index] = RankRow(rank.node, index)
            row.role = rank.role or row.role
            row.culprit = row.culprit or index in ends.culprits
            row.step = rank.step if rank.step is not None else row.step
            end = min(rank.ended, band.end) if rank.ended is not None else band.end
            begun = min(rank.begun if rank.begun is not None else end, end)
            silent = ends.silent_from(begun, end)
            row.stretches.append(Stretch(attempt=number, start=begun, end=end, silent_from=silent))
            row.marks += ends.marks(index, rank, end)
    return list(rows.values())


class _Ends:
    """Interprets how the ranks of one attempt ended, for their rows."""

    def __init__(self, attempt: AttemptHistory, report: ExitReport | None) -> None:
        self._attempt = attempt
        first = [report.first] if report is not None and report.first is not None else []
        also = report.also if report is not None else ()
        self.culprits = frozenset(culprit.rank for culprit in (*first, *also))
        self._collateral = frozenset(report.collateral) if report is not None else frozenset()
        self._kills = {kill.rank: kill for kill in attempt.kills if kill.rank is not None}
        looks = attempt.hang.looks if attempt.hang is not None else ()
        self._looks = {one.rank: one for one in looks[-1]} if looks else {}

    def silent_from(self, start: float, end: float) -> float | None:
        hang = self._attempt.hang
        if hang is None:
            return None
        at = self._attempt.hang_at - hang.silent_s
        return min(max(at, start), end)

    def marks(self, index: int, rank: RankHistory, end: float) -> list[Mark]:
        number, hang = self._attempt.number, self._attempt.hang
        marks = []
        look = self._looks.get(index)
        if look is not None and look.last_step is not None and look.last_step_at is not None:
            text = f"step {look.last_step}, the last one"
            marks.append(Mark(kind=MarkKind.PROGRESS, at=look.last_step_at, text=text, attempt=number))
        if hang is not None and index in hang.culprits:
            why = hang.why or f"nothing moved for {hang.silent_s:.0f} s"
            marks.append(Mark(kind=MarkKind.HANG, at=self._attempt.hang_at, text=why, attempt=number))
        kind = self._kind(index, rank)
        if kind is not None:
            marks.append(Mark(kind=kind, at=end, text=self._words(index, rank), attempt=number))
        return marks

    def _kind(self, index: int, rank: RankHistory) -> MarkKind | None:
        told = rank.told
        if rank.start_failed:
            return MarkKind.OWN_DEATH
        if told is None:
            return MarkKind.STOPPED if rank.state is MemberState.STOPPED else None
        if index in self._kills:
            return MarkKind.MEMORY_KILL
        if told.ok:
            return MarkKind.FINISHED
        if told.after_stop and not told.was_dying:
            return MarkKind.STOPPED
        return MarkKind.PEER_DEATH if index in self._collateral else MarkKind.OWN_DEATH

    def _words(self, index: int, rank: RankHistory) -> str:
        if rank.start_failed:
            return f"it could not be started: {rank.start_failed}"
        how = rank.told.how if rank.told is not None else "no exit status"
        return f"{how}: {self._kills[index].text}" if index in self._kills else how


def _of_attempt(band: Band, records: Mapping[int, AttemptRecord], told: SwimlaneFacts) -> list[Mark]:
    """Return the marks about an attempt as a whole: its failed checks and its progress."""
    marks = []
    attempt, record = told.attempts.get(band.attempt), records.get(band.attempt)
    for at, failure in attempt.checks if attempt is not None else ():
        text = f"check {failure.check}: {failure.message}"
        marks.append(Mark(kind=MarkKind.CHECK, at=at, text=text, attempt=band.attempt))
    seen = [sign.text for sign in record.signs] if record is not None else []
    if record is not None and record.step is not None and not any("step" in text for text in seen):
        seen.append(f"step {record.step}")
    if seen:
        # No event has the time of the progress, so put the mark at the end of the running phase.
        ran = [part.end for part in band.parts if part.name == "running"]
        at = ran[-1] if ran else band.end
        text = f"progress by the end of attempt {band.attempt}: {'; '.join(seen)}"
        marks.append(Mark(kind=MarkKind.PROGRESS, at=at, text=text, attempt=band.attempt))
    return marks


def _of_nodes(told: SwimlaneFacts, rows: Sequence[RankRow], start: float) -> tuple[dict[str, list[Mark]], list[Mark]]:
    """Return node → its marks, and the marks without a known node, which go to the job's row."""
    known = {row.node for row in rows}
    only = next(iter(known)) if len(known) == 1 else None
    of_nodes: dict[str, list[Mark]] = {}
    others: list[Mark] = []
    for node, marks in told.node_marks.items():
        here = [mark for mark in marks if mark.at >= start]
        place = node if node in known else only
        if place is None and not node:
            others += here
        elif here:
            of_nodes.setdefault(place if place is not None else node, []).extend(here)
    return of_nodes, others
