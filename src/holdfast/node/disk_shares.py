"""Measures each job's share of a disk. Every job lists the directories and files that belong to it in a share file.

A share lists a job's directories, and the files that its processes were writing at a scan. The deciding job measures
all shares at one moment, so deleted files do not count. If the cleaner stops a job, the job renames its share file,
which needs no room on a full disk. A renamed share counts while its files exist. Any other share counts while its job
lives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.act.linux import descendants
from holdfast.model.codec import encode
from holdfast.model.noun_base import Noun
from holdfast.observe.disk_usage import still_there, taken, written_files
from holdfast.record.owner_lock import OwnerLiveness, life_of, read_owner
from holdfast.safe_files import read_file, write_file
from holdfast.untrusted import Malformed, json_as

SHARE_NAME = "disk-share.json"
STOPPED_NAME = "disk-share-stopped.json"
#: The latest this many written files of each job are remembered.
MOST_WRITTEN = 10_000
SHARE_BYTES = 32 << 20
#: A job on another host counts as live for this many seconds after the last update of its share file, because this host
#: cannot see its lock.
SILENT_S = 60.0


class DiskShare(Noun, frozen=True, kw_only=True):
    """The content of a job's share file: the directories and files that belong to the job."""

    #: Directories whose files all belong to the job.
    directories: tuple[str, ...] = ()
    #: Files seen open for writing: path → inode number.
    files: dict[str, int] = {}


class User(Noun, frozen=True, kw_only=True):
    """One job, and how much of one file system it uses now."""

    job: str
    size_bytes: int
    inodes: int
    #: Whether the disk cleaner stopped the job.
    stopped: bool = False
    #: Whether the job has a disk limit, so that the cleaner may stop it.
    limited: bool = True


class DiskShares:
    """The share files of all jobs in one state directory, read and written by one of these jobs."""

    def __init__(self, job_dir: Path, directories: tuple[str, ...]) -> None:
        """`job_dir`: the job's directory. `directories`: those that belong to this job as a whole."""
        self._job_dir = job_dir
        self._directories = directories
        self._files: dict[str, int] = {}
        self._path = job_dir / SHARE_NAME
        self._written = b""
        #: The ids of ended jobs that the disk cleaner did not stop. Their files do not count any more.
        self._over: set[str] = set()
        self._told: set[Path] = set()
        #: Messages about share files that cannot be read.
        self.news: list[str] = []

    @property
    def files(self) -> Mapping[str, int]:
        """Return path → inode number of the files that this job wrote and that existed at the last scan."""
        return self._files

    def note(self, written: Mapping[str, int]) -> None:
        """Add the written files to this job's share file. If its content stays the same, only update its modification
        time.
        """
        known = {**still_there(self._files), **written}
        self._files = dict(list(known.items())[-MOST_WRITTEN:])
        data = encode(DiskShare(directories=self._directories, files=self._files))
        try:
            if data == self._written:
                os.utime(self._path)  # the new modification time shows other hosts that this job lives
                return
            fresh = self._job_dir / f".{self._path.name}"
            write_file(fresh, data)
            fresh.replace(self._path)
            self._written = data
        except OSError:
            pass  # ignore a full disk: other jobs then use the older share file, and the open files that they see

    def mark_stopped(self) -> None:
        """Mark this job as stopped by the disk cleaner, by renaming its share file."""
        try:
            self._path.rename(self._job_dir / STOPPED_NAME)
        except OSError:
            # Ignore a missing share file: the disk was full from the start. Without the file, other jobs do not count
            # this job's files after its end.
            return
        self._path = self._job_dir / STOPPED_NAME

    def withdraw(self) -> None:
        """Remove this job's share file, because the job ends without a stop by the disk cleaner."""
        self._path.unlink(missing_ok=True)

    def users(self, device: int) -> list[User]:
        """Return how much of the file system `device` (`st_dev`) each job uses: this one, and every other job that
        counts.
        """
        mine = DiskShare(directories=self._directories, files=self._files)
        found = [(self._job_dir.name, mine, self._path.name == STOPPED_NAME, True)]
        for directory in self._others():
            known = self._share_of(directory)
            if known is not None:
                found.append((directory.name, *known))
        live = {path for _, share, stopped, _ in found if not stopped for path in share.files}
        users = []
        for job, share, stopped, limited in found:
            # A file in the lists of a live job and a stopped job counts for the live one.
            files = {path: node for path, node in share.files.items() if not stopped or path not in live}
            if stopped:
                files = still_there(files)
            size, inodes = taken([Path(name) for name in share.directories], files, device)
            users.append(User(job=job, size_bytes=size, inodes=inodes, stopped=stopped, limited=limited))
        return users

    def _others(self) -> Iterator[Path]:
        try:
            found = list(self._job_dir.parent.iterdir())
        except OSError:
            return
        yield from (path for path in found if path != self._job_dir and path.name not in self._over)

    def _share_of(self, directory: Path) -> tuple[DiskShare, bool, bool] | None:
        """Return another job's share, whether the disk cleaner stopped that job, and whether that job has a disk limit.
        `directory`: the job's directory. Return None if the job does not count.
        """
        life = life_of(directory)
        share = self._read(directory / SHARE_NAME)
        # Read the stopped job's file after the share file, because a job that stops meanwhile renames its share file
        # before it ends.
        if (stopped := self._read(directory / STOPPED_NAME)) is not None:
            return stopped, True, True
        if life is OwnerLiveness.DEAD:
            self._over.add(directory.name)
        if life is OwnerLiveness.OUT_OF_SIGHT:
            return (share, False, True) if share is not None and self._is_fresh(directory / SHARE_NAME) else None
        if life is not OwnerLiveness.ALIVE:
            return None
        seen, own = self._seen_from_outside(directory), (str(directory), *_logs(directory))
        if share is None:
            return DiskShare(directories=own, files=seen), False, (directory / SHARE_NAME).exists()
        directories = tuple(dict.fromkeys((*own, *share.directories)))
        return DiskShare(directories=directories, files={**share.files, **seen}), False, True

    def _seen_from_outside(self, directory: Path) -> dict[str, int]:
        """Return path → inode number of the files that another live job's processes on this host are writing."""
        supervisor = read_owner(directory)
        if supervisor is None or supervisor.host != os.uname().nodename:
            return {}
        return written_files(descendants(supervisor.pid))

    def _is_fresh(self, path: Path) -> bool:
        """Return whether another job's share file is recent. Compare it with our own share file, because the file
        system's clock dates both.
        """
        try:
            return self._path.stat().st_mtime - path.stat().st_mtime < SILENT_S
        except OSError:
            return False

    def _read(self, path: Path) -> DiskShare | None:
        try:
            return json_as(read_file(path, SHARE_BYTES), DiskShare)
        except FileNotFoundError:
            return None
        except (OSError, Malformed) as error:
            if path not in self._told:
                self._told.add(path)
                why = error.strerror if isinstance(error, OSError) else error
                self.news.append(f"{path} cannot be used ({why}): what that job wrote is not weighed by it")
            return None


def _logs(directory: Path) -> tuple[str, ...]:
    """Return the job's log directory if it is not in the job's directory."""
    link = directory / "logs"
    return (os.path.realpath(link),) if link.is_symlink() else ()
