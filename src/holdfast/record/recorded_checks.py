"""Reads the results of jobs' pre-checks from the journal, also while the checks run."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.check_results import ChecksTaken, CheckState
from holdfast.model.codec import decode_event
from holdfast.model.events import ChecksFinished, ChecksMoved
from holdfast.record.database import Unusable, open_for_reading
from holdfast.record.job_views import JobState, JobView

_LAST = (
    "SELECT event FROM events WHERE job = ? AND"
    ' CAST(event AS TEXT) LIKE \'{"type":"checks_%\' ORDER BY seq DESC LIMIT 1'
)

_OF_REPORT = "SELECT id, json_extract(report, '$.attempts[#-1].checks.state') FROM jobs WHERE report IS NOT NULL"


def last_round(home: Path, job_id: str) -> ChecksTaken | None:
    """Return the last round of checks that the job's owner has recorded; None if it has recorded none."""
    try:
        db = open_for_reading(home)
    except Unusable:
        return None  # the caller has already reported the journal's failure
    if db is None:
        return None
    try:
        return last_round_in(db, job_id)
    finally:
        db.close()


def last_round_in(db: sqlite3.Connection, job_id: str) -> ChecksTaken | None:
    """Return a job's last round of checks in an open journal; None if there is none."""
    try:
        row = db.execute(_LAST, (job_id,)).fetchone()
        event = decode_event(row[0]) if row else None
    except (sqlite3.Error, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    match event:
        case ChecksMoved():
            return event.taken
        case ChecksFinished():
            return event.taken or ChecksTaken(state=event.state)
        case _:
            return None


def check_states(home: Path, views: Sequence[JobView]) -> Mapping[str, str]:
    """Return the state of each job's last pre-checks, by job id: DISABLED, CHECKING, FAIL or PASS.

    If a running job has no recorded round of checks, its state is CHECKING.
    """
    found: dict[str, str] = {}
    try:
        db = open_for_reading(home)
    except Unusable:
        return found
    if db is None:
        return found
    try:
        found = {job: state for job, state in db.execute(_OF_REPORT) if state}
        for view in views:
            if view.state is JobState.RUNNING:
                taken = last_round_in(db, view.id)
                found[view.id] = (taken.state if taken else CheckState.CHECKING).value
    except sqlite3.Error:
        return found  # this SQLite lacks JSON functions, so the remaining jobs get no state
    finally:
        db.close()
    return found
