"""The first page: jobs and devices that need a person's attention, and running jobs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.model.exit_report import Outcome
from holdfast.model.faults import Standing
from holdfast.model.noun_base import Noun
from holdfast.node.attempt_progress import signs_of
from holdfast.record.job_directory import logs_of
from holdfast.record.job_history import PastJob
from holdfast.record.job_views import JobState
from holdfast.record.owner_lock import OwnerLiveness, life_of
from holdfast.record.state_directory import job_dir
from holdfast.web.devices_page import devices_of
from holdfast.web.jobs_page import Dot, dot_of
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.owner_view import REPLAYED, next_failure, waits
from holdfast.web.page_parts import Home, Page, PageRequest

DAY_S = 86_400.0
MOST_RUNNING = 60
MOST_WANTED = 60


class AttentionItem(Noun, frozen=True, kw_only=True):
    """One entry that a person has to act on."""

    #: The kind of entry: `failed`, `gone`, `device` or `check`.
    kind: str
    at: float | None = None
    what: str
    to_do: str = ""
    href: str


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

    title: str = "FrontPage"
    wants: tuple[AttentionItem, ...] = ()
    more_wants: int = 0
    running: tuple[Running, ...] = ()
    more_running: int = 0
    trouble: tuple[str, ...] = ()


def read(ask: PageRequest) -> FrontPage:
    """Collect the jobs and devices that need a person's attention, and the running jobs."""
    wants: list[AttentionItem] = []
    running: list[Running] = []
    trouble = []
    live = 0
    for home in ask.homes:
        history = REMEMBERED.past(home.path)
        trouble += [history.trouble] if history.trouble else []
        wants += _devices(home, ask.now)
        for job in history.jobs:
            if job.view.state is JobState.ENDED:
                wants += _ended(ask, home, job)
                continue
            gone = job.view.state is JobState.RUNNING and life_of(job_dir(home.path, job.view.id)) is OwnerLiveness.DEAD
            if gone:
                wants.append(
                    AttentionItem(
                        kind="gone",
                        what=f"job {job.view.name}: the process that looked after it is gone",
                        to_do="Type `holdfast jobs`: it writes down how the job ended.",
                        href=f"/job/{job.view.id}{ask.at(home)}",
                    )
                )
                continue
            live += 1
            if len(running) < MOST_RUNNING:
                running.append(_running(ask, home, job))
    return FrontPage(
        wants=tuple(wants[:MOST_WANTED]),
        more_wants=max(len(wants) - MOST_WANTED, 0),
        running=tuple(running),
        more_running=live - len(running),
        trouble=tuple(trouble),
    )


PAGE = Page("/", "now.html", read, "Now")


def _devices(home: Home, now: float) -> Iterable[AttentionItem]:
    try:
        for device in sorted(devices_of(home, now), key=lambda one: one.standing is not Standing.HELD):
            if device.standing in (Standing.HELD, Standing.ISOLATED):
                yield AttentionItem(
                    kind="device",
                    at=device.since,
                    what=f"{device.name} on {device.node} is {device.standing.value}",
                    to_do=f"{device.reason}. What ends it: {device.ends}." if device.reason else "",
                    href="/devices",
                )
    except (HoldfastError, OSError):
        return  # ignore the error, which the page of devices shows


def _ended(ask: PageRequest, home: Home, job: PastJob) -> Iterable[AttentionItem]:
    """Yield an item for a job that failed within the last day, and for failed checks that prevented its start."""
    view = job.view
    if view.outcome is not Outcome.FAILED or view.ended is None or ask.now - view.ended > DAY_S:
        return
    last = job.attempts[-1] if job.attempts else None
    if last is not None and last.checks is not None:
        for line in last.checks.checks:
            if line.state == "failed":
                what = f"check {line.name} failed on {view.host}: {line.message}"
                yield AttentionItem(kind="check", at=view.ended, what=what, href="/checks")
    what = f"job {view.name} stopped for good: {last.report.reason if last else view.phrase or 'no reason is known'}"
    to_do = last.report.solution if last else ""
    yield AttentionItem(kind="failed", at=view.ended, what=what, to_do=to_do, href=f"/job/{view.id}{ask.at(home)}")


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
