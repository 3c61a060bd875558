"""Which jobs use how much of a disk: the share that each writes for the others, and which jobs count.

A share names what belongs to a job: its directories, and the files that its processes were seen writing. The job that
decides measures them all itself, at one moment, so files that were deleted since do not count. A job that the cleaner
stopped renames its share, which needs no room on a full disk; it counts for as long as its files remain. The share of
any other job counts for as long as the job lives.
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
#: How many written files are remembered per job; the latest are kept.
MOST_WRITTEN = 10_000
SHARE_BYTES = 32 << 20
#: A job on another host, whose lock cannot be judged from here, counts as live if its share was touched this late.
SILENT_S = 60.0


class DiskShare(Noun, frozen=True, kw_only=True):
    """The files that belong to one job."""

    #: Counted with everything in them.
    directories: tuple[str, ...] = ()
    #: Seen open for writing: path → inode number.
    files: dict[str, int] = {}


class User(Noun, frozen=True, kw_only=True):
    """One job, and how much it uses of one file system now."""

    job: str
    size_bytes: int
    inodes: int
    #: The disk cleaner stopped it.
    stopped: bool = False
    #: It runs under a disk limit, so the cleaner may stop it.
    limited: bool = True


class DiskShares:
    """The shares of all jobs in one state directory, as one of these jobs sees them."""

    def __init__(self, job_dir: Path, directories: tuple[str, ...]) -> None:
        self._job_dir = job_dir
        self._directories = directories
        self._files: dict[str, int] = {}
        self._path = job_dir / SHARE_NAME
        self._written = b""
        self._over: set[str] = set()
        """Jobs that ended without the cleaner: they do not come back."""
        self._told: set[Path] = set()
        self.news: list[str] = []
        """Sentences about shares that are unusable."""

    @property
    def files(self) -> Mapping[str, int]:
        """The files that this job was seen writing, as far as they still exist."""
        return self._files

    def note(self, written: Mapping[str, int]) -> None:
        """Add these to this job's share: written again where that changed it, only touched otherwise."""
        known = {**still_there(self._files), **written}
        self._files = dict(list(known.items())[-MOST_WRITTEN:])
        data = encode(DiskShare(directories=self._directories, files=self._files))
        try:
            if data == self._written:
                os.utime(self._path)  # a sign of life for other hosts
                return
            fresh = self._job_dir / f".{self._path.name}"
            write_file(fresh, data)
            fresh.replace(self._path)
            self._written = data
        except OSError:
            pass  # the disk may be full already: others use the earlier share, and what they see themselves

    def mark_stopped(self) -> None:
        """Mark this job as one that the cleaner stopped."""
        try:
            self._path.rename(self._job_dir / STOPPED_NAME)
        except OSError:
            return  # no share, because the disk was full from the start: once this job is over, it does not count
        self._path = self._job_dir / STOPPED_NAME

    def withdraw(self) -> None:
        """The job ends without the cleaner."""
        self._path.unlink(missing_ok=True)

    def users(self, device: int) -> list[User]:
        """This job and all others that count, each with how much it uses of the file system `device` (`st_dev`)."""
        mine = DiskShare(directories=self._directories, files=self._files)
        found = [(self._job_dir.name, mine, self._path.name == STOPPED_NAME, True)]
        for directory in self._others():
            known = self._share_of(directory)
            if known is not None:
                found.append((directory.name, *known))
        live = {path for _, share, stopped, _ in found if not stopped for path in share.files}
        users = []
        for job, share, stopped, limited in found:
            # A file that a live job writes to is its own, even if the file existed before.
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
        """The share of another job, whether the cleaner stopped it, whether it has a limit; None: it does not count."""
        life = life_of(directory)
        share = self._read(directory / SHARE_NAME)
        # This look comes last: a job that is stopped meanwhile renames its share before it ends.
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
        """The files that the processes of another live job on this host write now."""
        supervisor = read_owner(directory)
        if supervisor is None or supervisor.host != os.uname().nodename:
            return {}
        return written_files(descendants(supervisor.pid))

    def _is_fresh(self, path: Path) -> bool:
        """Whether its owner touched it recently: the file system's clock dates both it and our own share."""
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
    """Where a job keeps its logs, if not in its directory."""
    link = directory / "logs"
    return (os.path.realpath(link),) if link.is_symlink() else ()
