"""The owner's lock, an exclusive `flock` on a file in the job's directory. It shows whether the job's owner is alive.

The owner has the lock for its whole life. A process id can be reused and a heartbeat can be late, but the kernel
releases a dead process's lock at once.
"""

from __future__ import annotations

import enum
import fcntl
import os
from pathlib import Path
from typing import Self

import msgspec

from holdfast.model.codec import encode
from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.record.database import on_network_filesystem
from holdfast.safe_files import open_file, read_file
from holdfast.untrusted import Malformed, json_as, wrong_time

LOCK_NAME = "supervisor.lock"
#: `OwnerInfo.queued` of a job that was submitted to this machine's queue, until its run has begun.
NOT_BEGUN = "it waits for its turn in this machine's queue"
MOST_LOCK_BYTES = 64 * 1024


class OwnerInfo(Noun, frozen=True, kw_only=True):
    """The contents of the lock file. They identify a job and its owner even without the journal."""

    job_id: str
    name: str
    host: str
    pid: int
    #: When the job was created, in seconds since the epoch.
    created: float
    #: The boot id of the owner's machine; empty if unknown.
    boot_id: str = ""
    #: The path of the job's report if it could not be written to the job's directory; else empty.
    report: str = ""
    #: The platform's names for the job; None: no platform has started it.
    platform: PlatformJob | None = None
    #: How often the platform had started the job before this owner's run.
    run: int = 0
    #: Why this owner, at its end, requested another run from the platform; empty: it did not.
    queued: str = ""


class OwnerLiveness(enum.Enum):
    """Whether a job's owner is alive, as the owner's lock shows."""

    ALIVE = enum.auto()
    #: The owner's lock is free, because the owner's process has ended.
    DEAD = enum.auto()
    #: The owner ran on another machine, so a free lock on this machine proves nothing.
    OUT_OF_SIGHT = enum.auto()
    #: The job's directory has no lock file.
    UNKNOWN = enum.auto()


class OwnerLock:
    """The owner's lock of this process. It is released when `fd` is closed, or when all processes with the file open
    have died.

    An exec closes the descriptor. A forked child without an exec must close it, because the job would otherwise seem to
    have an owner while the child lives.
    """

    def __init__(self, fd: int, supervisor: OwnerInfo) -> None:
        self.fd = fd
        self.supervisor = supervisor

    @classmethod
    def take(cls, job_dir: Path, supervisor: OwnerInfo, *, anew: bool = False) -> Self:
        """Take the owner's lock in a job's directory. Raises OSError: BlockingIOError if another owner is alive.

        anew: replace the lock file by a new one, even if another owner holds the old one.
        """
        place = job_dir / LOCK_NAME
        # Give a new lock file its name only once it is locked and written, so that no reader sees it unlocked or empty.
        fresh = anew or not place.exists()
        path = job_dir / f".{LOCK_NAME}.{os.getpid()}" if fresh else place
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, encode(supervisor) + b"\n", 0)
            if fresh:
                path.rename(place)
        except BaseException:
            os.close(fd)
            if fresh:
                path.unlink(missing_ok=True)
            raise
        return cls(fd, supervisor)

    def note_report(self, path: Path) -> None:
        """Record the report's path in the lock file. This works even on a full disk, because the file already has its
        block.
        """
        self._note(msgspec.structs.replace(self.supervisor, report=str(path)))

    def note_queued(self, reason: str, platform: PlatformJob | None = None) -> None:
        """Record why the platform will start the job after this owner's end; empty: it will not.

        platform: the names that the platform uses for the job; None: as before.
        """
        known = platform or self.supervisor.platform
        self._note(msgspec.structs.replace(self.supervisor, queued=reason, platform=known))

    def _note(self, supervisor: OwnerInfo) -> None:
        self.supervisor = supervisor
        try:
            os.pwrite(self.fd, encode(self.supervisor) + b"\n", 0)
        except OSError:
            # Ignore the error: some full file systems refuse even this write, and the terminal has already shown the
            # path.
            pass

    def release(self) -> None:
        """Release the lock. The lock file stays, because it identifies the last owner."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def boot_id() -> str:
    """Return the boot id of this machine. Return "" if /proc does not have it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def read_owner(job_dir: Path) -> OwnerInfo | None:
    """Return the job's present or last owner. Return None if the lock file is missing or unreadable."""
    try:
        found = json_as(read_file(job_dir / LOCK_NAME, MOST_LOCK_BYTES, cut=True).partition(b"\n")[0], OwnerInfo)
    except (OSError, Malformed):
        return None
    return None if wrong_time(found.created) else found


def life_of(job_dir: Path) -> OwnerLiveness:
    """Return from the lock whether the job's owner is alive. This never blocks and never writes."""
    try:
        fd = open_file(job_dir / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return OwnerLiveness.UNKNOWN
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return OwnerLiveness.ALIVE
    except OSError:
        # The lock could not be tested, because some network file systems have no locks.
        return OwnerLiveness.OUT_OF_SIGHT
    finally:
        os.close(fd)
    supervisor = read_owner(job_dir)
    elsewhere = supervisor is not None and supervisor.host != os.uname().nodename
    if elsewhere and on_network_filesystem(job_dir):
        return OwnerLiveness.OUT_OF_SIGHT
    return OwnerLiveness.DEAD
