"""Puts a prerequisite in its place: complete or not at all, once for all processes of the machine.

Beside NAME there are `.NAME.holdfast-lock` (held while it is fetched), `.NAME.holdfast-part/` (the bytes so far, and
their version) and `.NAME.holdfast.json` (the record: the complete content of NAME). The order of the last steps makes
it safe: the record is on the disk before the rename, and NAME counts only with its record. A process that is killed at
any moment leaves a part that the next one continues, or files that count as missing.
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
#: The task's user, who may be another one, must be able to read the fetched files.
READABLE = 0o644


class Record(Noun, frozen=True, kw_only=True):
    """The complete content of a place."""

    key: str
    shown: str
    bytes: int
    is_dir: bool = False
    mark: str = ""
    fetched_at: float = 0.0


class PartialFetch(Noun, frozen=True, kw_only=True):
    """The version of an unfinished fetch's bytes."""

    key: str
    mark: str = ""
    bytes: int | None = None


def key_of(thing: Prerequisite, uri: Uri) -> str:
    """Equal for equal content: the checksum, where one is given, else the whole URI."""
    same = thing.sha256.lower() or "\n".join((uri.url, uri.ref, *(f"{k}={v}" for k, v in sorted(uri.options.items()))))
    return hashlib.sha256(f"{same}\n{thing.extract}".encode()).hexdigest()


class TargetPlace:
    """One prerequisite's place. `key`: that of its content."""

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
        self.data = self.part / "data"
        """What is being fetched."""

    # ------------------------------------------------------------------------------------------ what is there

    def whole(self) -> Record | None:
        """The record of the place, if it is this prerequisite and complete."""
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
        """No other process fetches here meanwhile. `waits` is called with that process's name before the wait
        for it."""
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
        """With the lock held: the part exists, and its content belongs to this prerequisite."""
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
        """The part is of this version from now on."""
        with writing(self._state):
            replace_file(self._state, encode(PartialFetch(key=self.key, mark=mark, bytes=size)), READABLE)

    def forget(self) -> None:
        """Begin anew: the present bytes are useless."""
        with writing(self.part):
            shutil.rmtree(self.part, ignore_errors=True)
            self.part.mkdir(mode=0o755, exist_ok=True)
        self.note("", None)

    def tidy(self) -> None:
        """No byte arrived: remove all traces of the fetch."""
        if not self.data.exists():
            shutil.rmtree(self.part, ignore_errors=True)

    def free_bytes(self) -> int:
        with writing(self._beside):
            found = os.statvfs(self._beside)
            return found.f_bavail * found.f_frsize

    def must_fit(self, need: int, shown: str) -> None:
        """Raises Trouble where so many further bytes do not fit."""
        if need > (free := self.free_bytes()):
            raise FetchError(
                Phrase.DISK_FULL,
                f"{shown} needs {need} bytes, and {self._beside} has {free} free",
                f"Free space there (df -h {self._beside}), or name another place with `into:`.",
                here=True,
            )

    # ------------------------------------------------------------------------------------------ its end

    def commit(self, what: Path, record: Record) -> None:
        """`what` (inside the part) is complete and on the disk: from now on it is at its place."""
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
    """Makes this file or directory safe from a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(top: Path) -> int:
    """Makes all files and directories under `top` safe from a power cut; returns their bytes."""
    total = 0
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                sync(path)
                total += path.stat().st_size
        sync(Path(folder))
    return total
