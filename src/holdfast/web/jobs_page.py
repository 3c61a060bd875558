"""The page of all jobs: how each job ended, the class of each failed attempt, and the lost time."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import urlencode

from msgspec.structs import replace

from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exit_report import Outcome
from holdfast.model.noun_base import Noun
from holdfast.node.attempt_progress import progress_of
from holdfast.record.job_history import PastJob
from holdfast.report.failure_place import cause_of
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.page_parts import BadRequest, Home, Page, PageRequest

#: Maximum number of jobs on one page.
A_PAGE = 100
#: Maximum number of attempts shown of a job: the last ones.
MOST_DOTS = 20


class JobSortOrder(enum.StrEnum):
    LOST = "lost"
    NEWEST = "newest"
    NAME = "name"


class Dot(Noun, frozen=True, kw_only=True):
    """One attempt, shown as a coloured dot."""

    attempt: int
    #: `ok`: success; `own`: the program failed; `else`: a node, a device or the platform failed; `stopped`: a person or
    #: a limit stopped it.
    kind: str
    text: str


class JobRow(Noun, frozen=True, kw_only=True):
    """One row of the table of jobs. Times are in seconds."""

    id: str
    name: str
    href: str
    state: str
    phrase: str = ""
    #: The exception or the class of a failure; for a running job, its step, pace and last output.
    cause: str = ""
    blame: str = ""
    #: The culprit, such as `rank 3 on gpu-07`.
    culprit: str = ""
    node: str = ""
    attempts: int = 0
    dots: tuple[Dot, ...] = ()
    created: float
    took_s: float
    #: Seconds lost in failed attempts and between attempts.
    lost_s: float


class Jobs(Noun, frozen=True, kw_only=True):
    """The content of the page of all jobs: the matching jobs in the requested order."""

    title: str = "Jobs"
    jobs: tuple[JobRow, ...]
    fitting: int
    known: int
    sort: str
    page: int = 1
    #: The address of the previous page; empty on the first page.
    earlier: str = ""
    later: str = ""
    states: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    blames: tuple[str, ...] = ()
    chosen: dict[str, str] = {}
    trouble: tuple[str, ...] = ()


def read(ask: PageRequest) -> Jobs:
    """Collect all jobs that match the address. Raise `BadRequest` for an invalid order or page number."""
    rows: list[JobRow] = []
    trouble: list[str] = []
    known: dict[str, tuple[Home, PastJob]] = {}
    for home in ask.homes:
        history = REMEMBERED.past(home.path)
        trouble += [history.trouble] if history.trouble else []
        if history.left_out:
            trouble.append(f"{history.left_out} older jobs of {home.path} are left out")
        for job in history.jobs:
            row = row_of(ask, home, job)
            rows.append(row)
            known[row.href] = home, job
    chosen = {name: value for name in _FIELDS if (value := ask.query.get(name, "").strip())}
    fitting = [row for row in rows if all(_fits(row, name, value) for name, value in chosen.items())]
    order, number = _order(ask), _number(ask)
    fitting.sort(key=_KEYS[order])
    first = (number - 1) * A_PAGE
    shown = fitting[first : first + A_PAGE]
    return Jobs(
        jobs=tuple(replace(row, cause=_cause(ask.now, row, *known[row.href])) for row in shown),
        fitting=len(fitting),
        known=len(rows),
        sort=order.value,
        page=number,
        earlier=_address(ask, number - 1) if number > 1 else "",
        later=_address(ask, number + 1) if first + A_PAGE < len(fitting) else "",
        states=tuple(sorted({row.state for row in rows})),
        phrases=tuple(sorted({row.phrase for row in rows if row.phrase})),
        blames=tuple(sorted({row.blame for row in rows if row.blame})),
        chosen=chosen,
        trouble=tuple(trouble),
    )


PAGE = Page("/jobs", "jobs.html", read, "Jobs")

_FIELDS = ("state", "class", "blame", "node", "name")
_KEYS = {
    JobSortOrder.LOST: lambda row: (-row.lost_s, -row.created),
    JobSortOrder.NEWEST: lambda row: (-row.created, row.id),
    JobSortOrder.NAME: lambda row: (row.name, -row.created),
}


def row_of(ask: PageRequest, home: Home, job: PastJob) -> JobRow:
    """Build the table row of one job."""
    view, last = job.view, job.attempts[-1].report if job.attempts else None
    first = last.first if last is not None else None
    failed = view.outcome is not Outcome.SUCCEEDED
    until = ask.now if view.ended is None else view.ended
    return JobRow(
        id=view.id,
        name=view.name,
        href=f"/job/{view.id}{ask.at(home)}",
        state=view.outcome.value if view.outcome else view.state.value,
        phrase=(view.phrase or (last.phrase if last else "")) if failed else "",
        blame=last.blame.value if last and failed else "",
        culprit=first.words if first and failed else "",
        node=first.node if first and failed else "",
        attempts=max(view.attempts, len(job.attempts)),
        dots=tuple(dot_of(record) for record in job.attempts[-MOST_DOTS:]),
        created=view.created,
        took_s=max(until - view.created, 0.0),
        lost_s=lost(job.attempts),
    )


def _cause(now: float, row: JobRow, home: Home, job: PastJob) -> str:
    if row.phrase:
        return cause_of(row.phrase, job.attempts[-1].report if job.attempts else None)
    if job.view.queued:
        return job.view.queued
    progress = progress_of(home.path, job.view)
    return progress.words(now, briefly=True) if progress is not None else ""


def dot_of(record: AttemptRecord) -> Dot:
    """Build the dot of one attempt, with a sentence about the attempt."""
    report = record.report
    match record.decision.kind:
        case DecisionKind.SUCCEED:
            kind = "ok"
        case DecisionKind.STOP:
            kind = "stopped"
        case _:
            kind = "own" if report.blame.value in ("workload", "unknown") else "else"
    text = f"attempt {record.attempt}: {report.phrase}, then {record.decision.kind.value}"
    return Dot(attempt=record.attempt, kind=kind, text=text)


def lost(attempts: Sequence[AttemptRecord]) -> float:
    """Return the seconds in attempts that failed without progress, and between attempts."""
    failed = sum(
        record.ended_at - record.started_at
        for record in attempts
        if record.decision.kind is not DecisionKind.SUCCEED and not record.progressed
    )
    gaps = (later.started_at - before.ended_at for before, later in pairwise(attempts))
    return max(failed, 0.0) + sum(max(gap, 0.0) for gap in gaps)


def _fits(row: JobRow, name: str, value: str) -> bool:
    match name:
        case "state":
            return row.state == value
        case "class":
            return row.phrase == value
        case "blame":
            return row.blame == value
        case "node":
            return row.node == value
        case _:
            return value.lower() in row.name.lower() or row.id.startswith(value)


def _order(ask: PageRequest) -> JobSortOrder:
    given = ask.query.get("sort", JobSortOrder.NEWEST.value)
    try:
        return JobSortOrder(given)
    except ValueError:
        raise BadRequest(f"`sort` is {given!r}; expected one of {', '.join(JobSortOrder)}", hint="/jobs") from None


def _number(ask: PageRequest) -> int:
    given = ask.query.get("page", "1")
    if not given.isascii() or not given.isdigit() or not 0 < int(given[:9]) < 10**8:
        raise BadRequest(f"`page` is {given!r}; expected a number from 1 on", hint="/jobs")
    return int(given[:9])


def _address(ask: PageRequest, number: int) -> str:
    return "/jobs?" + urlencode({**ask.query, "page": str(number)})
