"""The core's records of jobs that wait or run, in an SQLite file. They survive a power loss."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.decide.queue.queue_model import Needs
from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.record.database import on_network_filesystem
from holdfast.untrusted import Malformed, json_as

_LAYOUT = (
    "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, place INTEGER NOT NULL, job BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS shares (user TEXT PRIMARY KEY, used REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID",
)


class JobStage(enum.StrEnum):
    """How far the core is with a job."""

    WAITING = "waiting"
    #: The core starts the job now, or died while it did.
    STARTING = "starting"
    RUNNING = "running"


class RecordedJob(Noun, frozen=True, kw_only=True):
    """One job of the queue. Times are in seconds since the epoch."""

    id: str
    name: str
    user: str
    needs: Needs
    priority: str
    submitted_at: float
    #: The number of the submission: a later job has a higher one.
    place: int
    time_s: float | None = None
    stage: JobStage = JobStage.WAITING
    #: Why the job waits, as it was last shown in the job's directory.
    why: str = ""
    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    started_at: float | None = None
    #: Process id of the job's `holdfast run`; None if unknown.
    pid: int | None = None
    #: When that process started, in clock ticks since the boot. With the boot's id it identifies the process.
    ticks: int = 0
    boot_id: str = ""


class CoreRecords:
    """The file of the job records. Each write is on the disk when its method returns. Methods raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if it is missing. Raises sqlite3.Error."""
        self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        # A write-ahead log needs shared memory, which a network file system does not have.
        mode = "DELETE" if on_network_filesystem(path.parent) else "WAL"
        self._db.execute(f"PRAGMA journal_mode = {mode}")
        self._db.execute("PRAGMA synchronous = FULL")
        for statement in _LAYOUT:
            self._db.execute(statement)

    def put(self, job: RecordedJob) -> None:
        """Write a job, in place of its earlier record."""
        self._db.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", (job.id, job.place, encode(job)))

    def remove(self, job_id: str) -> None:
        self._db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))

    def jobs(self) -> Iterator[RecordedJob]:
        """Yield all jobs in the order of their submission. A damaged record is skipped."""
        for (blob,) in self._db.execute("SELECT job FROM jobs ORDER BY place").fetchall():
            try:
                yield json_as(blob, RecordedJob)
            except Malformed:
                continue

    def put_share(self, user: str, used: float, at: float) -> None:
        """Write how much of the machine a user has used. `used`: decayed seconds, as they were at the time `at`."""
        self._db.execute("INSERT OR REPLACE INTO shares VALUES (?, ?, ?)", (user, used, at))

    def shares(self) -> dict[str, tuple[float, float]]:
        """Return user → (decayed seconds, the time at which they were computed)."""
        return {user: (used, at) for user, used, at in self._db.execute("SELECT user, used, at FROM shares")}

    def close(self) -> None:
        self._db.close()


def counts(path: Path) -> tuple[int, int]:
    """Return how many jobs run and how many wait, from the file of a core that does not run; (0, 0) without a file."""
    if not path.exists():
        return 0, 0
    try:
        records = CoreRecords(path)
    except sqlite3.Error:
        return 0, 0
    try:
        stages = [job.stage for job in records.jobs()]
    finally:
        records.close()
    waiting = stages.count(JobStage.WAITING)
    return len(stages) - waiting, waiting


def changed(job: RecordedJob, **fields: object) -> RecordedJob:
    """Return the job with some fields replaced."""
    return msgspec.structs.replace(job, **fields)
