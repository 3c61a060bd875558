"""The journal: records every event in the order of handling, so that a replay gives the same actions.

A job must not fail because of its journal. Whatever is wrong with the file (read-only, full, locked, damaged, removed),
no method raises or blocks for long. Unsaved events stay in memory for a retry, and one message reports the failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.model.codec import decode_event, encode
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.events import Event
from holdfast.model.job_spec import JobSpec
from holdfast.record.database import BUSY_MS, FILE_NAME, DatabaseTrouble, Unusable, describe, open_for_writing, unusable
from holdfast.record.owner_lock import OwnerInfo
from holdfast.record.write_backlog import Backlog

if TYPE_CHECKING:
    import sqlite3

#: Each run of a job has a range of this many sequence numbers. A later run has higher numbers, so late writes of an
#: earlier run sort before them.
RUN_EVENTS = 1 << 40
#: Maximum size of the unsaved events in memory, in bytes.
KEPT_BYTES = 32 * 1024 * 1024

_RETRY_BUSY_MS = 20
_LAST_BUSY_MS = 1000
#: Milliseconds that the last write waits for other writers without a write-ahead log. That is the case on a network
#: file system, where only one process can write at a time: the tasks of a job array wait for each other.
_LAST_BUSY_SHARED_MS = 15_000
_RETRY_FIRST_S = 1.0
_RETRY_CAP_S = 60.0
_CHUNK = 500

# A repeated write changes nothing, because a failed commit may have been saved after all. This condition also stops a
# run from writing after a later run has written.
_NOT_TAKEN_OVER = "WHERE NOT EXISTS (SELECT 1 FROM events WHERE job = ? AND seq > ?)"
_EVENT = f"INSERT OR IGNORE INTO events (job, seq, now, event) SELECT ?, ?, ?, ? {_NOT_TAKEN_OVER}"
# A job that waited in this machine's queue has a row from its submission.
_JOB = (
    "INSERT INTO jobs (id, name, created, host, pid, spec) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " created = excluded.created, host = excluded.host, pid = excluded.pid, spec = excluded.spec"
    " WHERE jobs.ended IS NULL"
)
_ATTEMPT = f"INSERT OR REPLACE INTO attempts (job, attempt, record) SELECT ?, ?, ? {_NOT_TAKEN_OVER}"
_REOPEN = (
    "UPDATE jobs SET host = ?, pid = ?, ended = NULL, outcome = NULL, code = NULL, phrase = NULL, report = NULL"
    " WHERE id = ?"
)
# This statement also inserts the job's row, because the row may never have been saved.
_FINISH = (
    "INSERT INTO jobs (id, name, created, host, pid, spec, ended, outcome, code, phrase, report)"
    f" SELECT ?, ?, ?, '', 0, '', ?, ?, ?, ?, ? {_NOT_TAKEN_OVER}"
    " ON CONFLICT (id) DO UPDATE SET ended = excluded.ended,"
    " outcome = excluded.outcome, code = excluded.code, phrase = excluded.phrase, report = excluded.report"
)

# This statement closes another owner's job, unless that owner has recorded the job's end.
_CLOSE = (
    "INSERT INTO jobs (id, name, created, host, pid, spec, ended, outcome, code, phrase, report)"
    " VALUES (?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET ended = excluded.ended,"
    " outcome = excluded.outcome, code = excluded.code, phrase = excluded.phrase, report = excluded.report"
    " WHERE jobs.ended IS NULL"
)

_Row = tuple[object, ...]


class Journal:
    """One process's access to the journal. Use the object from one thread.

    A child that is forked without exec must not use the object, and must end with `os._exit`, because SQLite's
    connections do not survive a fork. `trouble`: a message about the present failure, or empty. `take_news` returns
    each change of `trouble` once, to be printed.
    """

    def __init__(self, home: Path, *, consequence: str = "", clock: Callable[[], float] | None = None) -> None:
        """Create a journal object, but do not open the file yet. The parameters are the same as for `open`."""
        self.home = home
        self._clock = clock or Clock().now
        self.path = home / FILE_NAME
        self.trouble = ""
        self._news: list[str] = []
        self._db: sqlite3.Connection | None = None
        self._seqs: dict[str, int] = {}
        self._runs: dict[str, int] = {}
        #: The writes that are not saved yet, as SQL statements with their parameters.
        self._unsaved: Backlog[tuple[str, _Row]] = Backlog(KEPT_BYTES, _RETRY_FIRST_S, _RETRY_CAP_S)
        self._cut_short: set[str] = set()
        self._kept_late = 0
        self._given_up = False
        self._consequence = consequence

    @classmethod
    def open(cls, home: Path, *, consequence: str = "", clock: Callable[[], float] | None = None) -> Journal:
        """Open the journal under `home`. Create it if it is missing. Never raises: `trouble` reports failures.

        consequence: a clause that says what follows if the journal cannot be written; needed by callers other than a
        run.
        clock: returns the time in seconds, for the retries.
        """
        journal = cls(home, consequence=consequence, clock=clock)
        journal._connect()
        return journal

    @property
    def saved(self) -> bool:
        """Whether every event so far is in the database's file."""
        return self._db is not None and not self._unsaved and not self._cut_short

    @property
    def unsaved_bytes(self) -> int:
        """The total size in bytes of the events in memory that could not be written to the file."""
        return self._unsaved.size

    def take_news(self) -> str:
        """Return the messages about changes of `trouble` since the last call; usually there are none."""
        news, self._news = "; ".join(self._news), []
        return news

    def create_job(self, job_id: str, spec: JobSpec, *, now: float, host: str, pid: int) -> None:
        """Record a new job and its owner. `now`: seconds since the epoch. `pid`: the owner's process id."""
        self._seqs[job_id] = 0
        self._write(_JOB, (job_id, spec.name, now, host, pid, encode(spec)))

    def of_run(self, job_id: str, run: int) -> None:
        """Set which run of the job this process serves. `run`: the number of earlier starts of the job by the
        platform, such as a Slurm requeue.
        """
        self._runs[job_id] = run

    def begin_run(self, job_id: str, run: int, *, host: str, pid: int) -> None:
        """Continue a job's journal in a new run. Late writes of earlier runs have no effect from now on.

        A job that was closed as lost is reopened.
        """
        self.of_run(job_id, run)
        self._seqs[job_id] = max(self._last_seq(job_id), run * RUN_EVENTS)
        self._write(_REOPEN, (host, pid, job_id))

    def is_taken_over(self, job_id: str) -> bool:
        """Return whether a later run of the job has written to the journal. This run must then stop writing."""
        return self._last_seq(job_id) > self._last_of_run(job_id)

    def _last_of_run(self, job_id: str) -> int:
        return (self._runs.get(job_id, 0) + 1) * RUN_EVENTS

    def append(self, job_id: str, now: float, event: Event) -> None:
        """Record one event of a job. If `saved` is true after the call, the event survives the death of
        this process.
        """
        row = (job_id, self._next_seq(job_id), now, encode(event))
        self._write(_EVENT, (*row, job_id, self._last_of_run(job_id)))

    def holds_faults(self) -> bool:
        """Return whether the fault log in the same database has, or may have, an entry."""
        import sqlite3

        if self._db is None:
            return True
        try:
            return self._db.execute("SELECT 1 FROM fault_log WHERE kind <> 'policy' LIMIT 1").fetchone() is not None
        except sqlite3.Error as error:
            return "no such table" not in str(error)

    def events(self, job_id: str) -> Iterator[tuple[float, Event]]:
        """Yield the job's events in order, as (time, event), unsaved ones included."""
        rows: list[tuple[float, bytes]] = []
        if self._db is not None:
            import sqlite3

            try:
                rows = self._db.execute(
                    "SELECT now, event FROM events WHERE job = ? ORDER BY seq", (job_id,)
                ).fetchall()
            except sqlite3.Error as error:
                self._degrade(unusable(error))
        for now, blob in rows:
            yield now, decode_event(blob)
        for sql, row in self._unsaved:
            if sql == _EVENT and row[0] == job_id:
                at, kept = row[2:4]
                assert isinstance(at, float | int) and isinstance(kept, bytes)
                yield float(at), decode_event(kept)

    def secure(self) -> str:
        """Flush the journal to the disk. Return why this failed, or "".

        A commit reaches only the kernel. This method also flushes the write-ahead log, which takes some milliseconds.
        """
        self._unsaved.at_once()
        self._flush(everything=True)
        if not self.saved:
            # Leave out the clause about the consequence, because it is only true for this machine.
            return self.trouble.partition("; ")[0] or f"the journal {self.path} is not complete"
        try:
            log = self.path.with_name(self.path.name + "-wal")
            _synchronize(log if log.exists() else self.path)
        except OSError as error:
            return f"the journal {self.path} cannot be synchronized: {error.strerror}"
        return ""

    def record_attempt(self, job_id: str, record: AttemptRecord) -> None:
        """Record an ended attempt: its report, decision and times. A second call for the same attempt replaces the
        record.
        """
        row = (job_id, record.attempt, encode(record))
        self._write(_ATTEMPT, (*row, job_id, self._last_of_run(job_id)))

    def finish(self, report: JobReport, *, now: float) -> None:
        """Record the job's final report. The job then counts as ended."""
        last = report.report
        row = (report.job_id, report.name, now, now, report.outcome.value, last.code, last.phrase, encode(report))
        self._write(_FINISH, (*row, report.job_id, self._last_of_run(report.job_id)))

    def close_job_of_another(self, report: JobReport, supervisor: OwnerInfo, *, ended: float) -> None:
        """Record the report on a job whose owner has died, unless the journal already has the job's end."""
        last = report.report
        result = (ended, report.outcome.value, last.code, last.phrase, encode(report))
        who = (report.job_id, report.name, supervisor.created, supervisor.host, supervisor.pid)
        self.of_run(report.job_id, supervisor.run)
        for record in report.attempts:
            self.record_attempt(report.job_id, record)
        self._write(_CLOSE, (*who, *result))

    def close(self) -> None:
        """Save the remaining events if that is quick, and close the file. `take_news` then reports how many events were
        lost.
        """
        if self._unsaved and not self._given_up:
            self._unsaved.at_once()
            longest_ms = _LAST_BUSY_MS if self._has_log() else _LAST_BUSY_SHARED_MS
            self._wait_for_locks(longest_ms)
            if self._db is not None or self._connect(longest_ms):
                self._flush(everything=True)
        if self._unsaved:
            self._news.append(
                f"{len(self._unsaved)} records of this run never reached the journal {self.path}; "
                "the report and the logs hold what they told"
            )
        self._drop_connection()

    def _next_seq(self, job_id: str) -> int:
        seq = self._seqs.get(job_id)
        if seq is None:
            seq = self._last_seq(job_id)
        self._seqs[job_id] = seq + 1
        return seq + 1

    def _last_seq(self, job_id: str) -> int:
        """Return the highest sequence number of a job's events in the file, from earlier processes; 0 if unknown."""
        if self._db is None:
            return 0
        import sqlite3

        try:
            row = self._db.execute("SELECT max(seq) FROM events WHERE job = ?", (job_id,)).fetchone()
        except sqlite3.Error as error:
            self._degrade(unusable(error))
            return 0
        return row[0] or 0

    def _write(self, sql: str, row: _Row) -> None:
        if self._db is not None and not self._unsaved:
            import sqlite3

            try:
                self._db.execute(sql, row)
            except sqlite3.Error as error:
                self._keep(sql, row)
                self._degrade(unusable(error))
            return
        self._keep(sql, row)
        self._flush()

    def _keep(self, sql: str, row: _Row) -> None:
        if sql == _EVENT:
            job_id = str(row[0])
            # After a dropped event, drop the job's later events too. A history that ends early replays correctly, but
            # one with a gap does not.
            if job_id in self._cut_short:
                return
            if not self._unsaved.keep((sql, row), _size(row)):
                self._cut_short.add(job_id)
                self._news.append(
                    f"the journal {self.path} has been unusable for so long that later events of job {job_id} are no "
                    f"longer kept in memory either (limit {KEPT_BYTES >> 20} MiB); attempts and the report still are"
                )
            return
        self._unsaved.keep((sql, row), _size(row), always=True)

    def _flush(self, *, everything: bool = False) -> None:
        """Save waiting events, one chunk per call, unless a write has just failed. `everything`: save all chunks."""
        if not self._unsaved or self._given_up or not self._unsaved.due(self._clock()):
            return
        if self._db is None and not self._connect():
            return
        import sqlite3

        while self._unsaved:
            assert self._db is not None
            part = self._unsaved.first(_CHUNK)
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for sql, row in part:
                    self._db.execute(sql, row)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._degrade(unusable(error))
                return
            self._unsaved.written(len(part))
            self._kept_late += len(part)
            if not everything:
                break
        if not self._unsaved and self.trouble:
            self._recover()

    def _connect(self, busy_ms: int = BUSY_MS) -> bool:
        try:
            self._db = open_for_writing(self.home, busy_ms=busy_ms)
        except Unusable as trouble:
            self._degrade(trouble)
            return False
        return True

    def _degrade(self, trouble: Unusable) -> None:
        if not self.trouble:
            later = " until it can be written again" if trouble.ailment.passes else ""
            run = f"this run goes on and will still report, but keeps its history in memory{later}"
            self.trouble = describe(trouble, self.path, self._consequence or run)
            self._news.append(self.trouble)
            self._kept_late = 0
        if self._db is not None:
            import sqlite3

            try:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # ignore the error: the connection is broken too, and is dropped below
            self._wait_for_locks(_RETRY_BUSY_MS)
            # Keep the connection if another process only had a lock. After any other failure the connection is
            # unreliable.
            if trouble.ailment is not DatabaseTrouble.BUSY:
                self._drop_connection()
        self._given_up = self._given_up or not trouble.ailment.passes
        self._unsaved.failed(self._clock())

    def _recover(self) -> None:
        self._wait_for_locks(BUSY_MS)
        self._news.append(
            f"the journal {self.path} can be written again; {self._kept_late} records that had waited are saved"
        )
        self.trouble = ""
        self._unsaved.worked()

    def _wait_for_locks(self, ms: int) -> None:
        if self._db is None:
            return
        import sqlite3

        try:
            self._db.execute(f"PRAGMA busy_timeout = {ms}")
        except sqlite3.Error:
            pass  # ignore the error: the connection is broken, and the next write reports that

    def _has_log(self) -> bool:
        return self.path.with_name(f"{self.path.name}-wal").exists()

    def _drop_connection(self) -> None:
        if self._db is None:
            return
        import sqlite3

        try:
            self._db.close()
        except sqlite3.Error:
            pass  # ignore a failed checkpoint, because the next process that opens the file makes it
        self._db = None


def _size(row: _Row) -> int:
    return 64 + sum(len(item) for item in row if isinstance(item, bytes | str))


def _synchronize(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
