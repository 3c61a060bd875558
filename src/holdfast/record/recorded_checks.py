"""Reads the state of a job's pre-checks from its journal, also while they run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from holdfast.model.check_results import ChecksTaken
from holdfast.model.codec import decode_event
from holdfast.model.events import ChecksFinished, ChecksMoved
from holdfast.record.database import Unusable, open_for_reading

_LAST = (
    "SELECT event FROM events WHERE job = ? AND"
    ' CAST(event AS TEXT) LIKE \'{"type":"checks_%\' ORDER BY seq DESC LIMIT 1'
)


def last_round(home: Path, job_id: str) -> ChecksTaken | None:
    """Return the last round of checks that the job's owner recorded; None if there is none."""
    try:
        db = open_for_reading(home)
    except Unusable:
        return None  # the survey has reported it already
    if db is None:
        return None
    try:
        return last_round_in(db, job_id)
    finally:
        db.close()


def last_round_in(db: sqlite3.Connection, job_id: str) -> ChecksTaken | None:
    """Return the last recorded round of checks from an open journal; None if there is none."""
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
