"""The state of a job's pre-checks, as its journal has it: also while they run."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.checks import ChecksTaken
from holdfast.model.codec import decode_event
from holdfast.model.events import ChecksFinished, ChecksMoved
from holdfast.record.database import Unusable, open_for_reading

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord

_LAST = (
    "SELECT event FROM events WHERE job = ? AND"
    ' CAST(event AS TEXT) LIKE \'{"type":"checks_%\' ORDER BY seq DESC LIMIT 1'
)


def last_round(home: Path, job_id: str) -> ChecksTaken | None:
    """The last round of checks that the job's supervisor wrote down; None where it has written none yet."""
    try:
        db = open_for_reading(home)
    except Unusable:
        return None  # the survey has said it already
    if db is None:
        return None
    try:
        return last_round_in(db, job_id)
    finally:
        db.close()


def last_round_in(db: sqlite3.Connection, job_id: str) -> ChecksTaken | None:
    """The same, from a journal that is open."""
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


def checks_object(taken: ChecksTaken | None) -> dict[str, Any] | None:
    """A round for report.json and `--json`: state, whether it was reused, and each check with its result."""
    if taken is None:
        return None
    lines = [
        {"name": c.name, "state": c.state, "message": c.message, "tries": c.tries, "took_s": c.took_s}
        for c in taken.checks
    ]
    return {"state": taken.state.value, "reused": taken.reused, "checks": lines}


def last_of(attempts: Sequence[AttemptRecord]) -> ChecksTaken | None:
    """The round before the last attempt that ended."""
    return attempts[-1].checks if attempts else None
