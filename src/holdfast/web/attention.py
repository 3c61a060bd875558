"""Lists what needs a person: failed jobs, jobs whose owner is gone, and devices that are held or isolated.

Equal failures are one row. A failure leaves the list when the same program of the same user has succeeded since, or
when the checks that failed have passed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model.check_results import ChecksTaken
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.model.failure_groups import group_of
from holdfast.model.faults import Standing
from holdfast.model.human_format import ranks
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.record.job_history import PastJob
from holdfast.record.job_views import last_reports
from holdfast.report.failure_place import FailurePlace, cause_of, scene_of
from holdfast.report.fix_words import fix_of
from holdfast.report.statistics.goodput import goodput
from holdfast.web.devices_page import devices_of
from holdfast.web.page_parts import Home, PageRequest

DAY_S = 86_400.0
#: Maximum number of jobs that are linked for a row.
FEW_JOBS = 5


class FailedRun(Noun, frozen=True, kw_only=True):
    """A job of a row. `at`: when it ended, in seconds since the epoch; if its end is unknown, when it began."""

    id: str
    name: str
    href: str
    at: float


class AttentionRow(Noun, frozen=True, kw_only=True):
    """One row of the list. Times are in seconds."""

    #: The kind of row: `failed`, `gone` or `device`.
    kind: str
    #: The names of the jobs, or the name of the device.
    name: str
    #: The exception, the class of the failure, or the device's standing.
    cause: str
    #: The place in the user's code, such as `train.py:12`.
    where: str = ""
    #: The culprit, such as `rank 3 on gpu-07`, the ranks that failed alike, or the device's node.
    culprit: str = ""
    #: The number of equal failures.
    count: int = 1
    #: The time in attempts of these jobs that was lost.
    lost_s: float = 0.0
    at: float | None = None
    #: The failure's class; empty if it has none.
    phrase: str = ""
    fault: str = ""
    reason: str = ""
    fix: str = ""
    href: str
    #: The key of the group of equal failures, for its page; empty: no group.
    group: str = ""
    #: The newest of these jobs, at most `FEW_JOBS`.
    jobs: tuple[FailedRun, ...] = ()


def devices_row(home: Home, now: float) -> Iterable[AttentionRow]:
    """Yield a row for each device that is held or isolated; the held ones first."""
    try:
        for device in sorted(devices_of(home, now), key=lambda one: one.standing is not Standing.HELD):
            if device.standing in (Standing.HELD, Standing.ISOLATED):
                yield AttentionRow(
                    kind="device",
                    name=device.name,
                    cause=device.standing.value.lower(),
                    culprit=device.node,
                    at=device.since,
                    reason=device.reason,
                    fix=f"It is used again when {device.ends}." if device.ends else "",
                    href="/devices",
                )
    except (HoldfastError, OSError):
        return  # ignore the error, which the page of devices shows


def gone_row(ask: PageRequest, home: Home, job: PastJob) -> AttentionRow:
    """Return the row of a job that is recorded as running, but whose owner is dead."""
    return AttentionRow(
        kind="gone",
        name=job.view.name,
        cause="the owner is gone",
        culprit=f"on {job.view.host}",
        at=job.view.created,
        fix="Type `holdfast jobs`: it records how the job ended.",
        href=f"/job/{job.view.id}{ask.at(home)}",
        jobs=(_run(ask, home, job),),
    )


def failure_rows(ask: PageRequest, home: Home, jobs: Sequence[PastJob]) -> list[AttentionRow]:
    """Return a row for each kind of failure of the last 24 h; the newest first. `jobs`: all jobs of the directory."""
    recent = [
        job
        for job in jobs
        if job.view.outcome is Outcome.FAILED and job.view.ended is not None and ask.now - job.view.ended <= DAY_S
    ]
    if not recent:
        return []
    repaired = _Repaired(jobs)
    recent = [job for job in recent if not repaired.since(job)]
    reports = last_reports(home.path, [job.view for job in recent])
    alike: dict[str, list[_Failure]] = {}
    for job in recent:
        report = reports.get(job.view.id) or (job.attempts[-1].report if job.attempts else None)
        failure = _Failure(job, report, job.view.phrase or "")
        alike.setdefault(failure.key, []).append(failure)
    rows = [_failure_row(ask, home, sorted(each, key=lambda one: -one.ended)) for each in alike.values()]
    return sorted(rows, key=lambda row: -(row.at or 0.0))


class _Failure(NamedTuple):
    job: PastJob
    report: ExitReport | None
    phrase: str

    @property
    def ended(self) -> float:
        return self.job.view.ended or 0.0

    @property
    def key(self) -> str:
        """The key of the group of equal failures. Failures that nobody has explained stay apart."""
        if self.report is None:
            return self.job.view.id
        return group_of(self.report.fingerprint) or f"{self.report.phrase} of {self.job.view.name}"


def _failure_row(ask: PageRequest, home: Home, equal: Sequence[_Failure]) -> AttentionRow:
    newest = equal[0]
    report, view = newest.report, newest.job.view
    place = scene_of(report, None) if report else FailurePlace()
    frame = next(iter(place.frames), report.source_lines if report else None)
    names = list(dict.fromkeys(one.job.view.name for one in equal))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return AttentionRow(
        kind="failed",
        name=", ".join(names[:2]) + more,
        cause=cause_of(newest.phrase, report) or "no reason is known",
        where=f"{PurePath(frame.path).name}:{frame.line}" if frame else "",
        culprit=_culprit(report) if report else "",
        count=len(equal),
        lost_s=sum(goodput(one.job.attempts).lost_s for one in equal),
        at=newest.ended,
        phrase=newest.phrase,
        fault=report.blame.value if report else "",
        reason=report.reason if report else "",
        fix=fix_of(report, place, view.id) if report else "",
        href=f"/job/{view.id}{ask.at(home)}",
        group=(group_of(report.fingerprint) or report.phrase) if report and newest.job.attempts else "",
        jobs=tuple(_run(ask, home, one.job) for one in equal[:FEW_JOBS]),
    )


def _culprit(report: ExitReport) -> str:
    if report.first is not None:
        return report.first.words
    return ranks(report.alike) if report.alike else ""


def _run(ask: PageRequest, home: Home, job: PastJob) -> FailedRun:
    view = job.view
    at = view.created if view.ended is None else view.ended
    return FailedRun(id=view.id, name=view.name, href=f"/job/{view.id}{ask.at(home)}", at=at)


class _Repaired:
    """Knows when each program last succeeded, and when each check last passed on each node."""

    def __init__(self, jobs: Iterable[PastJob]) -> None:
        self._succeeded: dict[tuple[object, ...], float] = {}
        self._passed: dict[tuple[str, str], float] = {}
        for job in jobs:
            if job.view.outcome is Outcome.SUCCEEDED and job.spec is not None and job.spec.directory:
                program = _program(job.spec)
                self._succeeded[program] = max(job.view.created, self._succeeded.get(program, 0.0))
            for record in job.attempts:
                for check in _checks(job, record.checks, "passed"):
                    self._passed[check] = max(record.started_at, self._passed.get(check, 0.0))

    def since(self, job: PastJob) -> bool:
        """Return whether the job's program, or all checks that stopped the job, have succeeded since the job ended."""
        ended = job.view.ended or 0.0
        if job.spec is not None and self._succeeded.get(_program(job.spec), 0.0) >= ended:
            return True
        if job.view.phrase != Phrase.CHECK_FAILED or not job.attempts:
            return False
        failed = list(_checks(job, job.attempts[-1].checks, "failed"))
        return bool(failed) and all(self._passed.get(check, 0.0) >= ended for check in failed)


def _checks(job: PastJob, taken: ChecksTaken | None, state: str) -> Iterable[tuple[str, str]]:
    """Yield the node and the name of each check that ended in this state."""
    for node, lines in taken.where(job.view.host).items() if taken is not None else ():
        yield from ((node, line.name) for line in lines if line.state == state)


def _program(spec: JobSpec) -> tuple[object, ...]:
    """Return the identity of a program: user, directory and command lines. The job's name alone is none."""
    return spec.user, spec.directory, tuple((role.name, role.command, role.script) for role in spec.roles)
