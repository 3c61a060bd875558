"""Lists jobs from the journal and the job directories, without blocking any writer.

The journal is the main source. But a job's directory alone (its lock file, its `report.json`) suffices too, so a job is
listed even if the journal could not be written.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.codec import decode_event
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.events import Event
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.record import report_file
from holdfast.record.database import FILE_NAME, Unusable, describe, open_for_reading, unusable
from holdfast.record.journal import Journal
from holdfast.record.lost_owner_report import ExplainLoss, OwnerEnd, report_of_loss
from holdfast.record.owner_address import note_in
from holdfast.record.owner_lock import LOCK_NAME, OwnerInfo, OwnerLiveness, boot_id, life_of, read_owner
from holdfast.record.state_directory import job_dir
from holdfast.untrusted import Malformed, convert, json_as, wrong_time

if TYPE_CHECKING:
    import sqlite3


class JobState(enum.StrEnum):
    RUNNING = "running"
    #: The platform will start the job again. The job has no owner until then.
    QUEUED = "queued"
    ENDED = "ended"
    #: The owner ran on another machine, so this machine cannot know whether the job still runs.
    OUT_OF_SIGHT = "out of sight"


class JobView(Noun, frozen=True, kw_only=True):
    """One job in the list of `holdfast jobs`. Times are in seconds since the epoch."""

    id: str
    name: str
    created: float
    host: str
    pid: int
    state: JobState
    ended: float | None = None
    outcome: Outcome | None = None
    code: int | None = None
    phrase: str | None = None
    attempts: int = 0
    #: The platform's names for the job; None: no platform has started it.
    platform: PlatformJob | None = None
    #: Why the job waits for the platform to start it again; empty: it does not wait.
    queued: str = ""


class _Spec(Noun, frozen=True, kw_only=True):
    """The fields of a job's stored specification that the list of jobs needs."""

    platform: PlatformJob | None = None


class _LastReport(Noun, frozen=True, kw_only=True):
    """The part of a job's report that the list of jobs needs."""

    report: ExitReport


class Survey(Noun, frozen=True, kw_only=True):
    """All jobs of a state directory, the newest first. `trouble`: the journal's failure, if any. `newly_lost`: the
    reports of jobs that were closed as lost just now.
    """

    home: Path
    jobs: tuple[JobView, ...]
    trouble: str = ""
    newly_lost: tuple[JobReport, ...] = ()


class JobDetail(Noun, frozen=True, kw_only=True):
    """All records of one job. `report`: None while the job runs. `attempts`: the ended attempts."""

    view: JobView
    report: JobReport | None
    attempts: tuple[AttemptRecord, ...]


def reconcile(
    home: Path,
    explain: ExplainLoss,
    ending: OwnerEnd | None = None,
    *,
    end_left: Callable[[str], frozenset[int]] | None = None,
    dropped: Mapping[str, str] | None = None,
    in_queue: Callable[[Sequence[JobView]], Mapping[str, str]] | None = None,
) -> Survey:
    """List every job under `home`, and record the end of each job whose owner has died.

    A failure of the journal raises no exception. The jobs are then read from their directories, and the result reports
    the failure.

    explain: makes the report for a lost job that has none.
    ending: how one owner on this machine ended, from the process that reaped it. It gives the exact cause and time.
    end_left: called with the id of a lost job; kills the processes in its control groups, and returns their pids.
    dropped: jobs without a visible owner that their platform no longer knows. Maps the job's id to who ended the job
        there.
    in_queue: called with jobs that look lost; returns those that their platform will restart. Maps the job's id to the
        reason.
    """
    jobs, trouble = _read_jobs(home)
    gone = [view for view in jobs.values() if view.state is JobState.RUNNING and _is_gone(home, view)]
    if in_queue is not None and (started := [view for view in gone if view.platform is not None]):
        again = in_queue(started)
        jobs |= {
            view.id: msgspec.structs.replace(view, state=JobState.QUEUED, queued=again[view.id])
            for view in started
            if view.id in again
        }
        gone = [view for view in gone if view.id not in again]
    unseen = (JobState.QUEUED, JobState.OUT_OF_SIGHT)
    gone += [view for view in jobs.values() if view.state in unseen and view.id in (dropped or {})]
    lost: list[JobReport] = []
    if gone:
        journal = Journal.open(home, consequence="how the jobs below ended is found anew each time until it can")
        try:
            for view in gone:
                by = (dropped or {}).get(view.id, "")
                report, ended, found_late = _close(home, journal, view, explain, ending, end_left, by)
                jobs[view.id] = _ended(view, report, ended)
                if found_late:
                    lost.append(report)
        finally:
            journal.close()
        trouble = trouble or journal.trouble
    return Survey(home=home, jobs=_newest_first(jobs), trouble=trouble, newly_lost=tuple(lost))


def look(home: Path) -> Survey:
    """List every job under `home` without writing. A job whose owner has died is not closed."""
    jobs, trouble = _read_jobs(home)
    return Survey(home=home, jobs=_newest_first(jobs), trouble=trouble)


def look_at(home: Path, job_id: str) -> JobView | None:
    """Return one job of the journal, as `look` does; None if the journal does not have it or cannot be read."""
    with contextlib.suppress(Unusable, UnicodeError):
        db = open_for_reading(home)
        if db is not None:
            try:
                view = _rows(db, job_id).get(job_id)
            finally:
                db.close()
            return _as_it_stands(home, view) if view is not None and view.state is JobState.RUNNING else view
    return None


def _newest_first(jobs: Mapping[str, JobView]) -> tuple[JobView, ...]:
    return tuple(sorted(jobs.values(), key=lambda view: (view.created, view.id), reverse=True))


def detail(survey: Survey, view: JobView) -> JobDetail:
    """Return all records of one job from the journal, or else from the job's directory."""
    report: JobReport | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    with_db = _open_quietly(survey.home)
    if with_db is not None:
        try:
            report, attempts = _stored(with_db, view.id)
        finally:
            with_db.close()
    if report is None and view.state is JobState.ENDED:
        report = report_file.read(survey.home, view.id)
    for found in survey.newly_lost:
        if report is None and found.job_id == view.id:
            report = found
    if report is not None:
        attempts = report.attempts or attempts
    return JobDetail(view=view, report=report, attempts=attempts)


def last_reports(home: Path, views: Sequence[JobView]) -> dict[str, ExitReport]:
    """Return job id → the final explanation of the job. Jobs that are not in the journal are left out."""
    db = _open_quietly(home)
    if db is None:
        return {}
    found = {}
    try:
        for view in views:
            row = db.execute("SELECT report FROM jobs WHERE id = ?", (view.id,)).fetchone()
            if row and row[0]:
                found[view.id] = json_as(row[0], _LastReport).report
    except (sqlite3.Error, Malformed, TypeError):
        pass  # ignore the error: the other jobs' rows then show only the class of their failure
    finally:
        db.close()
    return found


def events(home: Path, job_id: str) -> Iterator[tuple[float, Event]]:
    """Yield the job's events in order, as (time, event); none if the journal does not have the job.

    Stop at the first damaged event.
    """
    return ((now, event) for _, now, event in events_after(home, job_id, 0))


def events_after(home: Path, job_id: str, seq: int) -> Iterator[tuple[int, float, Event]]:
    """Yield the events of a job after the sequence number `seq`, as (sequence number, time, event)."""
    db = _open_quietly(home)
    if db is None:
        return
    try:
        rows = db.execute("SELECT seq, now, event FROM events WHERE job = ? AND seq > ? ORDER BY seq", (job_id, seq))
        yield from ((number, now, decode_event(blob)) for number, now, blob in rows)
    except (sqlite3.Error, Malformed):
        return
    finally:
        db.close()


def _read_jobs(home: Path) -> tuple[dict[str, JobView], str]:
    jobs: dict[str, JobView] = {}
    trouble = ""
    try:
        db = open_for_reading(home)
        if db is not None:
            try:
                jobs = _rows(db)
            finally:
                db.close()
    except Unusable as error:
        consequence = "what is shown here comes from the job directories alone"
        trouble = describe(error, home / FILE_NAME, consequence)
    try:
        directories = sorted(entry for entry in (home / "jobs").iterdir() if entry.name not in jobs)
    except OSError:
        directories = []
    unread = []
    for directory in directories:
        if view := _from_directory(home, directory):
            jobs[view.id] = view
        elif any((directory / name).exists() for name in (LOCK_NAME, report_file.FILE_NAME)):
            unread.append(str(directory))
    if unread:
        more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
        left_out = f"left out, since what lies there cannot be read: {', '.join(unread[:3])}{more}"
        trouble = f"{trouble}\n{left_out}" if trouble else left_out
    for view in list(jobs.values()):
        if view.state is JobState.RUNNING:
            jobs[view.id] = _as_it_stands(home, view)
    return jobs, trouble


def _as_it_stands(home: Path, view: JobView) -> JobView:
    """Return the view of a job without a recorded end. Its state follows from its owner's lock: running, queued, or out
    of sight (on another machine).
    """
    directory = job_dir(home, view.id)
    life = life_of(directory)
    owner = read_owner(directory) if view.platform is not None and life is not OwnerLiveness.ALIVE else None
    if owner is not None and owner.queued:
        return msgspec.structs.replace(view, state=JobState.QUEUED, queued=owner.queued)
    return msgspec.structs.replace(view, state=JobState.OUT_OF_SIGHT) if life is OwnerLiveness.OUT_OF_SIGHT else view


def _rows(db: sqlite3.Connection, job_id: str | None = None) -> dict[str, JobView]:
    """Return id → job, for all jobs of the journal or for one."""
    one = (" WHERE id = ?", (job_id,)) if job_id is not None else ("", ())
    try:
        rows = db.execute(
            "SELECT id, name, created, host, pid, ended, outcome, code, phrase,"
            " (SELECT count(*) FROM attempts WHERE attempts.job = jobs.id), spec FROM jobs" + one[0],
            one[1],
        ).fetchall()
    except sqlite3.Error as error:
        raise unusable(error) from error
    names = ("id", "name", "created", "host", "pid", "ended", "outcome", "code", "phrase")
    views = {}
    for row in rows:
        state = JobState.RUNNING if row[5] is None else JobState.ENDED
        known = dict(zip(names, row, strict=False))
        try:
            # Skip a row on a damaged page. The job is then listed from its directory.
            view = convert({**known, "outcome": row[6] or None, "state": state, "attempts": row[9]}, JobView)
            if row[10]:
                view = msgspec.structs.replace(view, platform=json_as(row[10], _Spec).platform)
        except Malformed:
            continue
        if _names_a_directory(view.id):
            views[view.id] = view
    return views


def _names_a_directory(job_id: str) -> bool:
    """Return whether the id is safe as the name of a directory."""
    fits = 0 < len(job_id.encode(errors="replace")) < 256
    return fits and not {"/", "\0"} & set(job_id) and job_id not in (".", "..")


def _from_directory(home: Path, directory: Path) -> JobView | None:
    """Return the view of a job that the journal does not have; None if its directory cannot be read."""
    supervisor = read_owner(directory)
    # Read only a report in the job's directory. If the disk was full and the owner wrote it elsewhere, the job counts
    # as not ended; closing it copies the report to its directory.
    report = report_file.read_in_place(home, directory.name)
    if supervisor is None and report is None:
        return _of_note(directory)
    view = JobView(
        id=directory.name,
        name=report.name if report else supervisor.name if supervisor else "",
        created=supervisor.created
        if supervisor
        else report.attempts[0].started_at
        if report and report.attempts
        else 0.0,
        host=supervisor.host if supervisor else "",
        pid=supervisor.pid if supervisor else 0,
        state=JobState.RUNNING,
        platform=supervisor.platform if supervisor else None,
    )
    if report is None:
        return view
    return _ended(view, report, _end_of(report, view))


def _of_note(directory: Path) -> JobView | None:
    """Return the view of a job with an owner on another machine, from the note of an agent on this machine."""
    note = note_in(directory)
    if note is None or note.job_id != directory.name or wrong_time(note.began):
        return None
    return JobView(
        id=note.job_id, name=note.name, created=note.began, host=note.owner, pid=0, state=JobState.OUT_OF_SIGHT
    )


def _ended(view: JobView, report: JobReport, ended: float) -> JobView:
    return msgspec.structs.replace(
        view,
        state=JobState.ENDED,
        ended=ended,
        outcome=report.outcome,
        code=report.report.code,
        phrase=report.report.phrase,
        attempts=len(report.attempts),
        queued="",
    )


def _end_of(report: JobReport, view: JobView) -> float:
    return report.attempts[-1].ended_at if report.attempts else view.created


def _is_gone(home: Path, view: JobView) -> bool:
    match life_of(job_dir(home, view.id)):
        case OwnerLiveness.DEAD:
            return True
        case OwnerLiveness.UNKNOWN:
            # The job's directory was removed by hand. If a process has the owner's pid, assume that the job runs,
            # although the process may be another one by now.
            return view.host == socket.gethostname() and not Path(f"/proc/{view.pid}").exists()
        case _:
            return False


def _close(
    home: Path,
    journal: Journal,
    view: JobView,
    explain: ExplainLoss,
    ending: OwnerEnd | None,
    end_left: Callable[[str], frozenset[int]] | None,
    dropped: str,
) -> tuple[JobReport, float, bool]:
    """Record the end of a job whose owner has died.

    Return the report, the time of the job's end, and whether this call made the report because the owner left none.
    `explain`, `ending`, `end_left`, `dropped`: as for `report_of_loss`.
    """
    supervisor = read_owner(job_dir(home, view.id))
    if supervisor is None or supervisor.job_id != view.id:  # the lock file is missing, or belongs to another job
        supervisor = OwnerInfo(job_id=view.id, name=view.name, host=view.host, pid=view.pid, created=view.created)
    # If its owner could not write to the journal, a job may have ended normally without an end in the journal.
    left = report_file.read(home, view.id)
    if left is not None:
        ended = _end_of(left, view)
        journal.close_job_of_another(left, supervisor, ended=ended)
        if supervisor.report:
            _bring_home(home, left)
        return left, ended, False
    attempts: tuple[AttemptRecord, ...] = ()
    db = _open_quietly(home)
    if db is not None:
        try:
            # The owner may have recorded the job's end after the list of jobs was read.
            finished, attempts = _stored(db, view.id)
        finally:
            db.close()
        if finished is not None:
            return finished, _end_of(finished, view), False
    known = ending if ending is not None and ending.pid == supervisor.pid else None
    history = list(events(home, view.id))
    report, ended = report_of_loss(
        home,
        supervisor,
        history,
        attempts,
        explain,
        boot_id=boot_id(),
        ending=known,
        end_left=end_left,
        dropped=dropped,
    )
    journal.close_job_of_another(report, supervisor, ended=ended)
    try:
        report_file.write(home, report)
    except OSError:
        # The journal has the report. If the journal failed too, the next call closes the job again.
        pass
    return report, ended, True


def _bring_home(home: Path, report: JobReport) -> None:
    """Copy a report that the owner wrote elsewhere to the job's directory, if that is writable again."""
    try:
        report_file.write(home, report)
    except OSError:
        # The disk is still full, so the report stays elsewhere, and `report_file.read` finds it there.
        pass


def _stored(db: sqlite3.Connection, job_id: str) -> tuple[JobReport | None, tuple[AttemptRecord, ...]]:
    try:
        row = db.execute("SELECT report FROM jobs WHERE id = ?", (job_id,)).fetchone()
        records = db.execute("SELECT record FROM attempts WHERE job = ? ORDER BY attempt", (job_id,)).fetchall()
        report = json_as(row[0], JobReport) if row and row[0] else None
        return report, tuple(json_as(record, AttemptRecord) for (record,) in records)
    except (sqlite3.Error, Malformed, TypeError):
        return None, ()


def _open_quietly(home: Path) -> sqlite3.Connection | None:
    try:
        return open_for_reading(home)
    except Unusable:
        return None  # the caller has already reported the journal's failure
