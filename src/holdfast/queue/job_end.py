"""Ends a job of the queue that could not be started: writes its report, as the job's owner would."""

from __future__ import annotations

from pathlib import Path

from holdfast.explain.causes.unstarted_job import explain_unstarted
from holdfast.model.decisions import JobReport
from holdfast.model.exit_report import Outcome
from holdfast.queue.core_records import RecordedJob
from holdfast.record import report_file
from holdfast.record.journal import Journal
from holdfast.record.owner_lock import OwnerLock, read_owner
from holdfast.record.state_directory import job_dir


def end_unstarted(home: Path, job: RecordedJob, why: str, now: float) -> None:
    """Record the end of a job whose command could not be started. `why`: the reason, as a clause. `now`: seconds since
    the epoch.
    """
    found = JobReport(job_id=job.id, name=job.name, outcome=Outcome.FAILED, report=explain_unstarted(why))
    directory = job_dir(home, job.id)
    before = read_owner(directory)
    if before is not None:
        try:
            lock = OwnerLock.take(directory, before)
            lock.note_queued("")
            lock.release()
        except OSError:
            pass  # the directory was removed; the journal has the end
    journal = Journal.open(home)
    try:
        journal.finish(found, now=now)
    finally:
        journal.close()
    try:
        report_file.write(home, found)
    except OSError:
        pass  # the journal has the report
