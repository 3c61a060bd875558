"""Gauges of the present state: jobs that have not ended, results of the last checks, and devices."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.recovery.restart_budgets import failures_in_row, spent_restarts
from holdfast.errors import HoldfastError
from holdfast.metrics import metric_table as m
from holdfast.metrics.job_totals import CHECKED, LabelNames, count_restart, mode_of
from holdfast.metrics.samples import Samples
from holdfast.model.codec import decode_event
from holdfast.model.events import AgentReported
from holdfast.model.faults import Standing, is_verdict_of_a_check
from holdfast.model.gang_protocol import Report
from holdfast.node.attempt_progress import signs_of
from holdfast.node.devices.fault_log import FaultLog
from holdfast.record.database import Unusable, open_for_reading
from holdfast.record.job_directory import logs_of
from holdfast.record.job_history import PastJob
from holdfast.record.job_views import JobState
from holdfast.untrusted import Malformed

if TYPE_CHECKING:
    import sqlite3

#: Maximum number of unfinished jobs with gauges. The newest jobs are chosen.
MOST_LIVE = 200
#: Maximum number of gauges for checks. Each combination of a node and a check has one.
MOST_CHECKED = 2000
MOST_DEVICES = 2000

_STATES = tuple(state.value.replace(" ", "_") for state in JobState if state is not JobState.ENDED)
_STANDINGS = tuple(standing.value for standing in Standing)
# The last report of each node: SQLite takes the other columns from the row that has max().
_REPORTS = (
    'SELECT event, max(seq) FROM events WHERE job = ? AND CAST(event AS TEXT) LIKE \'{"type":"agent_reported%\''
    " GROUP BY json_extract(CAST(event AS TEXT), '$.report.node')"
)


def jobs_now(home: Path, jobs: Sequence[PastJob], into: Samples, names: LabelNames) -> None:
    """Set the gauges of unfinished jobs, and count the restart that led to each job's present attempt.

    `jobs`: the newest first. `into`: receives the values. `names`: the job names that may be label values.
    """
    live = [job for job in jobs if job.view.state is not JobState.ENDED][:MOST_LIVE]
    if not live:
        return
    db = None
    with contextlib.suppress(Unusable):  # `job_history` has already reported an unusable journal
        db = open_for_reading(home)
    try:
        for job in live:
            _job(home, db, job, into, names)
    finally:
        if db is not None:
            db.close()


def _job(home: Path, db: sqlite3.Connection | None, job: PastJob, into: Samples, names: LabelNames) -> None:
    view = job.view
    who = (view.name, view.id)
    into.states(m.JOB_STATE, _STATES, view.state.value.replace(" ", "_"), *who)
    into.set(m.JOB_START, view.created, *who)
    reports = _last_reports(db, view.id) if db is not None else []
    attempt = max([report.attempt for report in reports], default=len(job.attempts) + 1)
    into.set(m.JOB_ATTEMPT, float(attempt), *who)
    members = [member for report in reports if report.attempt == attempt for member in report.members]
    if job.attempts and attempt > job.attempts[-1].attempt and members:
        mode = mode_of(all(member.warm for member in members))
        count_restart(job.attempts[-1], names.label(view.name), mode, into)
    workers: dict[str, int] = {}
    for member in members:
        workers[member.state.value] = workers.get(member.state.value, 0) + 1
    for state, number in sorted(workers.items()):
        into.set(m.WORKERS, float(number), *who, state)
    if job.spec is not None:
        policy = job.spec.restarts
        left = {
            "user": policy.max_restarts - spent_restarts(job.attempts, charged=True, restored=False),
            "platform": policy.platform_max_restarts - spent_restarts(job.attempts, charged=False, restored=False),
            "in_a_row": policy.max_in_a_row - failures_in_row(job.attempts),
        }
        for budget, number in left.items():
            into.set(m.BUDGET, float(max(number, 0)), *who, budget)
    told = [*signs_of(logs_of(home, view.id) / f"attempt-{attempt}")[0].values()]
    if told:
        into.set(m.STEP, float(min(step for step, _ in told)), *who)
        into.set(m.PROGRESS_AT, max(at for _, at in told), *who)


def _last_reports(db: sqlite3.Connection, job_id: str) -> list[Report]:
    import sqlite3

    found = []
    try:
        for blob, _ in db.execute(_REPORTS, (job_id,)):
            with contextlib.suppress(Malformed):  # skip only the damaged row
                event = decode_event(blob)
                if isinstance(event, AgentReported):
                    found.append(event.report)
    except sqlite3.Error:
        pass  # a database page is damaged; the rows that were read before are used
    return found


def checks_now(jobs: Iterable[PastJob], into: Samples) -> None:
    """Set the gauges for the last result of each check before an attempt.

    `jobs`: the newest first. `into`: receives the values.
    """
    seen: set[tuple[str, str]] = set()
    for job in jobs:
        for record in reversed(job.attempts):
            if record.checks is None or record.checks.reused:
                continue
            for node, line in ((n, each) for n, own in record.checks.where(job.view.host).items() for each in own):
                key = (node, line.name)
                if line.state not in CHECKED or key in seen or len(seen) >= MOST_CHECKED:
                    continue
                seen.add(key)
                into.set(m.CHECK_UP, float(CHECKED[line.state] != "failed"), *key)
                into.set(m.CHECK_SECONDS, line.took_s, *key)
                into.set(m.CHECK_AT, record.started_at, *key)


def devices_now(home: Path, now: float, into: Samples) -> None:
    """Set the gauges of each device that was ever reported on this machine. `now`: seconds since the epoch."""
    try:
        with FaultLog(home, Policy(), now, writable=False, keep=True) as log:
            standings = log.standings()
    except (HoldfastError, OSError):
        return  # the list of devices is missing or unreadable; `holdfast devices` reports why
    here = os.uname().nodename
    for known in [one for one in standings if not is_verdict_of_a_check(one.codes)][:MOST_DEVICES]:
        who = (known.node or here, known.device)
        into.states(m.STANDING, _STANDINGS, known.standing.value, *who)
        if known.since is not None:
            into.set(m.STANDING_SINCE, known.since, *who)
