"""The page Goodput: how jobs spent their time, by day, week or name, and their ETTR (effective training time ratio)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never
from urllib.parse import urlencode

from holdfast.model.decisions import AttemptRecord, lost_steps
from holdfast.model.human_format import duration
from holdfast.model.noun_base import Noun
from holdfast.record.job_history import PastJob
from holdfast.report.statistics.failure_statistics import week_of
from holdfast.report.statistics.goodput import Goodput, TimeUse, goodput
from holdfast.web.history_filter import DAY_S, HistoryFilter, chosen, day
from holdfast.web.page_parts import BadRequest, Page, PageRequest

MOST_ROWS = 60
_DAYS = 90


class GroupedBy(enum.StrEnum):
    DAY = "day"
    WEEK = "week"
    NAME = "name"


class Piece(Noun, frozen=True, kw_only=True):
    """One coloured piece of a bar. It begins at `x` and is `width` wide, both in thousandths of the bar."""

    kind: TimeUse
    seconds: float
    x: float
    width: float
    #: The label, such as `detection: 12 s, 0.4 %`.
    text: str


class GoodputRow(Noun, frozen=True, kw_only=True):
    """The figures of one day, one week, one job name, or all jobs."""

    label: str
    href: str = ""
    jobs: int
    wall_s: float
    lost_s: float
    #: Productive time ÷ all time, from 0 to 1.
    ettr: float | None = None
    #: Steps, counted by `holdfast.progress`, that the next attempt repeated or that were not saved when the job failed.
    lost_steps: int = 0
    seconds: dict[TimeUse, float]
    pieces: tuple[Piece, ...] = ()


class TrendColumn(Noun, frozen=True, kw_only=True):
    """One day of the trend. `x`, `height`: in thousandths of the chart."""

    day: str
    ettr: float
    x: int
    width: int
    height: int


class GoodputPage(Noun, frozen=True, kw_only=True):
    """The content of the page Goodput."""

    title: str = "Goodput"
    all: GoodputRow
    rows: tuple[GoodputRow, ...]
    #: The ETTR of each row, the oldest first; empty if the rows are names of jobs.
    trend: tuple[TrendColumn, ...] = ()
    left_out: int = 0
    by: GroupedBy
    days: int
    name: str
    names: tuple[str, ...]
    kinds: tuple[TimeUse, ...] = tuple(TimeUse)
    trouble: tuple[str, ...] = ()


def read(ask: PageRequest) -> GoodputPage:
    """Read the attempts from the journals, and build the page.

    Raise `BadRequest` for an address with an invalid choice.
    """
    wanted = chosen(ask, days=_DAYS)
    try:
        by = GroupedBy(ask.query.get("by", GroupedBy.DAY))
    except ValueError:
        raise BadRequest(f"by={ask.query['by']}: expected day, week or name") from None
    match by:
        case GroupedBy.DAY:
            rows = _by_time(wanted.of(), lambda at: at // DAY_S * DAY_S)
        case GroupedBy.WEEK:
            rows = _by_time(wanted.of(), week_of)
        case GroupedBy.NAME:
            rows = _by_name(wanted)
        case _ as never:
            assert_never(never)
    return GoodputPage(
        all=_row("all", len(wanted.jobs), _attempts(wanted.of()), _steps(wanted.of())),
        rows=tuple(rows[:MOST_ROWS]),
        trend=_trend(rows[:MOST_ROWS]) if by is not GroupedBy.NAME else (),
        left_out=max(len(rows) - MOST_ROWS, 0),
        by=by,
        days=wanted.days,
        name=wanted.name,
        names=wanted.names,
        trouble=wanted.trouble,
    )


PAGE = Page("/goodput", "goodput.html", read, "Goodput")


def _by_time(jobs: Iterable[PastJob], begin: Callable[[float], float]) -> list[GoodputRow]:
    """Return a row for each day or week, newest first. An attempt counts in the one in which it ended.

    `begin`: returns the beginning of the day or week that contains a time; both in seconds since the epoch.
    """
    ended: dict[float, list[AttemptRecord]] = {}
    names: dict[float, set[str]] = {}
    steps: dict[float, int] = {}
    for job in jobs:
        for record in job.attempts:
            at = begin(record.ended_at)
            ended.setdefault(at, []).append(record)
            names.setdefault(at, set()).add(job.view.id)
        for record, lost in lost_steps(job.attempts):
            at = begin(record.ended_at)
            steps[at] = steps.get(at, 0) + lost
    return [_row(day(at), len(names[at]), ended[at], steps.get(at, 0)) for at in sorted(ended, reverse=True)]


def _trend(rows: Sequence[GoodputRow]) -> tuple[TrendColumn, ...]:
    known = [(row.label, row.ettr) for row in reversed(rows) if row.ettr is not None]
    width = 1000 // max(len(known), 1)
    return tuple(
        TrendColumn(day=label, ettr=ettr, x=index * width, width=max(width - 2, 1), height=round(1000 * ettr))
        for index, (label, ettr) in enumerate(known)
    )


def _by_name(wanted: HistoryFilter) -> list[GoodputRow]:
    """Return a row for each job name. The name with the most lost time comes first."""
    named: dict[str, list[PastJob]] = {}
    for job in wanted.of():
        named.setdefault(job.view.name, []).append(job)
    rows = [
        _row(
            name,
            len(jobs),
            _attempts(jobs),
            _steps(jobs),
            f"/goodput?{urlencode({'name': name, 'days': wanted.days})}",
        )
        for name, jobs in named.items()
    ]
    return sorted(rows, key=lambda row: (-row.lost_s, row.label))


def _attempts(jobs: Iterable[PastJob]) -> Iterable[AttemptRecord]:
    return (record for job in jobs for record in job.attempts)


def _steps(jobs: Iterable[PastJob]) -> int:
    return sum(lost for job in jobs for _, lost in lost_steps(job.attempts))


def _row(label: str, jobs: int, attempts: Iterable[AttemptRecord], steps: int, href: str = "") -> GoodputRow:
    found = goodput(attempts)
    return GoodputRow(
        label=label,
        href=href,
        jobs=jobs,
        wall_s=found.wall_s,
        lost_s=found.lost_s,
        ettr=found.ratio,
        lost_steps=steps,
        seconds=found.seconds,
        pieces=tuple(_pieces(found)),
    )


def _pieces(found: Goodput) -> Iterable[Piece]:
    at = 0.0
    for kind, seconds in found.seconds.items():
        width = 1000.0 * seconds / found.wall_s if found.wall_s > 0 else 0.0
        text = f"{kind.value.replace('_', ' ')}: {duration(seconds)}, {width / 10:.1f} %"
        yield Piece(kind=kind, seconds=seconds, x=round(at, 2), width=round(width, 2), text=text)
        at += width
