"""Implements `holdfast.jobs`: the jobs in a state directory, their reports, and their events as they happen."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.api.public_report import Report, of_job
from holdfast.errors import BadUsage
from holdfast.file_modes import open_to_others
from holdfast.main.run_guard import end_left, explain_lost
from holdfast.model.exit_report import Outcome
from holdfast.platforms.requeued_jobs import started_again
from holdfast.record.database import Unusable, open_for_reading
from holdfast.record.job_directory import logs_of
from holdfast.record.job_views import JobState, JobView, Survey, detail, reconcile
from holdfast.record.owner_lock import LOCK_NAME
from holdfast.record.state_directory import home_of, job_dir
from holdfast.report.log_follow import LogWatch
from holdfast.untrusted import Malformed, json_leniently

#: Number of events that are read at a time. It limits the memory when a reader is slow.
_MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One event of a job, from the journal."""

    #: Time of the event, in seconds since the epoch.
    at: float
    #: The event's name in lower case, such as `agent_reported` (docs/reference/records.md).
    kind: str
    #: Fields of the event, without secrets.
    data: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<holdfast.JobEvent {self.kind} at {self.at:.3f}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, with its state at the time of the call of `jobs`. Times are in seconds since the epoch."""

    id: str
    name: str
    #: `running`, `queued`, `ended`, or `out of sight` if the job runs on another machine.
    state: JobState
    created: float
    ended: float | None
    #: The result; None until the job has ended.
    outcome: Outcome | None
    code: int | None
    #: The failure class; empty until the job has ended.
    phrase: str
    #: Number of attempts that have ended.
    attempts: int
    home: Path = field(repr=False)
    _view: JobView = field(repr=False, compare=False)

    @property
    def report(self) -> Report | None:
        """The report on the job's end, which each access reads again.

        None if the job has not ended, or if its report is lost.
        """
        found = _look(self.home)
        view = next((view for view in found.jobs if view.id == self.id), self._view)
        report = detail(found, view).report
        return of_job(report, logs_of(self.home, self.id)) if report is not None else None

    def events(self, *, follow: bool = False) -> Iterator[JobEvent]:
        """Yield the events so far, in order. `follow`: continue with later events until the job has ended.

        The iterator only reads the journal, so it cannot delay the job. An event may arrive slightly late. A job on
        another machine cannot be followed, so the iterator ends after the events so far. It also ends at a damaged part
        of the journal.
        """
        lock = job_dir(self.home, self.id) / LOCK_NAME
        if not follow or self.state is not JobState.RUNNING:
            yield from _after(self.home, self.id, [0])
            return
        with LogWatch(lock) as watch:
            watch.add(self.home)
            seen = [0]
            going = True
            while going:
                yield from _after(self.home, self.id, seen)
                going = watch.wait() is not None
            yield from _after(self.home, self.id, seen)


def jobs(home: str | Path | None = None) -> tuple[Job, ...]:
    """Return the jobs in the state directory, the newest first.

    `home`: path of the state directory; None: the same default as for the command `holdfast`. A job whose owner has
        died is closed, as by `holdfast jobs`. Trouble with the journal causes a `UserWarning`.
    Raises `BadUsage` if other users can write to the directory.
    """
    where = Path(home).expanduser().absolute() if home is not None else home_of(os.environ)
    found = _look(where)
    if found.trouble:
        warnings.warn(found.trouble, stacklevel=2)
    return tuple(
        Job(
            id=view.id,
            name=view.name,
            state=view.state,
            created=view.created,
            ended=view.ended,
            outcome=view.outcome,
            code=view.code,
            phrase=view.phrase or "",
            attempts=view.attempts,
            home=where,
            _view=view,
        )
        for view in found.jobs
    )


def _look(home: Path) -> Survey:
    if why := open_to_others(home):
        raise BadUsage(f"the state directory is not used: {why}", hint=f"ls -ld {home}")
    return reconcile(home, explain_lost, end_left=end_left, in_queue=started_again)


def _after(home: Path, job: str, seen: list[int]) -> Iterator[JobEvent]:
    """Yield the job's events after the event with the number `seen[0]`.

    Each yielded event stores its number in `seen[0]`.
    """
    import sqlite3

    while True:
        try:
            db = open_for_reading(home)
            if db is None:
                return
            try:
                rows = db.execute(
                    "SELECT seq, now, event FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (job, seen[0], _MOST_AT_ONCE),
                ).fetchall()
            finally:
                db.close()
            for number, at, blob in rows:
                whole = json_leniently(blob)
                if not isinstance(whole, dict):
                    return
                seen[0] = number
                kind = str(whole.pop("type", ""))
                yield JobEvent(at=at, kind=kind, data=MappingProxyType(whole))
        except (sqlite3.Error, Malformed, Unusable):
            return
        if len(rows) < _MOST_AT_ONCE:
            return
