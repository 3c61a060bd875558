"""The stored states of devices (standings), which outlive jobs: a log of fault events and user actions.

The log is in its own tables of `holdfast.db`, and only grows. All readers read its entries in the same order, so they
compute the same states. A snapshot has the states after some entry, so that the earlier entries need not be read and
can be removed. This module does not interpret the entries.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.record.database import FILE_NAME, Unusable, describe, open_for_reading, open_for_writing, unusable

if TYPE_CHECKING:
    import sqlite3

SNAPSHOTS_KEPT = 2
#: Milliseconds that a report of a fault waits for another writer. The reporter has no other work, unlike a job's owner.
BUSY_MS = 5000

_LAYOUT = (
    """CREATE TABLE IF NOT EXISTS fault_log (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, now REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS fault_snapshots (seq INTEGER PRIMARY KEY, state BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fault_refused (reason TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS fault_resets (
        devices TEXT PRIMARY KEY, tries INTEGER NOT NULL, now REAL NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS reset_counts (
        node TEXT, device TEXT, result TEXT, count INTEGER NOT NULL,
        PRIMARY KEY (node, device, result)) WITHOUT ROWID""",
)


class RowKind(enum.StrEnum):
    EVENT = "event"
    RELEASE = "release"
    POLICY = "policy"
    #: An entry in place of removed older events, with the same effect.
    LEFT = "left"


class StandingRow(NamedTuple):
    """One entry of the fault log. `now`: when it was received, in seconds since the epoch. `body`: JSON."""

    seq: int
    now: float
    kind: RowKind
    body: bytes


class StandingsUnusable(HoldfastError):
    """The fault log cannot be read or written. The message explains why and names a command to try."""

    exit_status = 2

    def __init__(self, message: str, *, passes: bool = False) -> None:
        """message: the sentence for the user. passes: whether a later try can succeed."""
        super().__init__(message)
        self.passes = passes


class Standings:
    """The fault log of a machine, in a state directory. Use the object from one thread, and close it.

    If the file cannot be used, a method raises `StandingsUnusable` and writes nothing.
    """

    def __init__(self, home: Path, db: sqlite3.Connection | None, *, writable: bool) -> None:
        """Use an open database.

        `home`: path of the state directory.
        `db`: the database; None if the file does not exist.
        `writable`: whether the connection may write.
        """
        self.path = home / FILE_NAME
        self.writable = writable
        self._db = db

    @classmethod
    def for_writing(cls, home: Path, *, busy_ms: int = BUSY_MS) -> Standings:
        """Open the fault log for writing, and create it if it is missing. `busy_ms`: how long to wait for another
        writer, in milliseconds.
        """
        path = home / FILE_NAME
        try:
            db = open_for_writing(home)
        except Unusable as trouble:
            raise _told(trouble, path, "no fault can be noted") from trouble
        try:
            db.execute(f"PRAGMA busy_timeout = {busy_ms}")
            if not _laid_out(db, "reset_counts"):
                db.execute("BEGIN IMMEDIATE")
                for statement in _LAYOUT:
                    db.execute(statement)
                db.execute("COMMIT")
        except sqlite3.Error as error:
            db.close()
            raise _told(unusable(error), path, "no fault can be noted") from error
        return cls(home, db, writable=True)

    @classmethod
    def for_reading(cls, home: Path) -> Standings:
        """Open the fault log for reading only. A missing log counts as empty."""
        path = home / FILE_NAME
        try:
            db = open_for_reading(home)
            if db is not None and not _laid_out(db):
                db.close()
                db = None
        except Unusable as trouble:
            raise _told(trouble, path, "standings are not known") from trouble
        except sqlite3.Error as error:
            raise _told(unusable(error), path, "standings are not known") from error
        return cls(home, db, writable=False)

    def append(self, now: float, kind: RowKind, bodies: Iterable[bytes]) -> int:
        """Append entries of one kind to the fault log atomically. Return the last entry's sequence number. The entries
        are on disk on return.
        """
        db = self._opened()
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            last = 0
            for body in bodies:
                row = db.execute("INSERT INTO fault_log (now, kind, body) VALUES (?, ?, ?)", (now, str(kind), body))
                last = row.lastrowid or 0
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            raise _told(unusable(error), self.path, "the fault was not noted") from error
        return last

    def after(self, seq: int) -> Iterator[StandingRow]:
        """Yield the entries of the fault log after sequence number `seq`, in order."""
        if self._db is None:
            return
        try:
            rows = self._db.execute("SELECT seq, now, kind, body FROM fault_log WHERE seq > ? ORDER BY seq", (seq,))
            for number, now, kind, body in rows:
                yield StandingRow(number, now, RowKind(kind), bytes(body))
        except (sqlite3.Error, ValueError) as error:
            trouble = unusable(error) if isinstance(error, sqlite3.Error) else None
            if trouble is None:
                raise StandingsUnusable(
                    f"the fault log in {self.path} holds an entry that is not known: {error}"
                ) from error
            raise _told(trouble, self.path, "standings are not known") from error

    def snapshot(self) -> tuple[int, bytes] | None:
        """Return the newest snapshot: the sequence number of the last entry in it, and the state."""
        if self._db is None:
            return None
        try:
            row = self._db.execute("SELECT seq, state FROM fault_snapshots ORDER BY seq DESC LIMIT 1").fetchone()
        except sqlite3.Error as error:
            raise _told(unusable(error), self.path, "standings are not known") from error
        return None if row is None else (int(row[0]), bytes(row[1]))

    def save_snapshot(self, seq: int, state: bytes) -> bool:
        """Save a snapshot: the state after all entries up to `seq`. Return False on failure, which only makes later
        reads slower.
        """
        db = self._opened()
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT OR REPLACE INTO fault_snapshots (seq, state) VALUES (?, ?)", (seq, state))
            db.execute(
                "DELETE FROM fault_snapshots WHERE seq NOT IN"
                " (SELECT seq FROM fault_snapshots ORDER BY seq DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )
            db.execute("COMMIT")
        except sqlite3.Error:
            self._undo()
            return False
        return True

    def prune(self, upto: int, *, before: float, most: int, at_a_time: int, left: bytes) -> int:
        """Remove old events.

        Return the number of removed entries. Failures are ignored, because they only cost disk space.

        Releases are never removed, nor is the newest policy among the old entries.

        upto: remove no entry after this sequence number. A snapshot must include all entries up to it.
        before: remove events that were received before this time, in seconds since the epoch.
        most: also remove the oldest events if there are more than `most` entries.
        at_a_time: approximate limit of the entries to remove in one call.
        left: body of the entry that replaces the removed events, for readers of another version.
        """
        db = self._opened()
        try:
            db.execute("BEGIN IMMEDIATE")
            first, last = db.execute(
                "SELECT min(seq), max(seq) FROM fault_log WHERE kind IN ('event', 'left')"
            ).fetchone()
            (cut,) = db.execute(
                "SELECT max(seq) FROM fault_log WHERE kind = 'event' AND seq <= ? AND (now < ? OR seq <= ?)",
                (min(upto, (first or 0) + at_a_time), before, (last or 0) - most),
            ).fetchone()
            gone = 0
            if cut is not None:
                (rules,) = db.execute(
                    "SELECT max(seq) FROM fault_log WHERE kind = 'policy' AND seq <= ?", (cut,)
                ).fetchone()
                gone = db.execute(
                    "DELETE FROM fault_log"
                    " WHERE seq <= ? AND (kind IN ('event', 'left') OR kind = 'policy' AND seq < ?)",
                    (cut, rules or 0),
                ).rowcount
                db.execute("INSERT INTO fault_log (seq, now, kind, body) VALUES (?, ?, 'left', ?)", (cut, before, left))
            db.execute("COMMIT")
        except sqlite3.Error:
            self._undo()
            return 0
        return gone

    def count_refused(self, reason: str, count: int = 1) -> None:
        """Count refused events by reason. Ignore a failed write, because the caller must still report the refusal."""
        try:
            self._opened().execute(
                "INSERT INTO fault_refused (reason, count) VALUES (?, ?)"
                " ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count",
                (reason, count),
            )
        except sqlite3.Error:
            self._undo()

    def refused(self) -> dict[str, int]:
        """Return reason → the number of events refused for it."""
        if self._db is None:
            return {}
        try:
            return dict(self._db.execute("SELECT reason, count FROM fault_refused ORDER BY reason").fetchall())
        except sqlite3.Error as error:
            raise _told(unusable(error), self.path, "refusals are not known") from error

    def note_tries(self, devices: str, tries: int, now: float) -> None:
        """Record how many resets of these devices have failed in a row. Ignore a failure to write."""
        try:
            self._opened().execute("INSERT OR REPLACE INTO fault_resets VALUES (?, ?, ?)", (devices, tries, now))
        except sqlite3.Error:
            self._undo()

    def tries(self, devices: str) -> tuple[int, float]:
        """Return how many resets of these devices have failed in a row, and when that was recorded. Return (0, 0.0) if
        there is no record.
        """
        try:
            row = self._opened().execute("SELECT tries, now FROM fault_resets WHERE devices = ?", (devices,)).fetchone()
        except sqlite3.Error:
            return 0, 0.0
        return (0, 0.0) if row is None else (int(row[0]), float(row[1]))

    def count_reset(self, node: str, devices: Iterable[str], result: str) -> None:
        """Count one reset of each device. `result`: `succeeded` or `failed`. Ignore a failure to write."""
        try:
            for device in devices:
                self._opened().execute(
                    "INSERT INTO reset_counts VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
                    (node, device, result),
                )
        except sqlite3.Error:
            self._undo()

    def reset_counts(self) -> list[tuple[str, str, str, int]]:
        """Return (node, device, result, number of resets) for all counted resets; [] if none were counted."""
        try:
            rows = self._db.execute("SELECT node, device, result, count FROM reset_counts") if self._db else []
            return [(str(node), str(device), str(result), int(count)) for node, device, result, count in rows]
        except sqlite3.Error:
            return []

    def close(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            try:
                db.close()
            except sqlite3.Error:
                # Ignore a failed checkpoint (the disk is full), because the next process that opens the file makes it.
                pass

    def _opened(self) -> sqlite3.Connection:
        if self._db is None or not self.writable:
            raise StandingsUnusable(f"the standings in {self.path} were opened for reading only")
        return self._db

    def _undo(self) -> None:
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # ignore the error: the transaction has changed nothing, and the caller reports the first error


def _laid_out(db: sqlite3.Connection, table: str = "fault_refused") -> bool:
    """Return whether a table exists. A reader needs only the oldest tables, and a writer creates missing ones."""
    row = db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return bool(row[0])


def _told(trouble: Unusable, path: Path, consequence: str) -> StandingsUnusable:
    return StandingsUnusable(describe(trouble, path, consequence), passes=trouble.ailment.passes)
