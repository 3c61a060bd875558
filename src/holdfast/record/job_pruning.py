"""Chooses old jobs, and removes them from the state directory and the journal.

A job is never removed while it runs or waits for a restart, or if another machine may have its lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.noun_base import Noun
from holdfast.record.database import Unusable, open_for_reading, open_for_writing, unusable
from holdfast.record.job_views import JobState, JobView
from holdfast.record.owner_lock import LOCK_NAME, OwnerLiveness, life_of
from holdfast.record.state_directory import job_dir
from holdfast.safe_files import open_file

DAY_S = 86_400.0


class RetentionLimits(Noun, frozen=True, kw_only=True):
    """The limits on kept jobs, counted from the newest job. None: no limit."""

    jobs: int | None = None
    #: Maximum age of a job in days since its end.
    days: int | None = None
    #: Maximum disk space of all kept job directories together, in bytes.
    size_bytes: int | None = None


class PrunableJob(Noun, frozen=True, kw_only=True):
    """A job to remove, its disk space in bytes, and the limit that it exceeds."""

    view: JobView
    size_bytes: int
    why: str


class PruneResult(Noun, frozen=True, kw_only=True):
    """The removed jobs, and the jobs that could not be removed, as (job id, reason)."""

    gone: tuple[PrunableJob, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(old.size_bytes for old in self.gone)


def beyond(home: Path, jobs: Sequence[JobView], keep: RetentionLimits, now: float) -> list[PrunableJob]:
    """Return the jobs that exceed the limits `keep`, the oldest first.

    Jobs that have not ended count towards the limits, but are not returned. Directories are measured only if
    `keep.size_bytes` is set.

    jobs: all jobs, the newest first. now: seconds since the epoch.
    """
    found = []
    taken = 0
    for place, view in enumerate(jobs):
        # A job that has not ended is measured too, because its disk space counts towards the limit.
        size = size_of(job_dir(home, view.id)) if keep.size_bytes is not None else 0
        taken += size
        if view.state is not JobState.ENDED:
            continue
        ended = view.created if view.ended is None else view.ended
        if keep.jobs is not None and place >= keep.jobs:
            why = f"more than {keep.jobs} jobs"
        elif keep.days is not None and now - ended > keep.days * DAY_S:
            why = f"ended more than {keep.days} days ago"
        elif keep.size_bytes is not None and taken > keep.size_bytes:
            why = "newer jobs take all the space that is kept"
        else:
            continue
        found.append(PrunableJob(view=view, size_bytes=size, why=why))
    return found[::-1]


def prune(
    home: Path, old: Sequence[PrunableJob], *, evidence_of: Mapping[str, str] | None = None, dry_run: bool = False
) -> PruneResult:
    """Remove the jobs `old` with their directories and their entries in the journal.

    Raises `Unusable` if the journal cannot be opened for writing. Then no job is removed.

    evidence_of: maps devices that are HELD or ISOLATED to their standing. A job whose report names one of them is kept.
    dry_run: remove nothing, and only return the result.
    """
    gone: list[PrunableJob] = []
    kept: list[tuple[str, str]] = []
    if not old:
        return PruneResult()
    named = _naming(home, [each.view.id for each in old], evidence_of)
    db = None if dry_run else open_for_writing(home)
    try:
        for each in old:
            job = each.view.id
            if job in named:
                kept.append((job, f"evidence of {named[job]}"))
                continue
            directory = job_dir(home, job)
            if why := _in_use(directory):
                kept.append((job, why))
                continue
            measured = PrunableJob(view=each.view, size_bytes=each.size_bytes or size_of(directory), why=each.why)
            if db is None:
                gone.append(measured)
                continue
            if why := _remove(directory):
                kept.append((job, why))
                continue
            _forget(db, job)
            gone.append(measured)
    finally:
        if db is not None:
            db.close()
    return PruneResult(gone=tuple(gone), kept=tuple(kept))


def size_of(directory: Path) -> int:
    """Return the disk space of all files below a directory, in bytes; 0 if the directory does not exist. Links are not
    followed.
    """
    total = 0
    for top, _, files in os.walk(directory):
        for name in files:
            try:
                total += Path(top, name).lstat().st_blocks * 512
            except OSError:
                continue  # skip a file that was removed after it was listed
    return total


def _in_use(directory: Path) -> str:
    """Return why this directory's job must be kept; "" if it may be removed."""
    match life_of(directory):
        case OwnerLiveness.ALIVE:
            return "a supervisor holds it"
        case OwnerLiveness.OUT_OF_SIGHT:
            return "it may be in use on another machine"
        case _:
            return ""


def _remove(directory: Path) -> str:
    """Remove a job's directory under the job's lock. Return why that failed, or ""."""
    try:
        if directory.is_symlink():
            return "its directory is a link"
        if not directory.exists():
            return ""
        lock = _locked(directory)
    except BlockingIOError:
        return "a supervisor holds it"
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    try:
        shutil.rmtree(directory)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    finally:
        if lock is not None:
            os.close(lock)
    return ""


def _locked(directory: Path) -> int | None:
    """Take the job's lock and return its descriptor. Return None if there is no lock file.

    Raises OSError: BlockingIOError if another process holds the lock.
    """
    try:
        fd = open_file(directory / LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _forget(db: object, job: str) -> None:
    """Remove the job from the journal. The database file keeps its size, but SQLite reuses the pages. Raises
    `Unusable`.
    """
    assert isinstance(db, sqlite3.Connection)
    try:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for table, key in (("events", "job"), ("attempts", "job"), ("jobs", "id")):
                db.execute(f"DELETE FROM {table} WHERE {key} = ?", (job,))
    except sqlite3.Error as error:
        raise unusable(error) from error


def _naming(home: Path, jobs: Sequence[str], devices: Mapping[str, str] | None) -> dict[str, str]:
    """Return job id → why the job must be kept, for the jobs whose reports name one of the devices."""
    if not devices:
        return {}
    found: dict[str, str] = {}
    try:
        db = open_for_reading(home)
    except Unusable:
        # The reports cannot be read, so keep all these jobs.
        return dict.fromkeys(jobs, "a device that is HELD or ISOLATED")
    if db is None:
        return {}
    try:
        for job in jobs:
            row = db.execute("SELECT report FROM jobs WHERE id = ?", (job,)).fetchone()
            text = bytes(row[0]).decode(errors="replace") if row and isinstance(row[0], bytes) else str(row or "")
            for device, standing in devices.items():
                if device in text:
                    found[job] = f"{device}, which is {standing}"
                    break
    except sqlite3.Error:
        return dict.fromkeys(jobs, "a device that is HELD or ISOLATED")
    finally:
        db.close()
    return found


def of_this_machine(view: JobView) -> bool:
    """Return whether the job ran on this machine. Each machine removes only its own jobs."""
    return view.host in ("", os.uname().nodename)
