"""The journal's SQLite file: opens it, creates its tables, and describes its errors. This module does not interpret
events.

The functions import sqlite3 themselves, so that a start without the file does not need the import.
"""

from __future__ import annotations

import enum
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.file_modes import open_to_others, take_over
from holdfast.safe_directories import is_trusted
from holdfast.safe_files import not_a_file
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    import sqlite3

FILE_NAME = "holdfast.db"
APPLICATION_ID = 0x486F6C64  # the bytes "Hold", which mark the file as holdfast's
#: Milliseconds to wait for another process's write. After that the entry stays in memory.
BUSY_MS = 250

#: A file of up to this many bytes is checked for damage before the first write (about 1 ms). The check of a larger file
#: would delay the start.
CHECKED_BYTES = 1 << 20

#: After this many pages (about 100 MB) SQLite checkpoints the write-ahead log. SQLite's default is 1,000. With the
#: default, the fsync of a checkpoint blocks the event loop during a job, for up to 0.3 s in a measurement. With this
#: number nearly all jobs end before the first checkpoint, which then runs when the last process closes the file.
_CHECKPOINT_PAGES = 25_000

#: The migrations of the tables. Entry n turns layout n (a version) into layout n + 1. No entry is ever changed or
#: removed.
_LAYOUTS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE jobs (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
            spec BLOB NOT NULL, ended REAL, outcome TEXT, code INTEGER, phrase TEXT, report BLOB)""",
        "CREATE INDEX jobs_by_name ON jobs (name, created)",
        """CREATE TABLE attempts (
            job TEXT NOT NULL, attempt INTEGER NOT NULL, record BLOB NOT NULL,
            PRIMARY KEY (job, attempt)) WITHOUT ROWID""",
        """CREATE TABLE events (
            job TEXT NOT NULL, seq INTEGER NOT NULL, now REAL NOT NULL, event BLOB NOT NULL,
            PRIMARY KEY (job, seq)) WITHOUT ROWID""",
    ),
)

LAYOUT = len(_LAYOUTS)

MOUNTS = Path("/proc/self/mountinfo")

_NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "fuse.glusterfs", "afs", "9p"}
)


class DatabaseTrouble(enum.Enum):
    """The kinds of failure of the journal's file, one for each remedy."""

    BUSY = enum.auto()
    FULL = enum.auto()
    UNWRITABLE = enum.auto()
    UNREADABLE = enum.auto()
    BROKEN_IO = enum.auto()
    DAMAGED = enum.auto()
    FOREIGN = enum.auto()
    NEWER = enum.auto()

    @property
    def passes(self) -> bool:
        """Whether a later try to use the file can succeed."""
        return self in (
            DatabaseTrouble.BUSY,
            DatabaseTrouble.FULL,
            DatabaseTrouble.UNWRITABLE,
            DatabaseTrouble.UNREADABLE,
            DatabaseTrouble.BROKEN_IO,
        )


class Unusable(HoldfastError):
    """The journal's file cannot be used. `ailment`: the kind of failure. The message explains it."""

    def __init__(self, ailment: DatabaseTrouble, detail: str) -> None:
        super().__init__(detail)
        self.ailment = ailment
        self.detail = detail


def make_private_dir(path: Path) -> None:
    """Create `path` and its missing parents with mode 0700. An existing directory keeps its mode. Raises OSError."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        if not is_trusted(each.lstat().st_uid):
            raise PermissionError(errno.EPERM, "another user has made it meanwhile", str(each))


def _make_private(path: Path) -> None:
    """Remove other users' access to a database of an earlier version. Ignore errors, because the opening of the file
    reports them.
    """
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        try:
            if each.stat().st_mode & 0o077:
                each.chmod(0o600)
        except OSError:
            continue  # skip a file that is missing, or belongs to another user


def on_network_filesystem(path: Path) -> bool:
    """Whether `path` is on a network file system; False if /proc does not show it."""
    try:
        table = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        mount_point = left.split(" ")[4].replace("\\040", " ")
        inside = real == mount_point or real.startswith(mount_point.rstrip("/") + "/")
        # Of several file systems at one mount point, the later one hides the earlier, so it counts.
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, right.split(" ", 1)[0]
    return kind in _NETWORK_FILESYSTEMS


def open_for_writing(home: Path, *, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """Open the journal's file under `home` for writing, and create it if it is missing. Raises only `Unusable`.

    busy_ms: how long to wait for another process's write, in milliseconds.
    """
    import sqlite3

    path = home / FILE_NAME
    take_over(home)
    if why := open_to_others(home):
        raise Unusable(DatabaseTrouble.UNWRITABLE, why)
    try:
        make_private_dir(home)
        _must_be_files(path)
        _make_private(path)
        if not path.exists():
            _create(path)
        db = sqlite3.connect(path, timeout=busy_ms / 1000, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise unusable(error) from error
    try:
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        _migrate(db)
        db.execute("SELECT id FROM jobs LIMIT 1").fetchone()
        if path.stat().st_size <= CHECKED_BYTES:
            _look_through(db)
    except Unusable:
        db.close()
        raise
    except (OSError, sqlite3.Error) as error:
        db.close()
        raise unusable(error) from error
    return db


def _look_through(db: sqlite3.Connection) -> None:
    """Raise `Unusable` if any page of the database is damaged. Call this before the first write changes the file."""
    said = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if said != "ok":
        raise Unusable(DatabaseTrouble.DAMAGED, one_line(said.splitlines()[-1])[:120])


def _must_be_files(path: Path) -> None:
    """Raise `Unusable` if one of the journal's paths is no regular file, because SQLite would wait for ever on a named
    pipe.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        if what := not_a_file(f"{path}{suffix}"):
            raise Unusable(DatabaseTrouble.FOREIGN, f"{path.name}{suffix} is {what}, and a file was expected")


def open_for_reading(home: Path) -> sqlite3.Connection | None:
    """Open the journal's file for reading only. Return None if there is no file. Raises `Unusable`."""
    import sqlite3

    path = home / FILE_NAME
    try:
        _must_be_files(path)
        if not path.exists():
            return None
    except OSError as error:  # such as a parent directory that belongs to another user
        raise _unreadable(error) from error
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    # To read a WAL file, SQLite needs a shared-memory file. A read-only file system allows none, so open the file as
    # `immutable`.
    failure: sqlite3.Error | None = None
    for mode in ("mode=rw", "mode=ro", "immutable=1"):
        try:
            db = sqlite3.connect(f"file:{quoted}?{mode}", uri=True, timeout=BUSY_MS / 1000, isolation_level=None)
        except sqlite3.Error as error:
            failure = error
            continue
        try:
            db.execute("PRAGMA query_only = 1")
            if _layout_of(db) == 0:
                db.close()
                return None
            db.execute("SELECT id FROM jobs LIMIT 1").fetchone()
        except Unusable:
            db.close()
            raise
        except sqlite3.Error as error:
            db.close()
            failure = error
            continue
        return db
    assert failure is not None
    raise _unreadable(failure) from failure


def _unreadable(error: OSError | sqlite3.Error) -> Unusable:
    """Convert an error to an `Unusable` for a reader: a file that cannot be opened counts as unreadable, not as
    unwritable.
    """
    found = unusable(error)
    return Unusable(DatabaseTrouble.UNREADABLE, found.detail) if found.ailment is DatabaseTrouble.UNWRITABLE else found


def unusable(error: OSError | sqlite3.Error) -> Unusable:
    """Convert an error from the operating system or SQLite to an `Unusable`."""
    if isinstance(error, OSError):
        kind = {
            errno.ENOSPC: DatabaseTrouble.FULL,
            errno.EDQUOT: DatabaseTrouble.FULL,
            errno.EIO: DatabaseTrouble.BROKEN_IO,
        }.get(error.errno or 0, DatabaseTrouble.UNWRITABLE)
        return Unusable(kind, (error.strerror or str(error)).lower())
    name = getattr(error, "sqlite_errorname", "")
    for prefix, ailment in (
        ("SQLITE_BUSY", DatabaseTrouble.BUSY),
        ("SQLITE_LOCKED", DatabaseTrouble.BUSY),
        ("SQLITE_PROTOCOL", DatabaseTrouble.BUSY),
        ("SQLITE_FULL", DatabaseTrouble.FULL),
        ("SQLITE_READONLY", DatabaseTrouble.UNWRITABLE),
        ("SQLITE_CANTOPEN", DatabaseTrouble.UNWRITABLE),
        ("SQLITE_PERM", DatabaseTrouble.UNWRITABLE),
        ("SQLITE_AUTH", DatabaseTrouble.UNWRITABLE),
        ("SQLITE_IOERR", DatabaseTrouble.BROKEN_IO),
    ):
        if name.startswith(prefix):
            return Unusable(ailment, str(error))
    # The file is no database, has a malformed page, or lacks a table or column, so it is not as holdfast has written
    # it.
    return Unusable(DatabaseTrouble.DAMAGED, str(error))


def describe(trouble: Unusable, path: Path, consequence: str) -> str:
    """Describe a failure of the journal in one or two sentences: the problem, the path, the consequence, a command to
    try. `consequence`: a clause.
    """
    where = f"the journal {path}"
    ailment = trouble.ailment
    if ailment is DatabaseTrouble.BROKEN_IO and _is_full(path.parent):
        # If its shared-memory file cannot grow, SQLite reports a disk error instead of a full disk.
        ailment = DatabaseTrouble.FULL
    match ailment:
        case DatabaseTrouble.BUSY:
            return (
                f"{where} has been locked by another process for longer than {BUSY_MS} ms; {consequence}. "
                f"To see who holds it: fuser -v {path}"
            )
        case DatabaseTrouble.FULL:
            return (
                f"{where} cannot grow: its disk is full, or a quota is used up ({trouble.detail}); {consequence}. "
                f"To see how full: df -h {path.parent}"
            )
        case DatabaseTrouble.UNWRITABLE:
            return (
                f"{where} cannot be written ({trouble.detail}); {consequence}. "
                f"To look: ls -ld {path.parent} {path}; to use another place, set HOLDFAST_HOME to a writable directory"
            )
        case DatabaseTrouble.UNREADABLE:
            return (
                f"{where} cannot be read ({trouble.detail}); {consequence}. "
                f"To look: ls -ld {path.parent} {path}; its owner can read it, and HOLDFAST_HOME names another place"
            )
        case DatabaseTrouble.BROKEN_IO:
            return (
                f"{where} failed to be read or written ({trouble.detail}): the disk, or the way to it, is in trouble; "
                f"{consequence}. To look: dmesg | tail -50"
            )
        case DatabaseTrouble.DAMAGED:
            return (
                f"{where} is damaged ({trouble.detail}); it is left as it is, and {consequence}. To start a new one "
                f"and keep the old, once no holdfast is running: {_move_away(path)}"
            )
        case DatabaseTrouble.FOREIGN:
            return (
                f"{path} is not a journal of holdfast ({trouble.detail}); it is left as it is, and {consequence}. "
                f"To keep it and start a journal: {_move_away(path)}"
            )
        case DatabaseTrouble.NEWER:
            return (
                f"{where} was written by a newer holdfast ({trouble.detail}); it is left as it is, and {consequence}. "
                "To read it: use that holdfast, or give this one a HOLDFAST_HOME of its own"
            )


def _is_full(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _move_away(path: Path) -> str:
    # Move the file and its write-ahead log together, because neither is complete without the other.
    return f"mkdir {path.parent}/damaged && mv {path}* {path.parent}/damaged/"


def _layout_of(db: sqlite3.Connection) -> int:
    """Return the version of the database's tables; 0 for an empty file. Raises `Unusable` if the file is not
    holdfast's, or if its layout is too new.
    """
    layout = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    if owner == APPLICATION_ID:
        if layout > LAYOUT:
            raise Unusable(DatabaseTrouble.NEWER, f"its layout is {layout}, this holdfast knows up to {LAYOUT}")
        return layout
    if layout or owner or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Unusable(DatabaseTrouble.FOREIGN, "it is another program's SQLite file")
    return 0


def _migrate(db: sqlite3.Connection) -> None:
    if _layout_of(db) == LAYOUT:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for number in range(_layout_of(db), LAYOUT):
            for statement in _LAYOUTS[number]:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {LAYOUT}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _create(path: Path) -> None:
    """Create the database with its tables under a temporary name, then link it to `path`. Other processes never see an
    incomplete file.
    """
    import sqlite3

    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        db = sqlite3.connect(temporary, timeout=BUSY_MS / 1000, isolation_level=None)
        try:
            # WAL mode needs memory that all readers and writers share; a network file system has none.
            if not on_network_filesystem(path.parent):
                db.execute("PRAGMA journal_mode = WAL")
            _migrate(db)
        finally:
            db.close()
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another run has created the file meanwhile, so use that file
        except OSError:
            # The file system has no hard links, so rename the file, unless another run has created it meanwhile.
            if not path.exists():
                temporary.rename(path)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)
