"""Whether a job's owner is alive: it holds an exclusive `flock` on a file of the job's directory for its whole life.

A process id can be used again and a heartbeat can be late; the kernel releases a lock at the very moment its holder
dies, of any cause.
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
MOST_LOCK_BYTES = 64 * 1024


class OwnerInfo(Noun, frozen=True, kw_only=True):
    """The owner of a job: the lock file's content, by which a job is known even without the journal."""

    job_id: str
    name: str
    host: str
    pid: int
    #: Seconds since the epoch.
    created: float
    #: The boot id of its machine; empty where the machine has none.
    boot_id: str = ""
    #: The file with its report, where the job's directory could not take it; else empty.
    report: str = ""
    #: The platform's name for the job.
    platform: PlatformJob | None = None
    #: How often the platform had started the job before this owner.
    run: int = 0
    #: The owner has ended, and the platform was asked to start the job again: the reason. Empty: it was not asked.
    queued: str = ""


class OwnerLiveness(enum.Enum):
    """What the lock shows."""

    ALIVE = enum.auto()
    #: The lock is free: the owner's process has ended.
    DEAD = enum.auto()
    #: It ran on another machine: a lock that looks free from here proves nothing.
    OUT_OF_SIGHT = enum.auto()
    #: There is no lock file.
    UNKNOWN = enum.auto()


class OwnerLock:
    """The held lock. Closing `fd`, or the death of every process that has it open, releases it.

    Exec does not pass the descriptor on; a child that is forked without exec must close it, else the job would seem to
    have an owner for as long as that child lives.
    """

    def __init__(self, fd: int, supervisor: OwnerInfo) -> None:
        self.fd = fd
        self.supervisor = supervisor

    @classmethod
    def take(cls, job_dir: Path, supervisor: OwnerInfo, *, anew: bool = False) -> Self:
        """Take the lock of a job's directory. Raises OSError; BlockingIOError where another owner is alive.

        `anew`: with a new file in place of the old one, which another owner may hold.
        """
        place = job_dir / LOCK_NAME
        # A new file is locked and filled before it has its name: no reader ever sees it free or empty.
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
        """Record where the report is, since the job's directory takes no new file: this file has its block already."""
        self._note(msgspec.structs.replace(self.supervisor, report=str(path)))

    def note_queued(self, reason: str) -> None:
        """Record that this owner ends and the job does not: its platform starts it again. Empty: it does not."""
        self._note(msgspec.structs.replace(self.supervisor, queued=reason))

    def _note(self, supervisor: OwnerInfo) -> None:
        self.supervisor = supervisor
        try:
            os.pwrite(self.fd, encode(self.supervisor) + b"\n", 0)
        except OSError:
            pass  # not even that, on some file systems: the report is where it was said to be all the same

    def release(self) -> None:
        """Release the lock. The file stays: it records who the owner was."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def boot_id() -> str:
    """The boot id of this machine; empty where /proc has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def read_owner(job_dir: Path) -> OwnerInfo | None:
    """The present or last owner of the job; None where the lock file is missing or unreadable."""
    try:
        found = json_as(read_file(job_dir / LOCK_NAME, MOST_LOCK_BYTES, cut=True).partition(b"\n")[0], OwnerInfo)
    except (OSError, Malformed):
        return None
    return None if wrong_time(found.created) else found


def life_of(job_dir: Path) -> OwnerLiveness:
    """Look whether the job's owner is alive. Waits for nothing, changes nothing."""
    try:
        fd = open_file(job_dir / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return OwnerLiveness.UNKNOWN
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return OwnerLiveness.ALIVE
    except OSError:
        # Some network file systems know no locks at all.
        return OwnerLiveness.OUT_OF_SIGHT
    finally:
        os.close(fd)
    supervisor = read_owner(job_dir)
    elsewhere = supervisor is not None and supervisor.host != os.uname().nodename
    if elsewhere and on_network_filesystem(job_dir):
        return OwnerLiveness.OUT_OF_SIGHT
    return OwnerLiveness.DEAD


def survivors(job_id: str) -> list[tuple[int, str]]:
    """Processes of this machine and user that a job's workers started and that are still alive: pid and command."""
    from holdfast.model.shown_command import shown  # only a job that was lost needs it

    mark = f"HOLDFAST_JOB={job_id}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((int(entry.name), shown((entry / "cmdline").read_bytes())))
        except OSError:
            continue  # gone since, or another user's
    return sorted(found)
