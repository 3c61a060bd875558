"""Reads all jobs of a state directory with their attempts, for statistics, metrics and web pages.

It writes nothing. A job whose owner has died keeps its last known state until `holdfast jobs` closes it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.decisions import AttemptRecord
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.record import report_file
from holdfast.record.database import Unusable, open_for_reading
from holdfast.record.job_views import JobState, JobView, look
from holdfast.untrusted import Malformed, json_as

if TYPE_CHECKING:
    import sqlite3

#: Maximum number of jobs to read, the newest first. Older jobs stay in the journal, but are not in the statistics.
MOST_JOBS = 5_000


MOST_ASKED = 200


class PastJob(Noun, frozen=True, kw_only=True):
    """One job: its row in the list of jobs, its specification, and its ended attempts. Times are in seconds since the
    epoch.
    """

    view: JobView
    attempts: tuple[AttemptRecord, ...] = ()
    #: The job's specification; None if the journal does not have it.
    spec: JobSpec | None = None


class JobHistory(Noun, frozen=True, kw_only=True):
    """The jobs of a state directory, the newest first, and the journal's failure, if any."""

    home: Path
    jobs: tuple[PastJob, ...]
    trouble: str = ""
    #: The number of older jobs that were not read.
    left_out: int = 0


def job_history(home: Path, *, most: int | None = MOST_JOBS, before: JobHistory | None = None) -> JobHistory:
    """Read the newest `most` jobs with their attempts. `most` None: read all jobs.

    A damaged journal raises no exception; the result's `trouble` explains the damage.

    before: an earlier result for the same directory. Jobs that had ended then are not read again.
    """
    survey = look(home)
    kept = survey.jobs[:most]
    over = {job.view: job for job in before.jobs if job.view.ended is not None} if before is not None else {}
    attempts: dict[str, list[AttemptRecord]] = {}
    specs: dict[str, JobSpec] = {}
    db = None
    with contextlib.suppress(Unusable):  # the result of `look` already reports the journal's failure
        db = open_for_reading(home)
    if db is not None:
        try:
            wanted = {view.id for view in kept if view not in over}
            attempts, specs = _attempts(db, wanted), _specs(db, wanted)
        finally:
            db.close()
    jobs = []
    for view in kept:
        if (known := over.get(view)) is not None:
            jobs.append(known)
            continue
        records = tuple(attempts.get(view.id, ()))
        if not records and view.state is JobState.ENDED and (report := report_file.read(home, view.id)):
            records = report.attempts
        jobs.append(PastJob(view=view, attempts=records, spec=specs.get(view.id)))
    return JobHistory(home=home, jobs=tuple(jobs), trouble=survey.trouble, left_out=len(survey.jobs) - len(kept))


def _attempts(db: sqlite3.Connection, wanted: set[str]) -> dict[str, list[AttemptRecord]]:
    found: dict[str, list[AttemptRecord]] = {}
    try:
        for job, record in _of_jobs(db, "SELECT job, record FROM attempts{} ORDER BY job, attempt", "job", wanted):
            if job in wanted:
                with contextlib.suppress(Malformed):  # skip only the damaged record of an attempt
                    found.setdefault(job, []).append(json_as(record, AttemptRecord))
    except sqlite3.Error:
        pass  # a page of the database is damaged: use the records read so far
    return found


def _of_jobs(db: sqlite3.Connection, sql: str, column: str, wanted: set[str]) -> sqlite3.Cursor:
    """Select the rows of these jobs.

    For more than `MOST_ASKED` jobs read the whole table. `sql`: the query; the condition is inserted into it. `column`:
    the column with the job's id. `wanted`: the jobs' ids.
    """
    if len(wanted) > MOST_ASKED:
        return db.execute(sql.format(""))
    marks = ", ".join("?" * len(wanted))
    return db.execute(sql.format(f" WHERE {column} IN ({marks})"), tuple(wanted))


def _specs(db: sqlite3.Connection, wanted: set[str]) -> dict[str, JobSpec]:
    found: dict[str, JobSpec] = {}
    try:
        for job, spec in _of_jobs(db, "SELECT id, spec FROM jobs{}", "id", wanted):
            if job in wanted and spec:
                with contextlib.suppress(Malformed):  # skip only the specification that is damaged
                    found[job] = json_as(spec, JobSpec)
    except sqlite3.Error:
        pass  # a page of the database is damaged: use the specifications read so far
    return found
