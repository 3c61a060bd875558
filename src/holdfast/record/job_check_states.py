"""The result of each job's last pre-checks, for a list of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.check_results import CheckState
from holdfast.record.database import Unusable, open_for_reading
from holdfast.record.job_views import JobState, JobView
from holdfast.record.recorded_checks import last_round_in

_OF_REPORT = "SELECT id, json_extract(report, '$.attempts[#-1].checks.state') FROM jobs WHERE report IS NOT NULL"


def check_states(home: Path, views: Sequence[JobView]) -> Mapping[str, str]:
    """Return the state of each job's last pre-checks by job id: DISABLED, CHECKING, FAIL or PASS.

    A running job without a recorded round of checks is CHECKING.
    """
    import sqlite3

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
        return found  # SQLite was built without JSON: `holdfast show` still shows the state of an ended job
    finally:
        db.close()
    return found
