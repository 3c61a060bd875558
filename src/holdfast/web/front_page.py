"""The first page: the last 24 hours in one sentence, what needs a person, and the running jobs."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.model.decisions import AttemptRecord
from holdfast.model.exit_report import Outcome
from holdfast.model.human_format import counted, duration
from holdfast.model.noun_base import Noun
from holdfast.node.attempt_progress import signs_of
from holdfast.record.job_directory import logs_of
from holdfast.record.job_history import PastJob
from holdfast.record.job_views import JobState
from holdfast.record.owner_lock import OwnerLiveness, life_of
from holdfast.record.state_directory import job_dir
from holdfast.report.statistics.failure_statistics import failures
from holdfast.report.statistics.goodput import goodput
from holdfast.web.attention import DAY_S, AttentionRow, devices_row, failure_rows, gone_row
from holdfast.web.jobs_page import Dot, dot_of
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.owner_view import REPLAYED, next_failure, waits
from holdfast.web.page_parts import Home, Page, PageRequest

HOUR_S = 3600.0
#: Number of hours in the strip.
HOURS = 24
MOST_RUNNING = 60
MOST_ATTENTION = 60


class DaySummary(Noun, frozen=True, kw_only=True):
    """The last 24 hours in numbers."""

    #: Jobs that ran in this time.
    runs: int = 0
    #: Jobs that ended in this time with a failure.
    failed: int = 0
    #: Jobs whose attempt failed in this time, and that holdfast restarted with success.
    recovered: int = 0
    #: Hours that were lost in this time, times the devices or workers that lost them.
    lost_h: float = 0.0
    #: `device` if every worker was bound to devices, else `worker`.
    unit: str = "worker"
    running: int = 0
    waiting: int = 0

    @property
    def sentence(self) -> str:
        short = duration(self.lost_h * 3600)
        parts = [
            counted(self.runs, "run"),
            f"{self.failed} failed",
            f"{self.recovered} recovered by {'itself' if self.recovered == 1 else 'themselves'}",
            f"{self.lost_h:.1f} {self.unit} hours lost" if self.lost_h >= 1 else f"{short} of {self.unit} time lost",
            f"{self.running} running",
            f"{self.waiting} waiting",
        ]
        return f"Last 24 h: {', '.join(parts)}."


class Hour(Noun, frozen=True, kw_only=True):
    """One hour of the strip. `at`: its beginning, in seconds since the epoch."""

    at: float
    #: Jobs that began in this hour.
    began: int = 0
    #: Attempts that failed in this hour.
    failures: int = 0
    #: Heights of the two bars, from 0 to 100.
    began_height: int = 0
    failures_height: int = 0


class Running(Noun, frozen=True, kw_only=True):
    """One job that has not ended. Times are seconds since the epoch."""

    id: str
    name: str
    href: str
    state: str
    phase: str = ""
    attempt: int = 0
    waits_for: str = ""
    created: float
    step: int | None = None
    #: Steps per second since this server first saw the attempt; None until another step is done.
    steps_per_s: float | None = None
    #: The latest time of a reported step, a line of output or an event.
    last_sign: float | None = None
    #: When the owner decides next if no event comes before, for example at the end of a pause.
    decides_at: float | None = None
    next_failure: str = ""
    dots: tuple[Dot, ...] = ()


class FrontPage(Noun, frozen=True, kw_only=True):
    """The content of the first page."""

    title: str = "Now"
    day: DaySummary = DaySummary()
    sentence: str = ""
    hours: tuple[Hour, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    more_attention: int = 0
    running: tuple[Running, ...] = ()
    more_running: int = 0
    trouble: tuple[str, ...] = ()


def read(ask: PageRequest) -> FrontPage:
    """Sum up the last day, and collect the failures and devices that need a person, and the running jobs."""
    devices: list[AttentionRow] = []
    gone: list[AttentionRow] = []
    failed: list[AttentionRow] = []
    live: list[tuple[Home, PastJob]] = []
    jobs: list[PastJob] = []
    trouble = []
    for home in ask.homes:
        history = REMEMBERED.past(home.path)
        trouble += [history.trouble] if history.trouble else []
        jobs += history.jobs
        devices += devices_row(home, ask.now)
        failed += failure_rows(ask, home, history.jobs)
        for job in history.jobs:
            if job.view.state is JobState.RUNNING and life_of(job_dir(home.path, job.view.id)) is OwnerLiveness.DEAD:
                gone.append(gone_row(ask, home, job))
            elif job.view.state is not JobState.ENDED:
                live.append((home, job))
    rows = devices + gone + sorted(failed, key=lambda row: -(row.at or 0.0))
    running = tuple(_running(ask, home, job) for home, job in live[:MOST_RUNNING])
    waiting = sum(job.view.state is JobState.QUEUED for _, job in live)
    day = _day(ask.now, jobs, running=len(live) - waiting, waiting=waiting)
    return FrontPage(
        title=f"({len(rows)}) Now" if rows else "Now",
        day=day,
        sentence=day.sentence,
        hours=_hours(ask.now, jobs),
        attention=tuple(rows[:MOST_ATTENTION]),
        more_attention=max(len(rows) - MOST_ATTENTION, 0),
        running=running,
        more_running=len(live) - len(running),
        trouble=tuple(trouble),
    )


PAGE = Page("/", "now.html", read, "Now")


def _day(now: float, jobs: Sequence[PastJob], *, running: int, waiting: int) -> DaySummary:
    since = now - DAY_S
    ran = [job for job in jobs if job.view.ended is None or job.view.ended >= since]
    recovered = {failure.job_id for failure in failures(ran) if failure.at >= since and failure.helped}
    recovered -= {job.view.id for job in ran if job.view.outcome is Outcome.FAILED}
    records = [record for job in ran for record in job.attempts if record.ended_at >= since]
    lost_s = 0.0
    for record in records:
        took_s = record.ended_at - record.started_at
        share = min((record.ended_at - since) / took_s, 1.0) if took_s > 0 else 1.0
        lost_s += share * goodput([record]).lost_s * (_devices(record) or max(record.workers, 1))
    return DaySummary(
        runs=len(ran),
        failed=sum(job.view.outcome is Outcome.FAILED for job in ran),
        recovered=len(recovered),
        lost_h=lost_s / 3600.0,
        unit="device" if records and all(map(_devices, records)) else "worker",
        running=running,
        waiting=waiting,
    )


def _devices(record: AttemptRecord) -> int:
    """Return the number of devices to which the attempt's workers were bound."""
    return len({(bound.node, device) for bound in record.bound for device in bound.devices or ()})


def _hours(now: float, jobs: Iterable[PastJob]) -> tuple[Hour, ...]:
    """Return the last 24 hours, the oldest first. The last one has just begun."""
    last = now // HOUR_S
    jobs = [*jobs]
    began = Counter(int(last - job.view.created // HOUR_S) for job in jobs)
    failed = Counter(int(last - failure.at // HOUR_S) for failure in failures(jobs))
    most = max([1, *(began[back] for back in range(HOURS)), *(failed[back] for back in range(HOURS))])
    return tuple(
        Hour(
            at=(last - back) * HOUR_S,
            began=began[back],
            failures=failed[back],
            began_height=-(-100 * began[back] // most),
            failures_height=-(-100 * failed[back] // most),
        )
        for back in reversed(range(HOURS))
    )


def _running(ask: PageRequest, home: Home, job: PastJob) -> Running:
    view = job.view
    owners = REPLAYED.view(home.path, view.id)
    attempt = owners.attempt if owners else len(job.attempts) + 1
    steps, heard = signs_of(logs_of(home.path, view.id) / f"attempt-{attempt}")
    told = [*steps.values()]
    step = min((step for step, _ in told), default=None)
    rate = None
    if step is not None:
        rate = _PACES.rate((home.path, view.id, attempt), step, max(at for _, at in told))
    signs = [*(at for _, at in told), *heard, *([owners.started_at] if owners and owners.started_at else [])]
    return Running(
        id=view.id,
        name=view.name,
        href=f"/job/{view.id}{ask.at(home)}",
        state=view.state.value,
        phase=owners.phase.value if owners else "",
        attempt=attempt,
        waits_for=waits(owners) if owners else view.queued,
        created=view.created,
        step=step,
        steps_per_s=rate,
        last_sign=max(signs, default=None),
        decides_at=owners.next_wake if owners else None,
        next_failure=next_failure(job.spec.restarts, job.attempts, ask.now) if job.spec else "",
        dots=tuple(dot_of(record) for record in job.attempts[-20:]),
    )


class _Paces:
    """Stores the step of each attempt at the time when this server first saw it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: OrderedDict[tuple[Path, str, int], tuple[int, float]] = OrderedDict()

    def rate(self, attempt: tuple[Path, str, int], step: int, at: float) -> float | None:
        """Return the steps per second since the first call of `rate` for this attempt; None until another step is
        done."""
        with self._lock:
            before, since = self._first.setdefault(attempt, (step, at))
            while len(self._first) > MOST_RUNNING * 4:
                self._first.popitem(last=False)
        return (step - before) / (at - since) if step > before and at > since else None


_PACES = _Paces()
