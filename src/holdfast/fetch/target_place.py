"""Puts a prerequisite into its place, completely or not at all, and once for all processes of the machine.

Beside NAME there are `.NAME.holdfast-lock` (locked during a fetch), `.NAME.holdfast-part/` (the bytes so far and their
version) and `.NAME.holdfast.json` (the record of what NAME contains). A crash at any time is safe: the record is on the
disk before the rename, and NAME counts only if its record exists. If a process is killed at any moment, the next
process continues the partial fetch, or treats the files as missing.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.fetch.fetch_failures import FetchError, writing
from holdfast.fetch.prerequisite_uris import Uri
from holdfast.fetch.source_api import BLOCK
from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.model.runtime_plan import Prerequisite
from holdfast.safe_directories import is_trusted
from holdfast.safe_files import opened, read_file, replace_file
from holdfast.untrusted import Malformed, json_as

MOST_RECORD_BYTES = 1 << 16
#: Mode of fetched files. The task may run as another user, who must be able to read them.
READABLE = 0o644

#: The largest file of ext4 with blocks of 4 KiB.
LARGEST_FILE_BYTES = 16 << 40


class Record(Noun, frozen=True, kw_only=True):
    """Describes a completely fetched prerequisite. The record is stored in a file beside the prerequisite."""

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
    """Return a key that identifies the prerequisite's content.

    It is a hash of the checksum if the user gives one, or else of the whole URI with its options.
    """
    same = thing.sha256.lower() or "\n".join((uri.url, uri.ref, *(f"{k}={v}" for k, v in sorted(uri.options.items()))))
    return hashlib.sha256(f"{same}\n{thing.extract}".encode()).hexdigest()


class TargetPlace:
    """Manages the files of one prerequisite. `into`: its final path. `key`: identifies its content, see `key_of`."""

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
        #: Path of the incomplete file or directory, inside `part`, the directory for partial data.
        self.data = self.part / "data"

    # ---------------------------------------------------------------------------------- finding a complete prerequisite

    def whole(self, sha256: str = "") -> Record | None:
        """Return the record if the prerequisite is completely fetched and has the content of `key`; else None.

        Another user could have written both record and content. Such content counts only if it is a file with the
        checksum `sha256`.
        """
        found = self._recorded()
        if found is None or found.key != self.key:
            return None
        try:
            if found.is_dir:
                return found if self.into.is_dir() and self._is_ours() else None
            if not self.into.is_file() or self.into.stat().st_size != found.bytes:
                return None
            return found if self._is_ours() or (sha256 and _sha256(self.into) == sha256.lower()) else None
        except OSError:
            return None

    def _is_ours(self) -> bool:
        return _ours(self.record) and _ours(self.into)

    def _recorded(self) -> Record | None:
        try:
            return json_as(read_file(self.record, MOST_RECORD_BYTES), Record)
        except (OSError, Malformed):
            return None

    # ------------------------------------------------------------------------- locking the prerequisite

    @contextmanager
    def held(self, who: str, waits: Callable[[str], None]) -> Iterator[None]:
        """Lock the prerequisite, so that no other process fetches it to the same path.

        `who`: name of this process, for other processes that wait.
        `waits`: if another process has the lock, called with the name of that process before the wait.
        """
        with writing(self._beside):
            self._beside.mkdir(parents=True, exist_ok=True)
            # Any user who can open a file could keep it locked, so the mode is 0600. A file that another user has
            # created is removed.
            self._clear_of_others(self._lock)
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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

    # --------------------------------------------------------------------------------- handling partial data

    def prepare(self, sha256: str = "") -> None:
        """Create the directory for partial data, and empty it if it belongs to another prerequisite.

        The caller holds the lock. `sha256`: the expected checksum. Only with a checksum may content of another user be
        replaced. Otherwise this method raises FetchError.
        """
        recorded = self._recorded()
        if recorded is None and os.path.lexists(self.into):
            raise FetchError(
                Phrase.PLACE_TAKEN,
                f"{self.into} is there already, and holdfast has not fetched it",
                f"Move it away, or name another place with `into:`; ls -ld {self.into}",
            )
        if not sha256 and os.path.lexists(self.into) and not self._is_ours():
            raise FetchError(
                Phrase.PLACE_TAKEN,
                f"{self.into} or its record is another user's, who may have put anything there",
                f"Name another place with `into:`, or remove both; ls -ld {self.into} {self.record}",
            )
        with writing(self.part):
            self._clear_of_others(self.part)
            if self.part.is_dir() and self.state().key != self.key:
                shutil.rmtree(self.part)
            self.part.mkdir(mode=0o755, exist_ok=True)
            self._clear_of_others(self.part, remove=False)  # another user may have created it since
            if not self._state.exists():
                self.note("", None)

    def _clear_of_others(self, path: Path, *, remove: bool = True) -> None:
        """Remove a file, directory or link of another user beside the place. Raise FetchError if this fails."""
        try:
            if _ours(path) and not path.is_symlink():
                return
            if remove and (path.is_symlink() or not path.is_dir()):
                path.unlink()
            elif remove:
                shutil.rmtree(path)
        except FileNotFoundError:
            return
        except PermissionError:
            pass  # in a sticky directory, only the owner may remove it
        if os.path.lexists(path):
            raise FetchError(
                Phrase.PLACE_TAKEN,
                f"{path} is another user's, who could change {self.into.name} while it comes",
                f"Name another place with `into:`; ls -ld {self._beside} {path}",
            )

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
        """Delete the partial data, because the fetch cannot be resumed."""
        with writing(self.part):
            shutil.rmtree(self.part, ignore_errors=True)
            self.part.mkdir(mode=0o755, exist_ok=True)
        self.note("", None)

    def tidy(self) -> None:
        """Remove the directory for partial data if it contains none."""
        if not self.data.exists():
            shutil.rmtree(self.part, ignore_errors=True)

    def free_bytes(self) -> int:
        with writing(self._beside):
            found = os.statvfs(self._beside)
            return found.f_bavail * found.f_frsize

    def must_fit(self, need: int, shown: str, *, claimed: bool = False) -> None:
        """Raise FetchError if `need` more bytes do not fit on the disk.

        `claimed`: whether the number comes only from the server. A number larger than this disk and than any file is
        the server's mistake, so no other node is tried.
        """
        with writing(self._beside):
            disk = os.statvfs(self._beside)
        if claimed and need > max(whole := disk.f_blocks * disk.f_frsize, LARGEST_FILE_BYTES):
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE,
                f"{shown} has {need} bytes, as its server says, and the whole disk of {self._beside} has {whole}",
                "Look at the source: a server that counts wrong says such numbers. Or name a place on a larger disk.",
            )
        if need > (free := self.free_bytes()):
            raise FetchError(
                Phrase.DISK_FULL,
                f"{shown} needs {need} bytes, and {self._beside} has {free} free",
                f"Free space there (df -h {self._beside}), or name another place with `into:`.",
                here=True,
            )

    # ------------------------------------------------------------------------------------------ moving into place

    def commit(self, what: Path, record: Record) -> None:
        """Move the file or directory `what` to the final path. `what` must be complete and flushed to the disk."""
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
    """Flush all files and directories under `top` to the disk; return the size of the files in bytes.

    The whole file system is flushed at once: an fsync for each of 300,000 entries takes a quarter of an hour.
    """
    total = size_of(top)
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # not on Linux
        os.sync()
        return total
    fd = os.open(top, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(top))
    finally:
        os.close(fd)
    return total


def size_of(top: Path) -> int:
    """Return the total size of all files under `top`, in bytes. A file that is deleted meanwhile counts as empty."""
    total = 0
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                found = Path(folder, name).lstat()
            except OSError:
                continue
            total += 0 if stat.S_ISLNK(found.st_mode) else found.st_size
    return total


def _ours(path: Path) -> bool:
    """Return whether this user or root owns the path. A symbolic link is not followed. Raises OSError.

    The owner of this module's file is trusted as well, because this process runs that user's code. In a pod, the init
    container brings holdfast and the data, and the task's container may have another user.
    """
    owner = path.lstat().st_uid
    return is_trusted(owner) or owner == Path(__file__).stat().st_uid


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
