"""Puts a prerequisite into its place, completely or not at all, and once for all processes of the machine.

Beside NAME there are `.NAME.holdfast-lock` (locked during a fetch), `.NAME.holdfast-part/` (the bytes so far and their
version) and `.NAME.holdfast.json` (the record of what NAME contains). The order of the last steps makes a crash safe:
the record is on the disk before the rename, and NAME counts only if its record exists. If a process is killed at any
moment, the next process continues the partial fetch, or treats the files as missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.fetch.fetch_failures import FetchError, writing
from holdfast.fetch.prerequisite_uris import Uri
from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.model.runtime_plan import Prerequisite
from holdfast.safe_files import read_file, replace_file
from holdfast.untrusted import Malformed, json_as

MOST_RECORD_BYTES = 1 << 16
#: Mode of fetched files. The task may run as another user, who must be able to read them.
READABLE = 0o644


class Record(Noun, frozen=True, kw_only=True):
    """The record of what a complete place contains. It is stored beside the place."""

    key: str
    shown: str
    bytes: int
    is_dir: bool = False
    mark: str = ""
    fetched_at: float = 0.0


class PartialFetch(Noun, frozen=True, kw_only=True):
    """The version and the full size of an unfinished fetch."""

    key: str
    mark: str = ""
    bytes: int | None = None


def key_of(thing: Prerequisite, uri: Uri) -> str:
    """Return a key that is equal for equal content.

    It is a hash of the checksum, or of the whole URI without a checksum.
    """
    same = thing.sha256.lower() or "\n".join((uri.url, uri.ref, *(f"{k}={v}" for k, v in sorted(uri.options.items()))))
    return hashlib.sha256(f"{same}\n{thing.extract}".encode()).hexdigest()


class TargetPlace:
    """The place of one prerequisite. `into`: its final path. `key`: identifies its content, see `key_of`."""

    def __init__(self, into: Path, key: str) -> None:
        if not into.name or into.name in (".", ".."):
            raise BadUsage(f"into: {into} is no name for a file or directory")
        self.into = into
        self.key = key
        self._beside = into.parent
        self.part = self._beside / f".{into.name}.holdfast-part"
        self.record = self._beside / f".{into.name}.holdfast.json"
        self._lock = self._beside / f".{into.name}.holdfast-lock"
        self._state = self.part / "state.json"
        #: Path of the incomplete file or directory, inside the directory for partial data.
        self.data = self.part / "data"

    # ------------------------------------------------------------------------------------------ what is there

    def whole(self) -> Record | None:
        """Return the record if the place is complete and has the content of `key`. Otherwise return None."""
        found = self._recorded()
        if found is None or found.key != self.key:
            return None
        if found.is_dir:
            return found if self.into.is_dir() else None
        try:
            return found if self.into.is_file() and self.into.stat().st_size == found.bytes else None
        except OSError:
            return None

    def _recorded(self) -> Record | None:
        try:
            return json_as(read_file(self.record, MOST_RECORD_BYTES), Record)
        except (OSError, Malformed):
            return None

    # ------------------------------------------------------------------------------------------ the lock

    @contextmanager
    def held(self, who: str, waits: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock of this place, so that no other process fetches into it.

        `who`: name of this process, for other processes that wait.
        `waits`: if another process has the lock, called with the name of that process before the wait.
        """
        with writing(self._beside):
            self._beside.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, READABLE)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits(os.pread(fd, 500, 0).decode("utf-8", "replace") or "another process")
                fcntl.flock(fd, fcntl.LOCK_EX)
            with writing(self._lock):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{who or 'another process'} (pid {os.getpid()})".encode()[:500], 0)
            yield
        finally:
            os.close(fd)

    # ------------------------------------------------------------------------------------------ while it comes

    def prepare(self) -> None:
        """Create the directory for partial data. Empty it if its data belong to another prerequisite.

        The caller holds the lock.
        """
        recorded = self._recorded()
        if recorded is None and os.path.lexists(self.into):
            raise FetchError(
                Phrase.PLACE_TAKEN,
                f"{self.into} is there already, and holdfast has not fetched it",
                f"Move it away, or name another place with `into:`; ls -ld {self.into}",
            )
        with writing(self.part):
            if self.part.is_dir() and self.state().key != self.key:
                shutil.rmtree(self.part)
            self.part.mkdir(mode=0o755, exist_ok=True)
            if not self._state.exists():
                self.note("", None)

    def state(self) -> PartialFetch:
        try:
            return json_as(read_file(self._state, MOST_RECORD_BYTES), PartialFetch)
        except (OSError, Malformed):
            return PartialFetch(key="")

    def note(self, mark: str, size: int | None) -> None:
        """Record version (`mark`) and full size (`size`, in bytes) of the prerequisite, to resume the fetch later."""
        with writing(self._state):
            replace_file(self._state, encode(PartialFetch(key=self.key, mark=mark, bytes=size)), READABLE)

    def forget(self) -> None:
        """Delete the partial data, because they can no longer be continued."""
        with writing(self.part):
            shutil.rmtree(self.part, ignore_errors=True)
            self.part.mkdir(mode=0o755, exist_ok=True)
        self.note("", None)

    def tidy(self) -> None:
        """If no byte has arrived, remove the directory for partial data."""
        if not self.data.exists():
            shutil.rmtree(self.part, ignore_errors=True)

    def free_bytes(self) -> int:
        with writing(self._beside):
            found = os.statvfs(self._beside)
            return found.f_bavail * found.f_frsize

    def must_fit(self, need: int, shown: str) -> None:
        """Raise FetchError if `need` more bytes do not fit on the disk."""
        if need > (free := self.free_bytes()):
            raise FetchError(
                Phrase.DISK_FULL,
                f"{shown} needs {need} bytes, and {self._beside} has {free} free",
                f"Free space there (df -h {self._beside}), or name another place with `into:`.",
                here=True,
            )

    # ------------------------------------------------------------------------------------------ its end

    def commit(self, what: Path, record: Record) -> None:
        """Move `what` to its final place. `what` must be complete and on the disk."""
        with writing(self.into):
            self.record.unlink(missing_ok=True)
            if os.path.lexists(self.into):
                old = self.part / "old"
                if old.is_dir():
                    shutil.rmtree(old)
                self.into.rename(old)
            sync(self._beside)
            replace_file(self.record, encode(record), READABLE)
            sync(self.record)
            sync(self._beside)
            what.rename(self.into)
            sync(self._beside)
            shutil.rmtree(self.part, ignore_errors=True)


def sync(path: Path) -> None:
    """Flush this file or directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(top: Path) -> int:
    """Flush all files and directories under `top` to the disk. Return their total size in bytes."""
    total = 0
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                sync(path)
                total += path.stat().st_size
        sync(Path(folder))
    return total
