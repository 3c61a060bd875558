"""Measures how full a file system is, in total and by one job, for the disk cleaner."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.model.noun_base import Noun

#: At most this many files are counted for a job. For a larger tree the result is a lower bound.
MOST_FILES = 200_000


#: At most this many names in a directory are searched for a renamed file.
MOST_LOOKED_AT = 20_000


class DiskUse(Noun, frozen=True, kw_only=True):
    """The use of a file system, from `statvfs`. As in `df`, the total leaves out the space that is reserved for
    root.
    """

    path: str
    device: int
    total_bytes: int
    used_bytes: int
    total_inodes: int
    used_inodes: int

    @property
    def percent(self) -> float:
        return 100 * self.used_bytes / self.total_bytes if self.total_bytes else 0.0


def disk_use(path: Path) -> DiskUse | None:
    """Return the use of the file system of `path`, or None if it cannot be read."""
    try:
        seen = os.statvfs(path)
        device = path.stat().st_dev
    except OSError:
        return None
    usable = seen.f_blocks - seen.f_bfree + seen.f_bavail
    return DiskUse(
        path=str(path),
        device=device,
        total_bytes=usable * seen.f_frsize,
        used_bytes=(seen.f_blocks - seen.f_bfree) * seen.f_frsize,
        total_inodes=seen.f_files,
        used_inodes=seen.f_files - seen.f_ffree,
    )


def written_files(pids: Iterable[int]) -> dict[str, int]:
    """Return path → inode number of the regular files that these processes have open for writing.

    Leave out exited processes and deleted files.
    """
    found: dict[str, int] = {}
    for pid in pids:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                # The mode of the link in /proc shows how the file was opened.
                writable = entry.lstat().st_mode & stat.S_IWUSR
                info = entry.stat()
                if writable and stat.S_ISREG(info.st_mode) and info.st_nlink:
                    found[str(entry.readlink())] = info.st_ino
            except OSError:
                continue
    return found


def still_there(files: Mapping[str, int]) -> dict[str, int]:
    """Return the files of `files` (path → inode) that still exist. A file that was renamed within its directory gets
    its new path.

    Programs write a checkpoint under a temporary name and rename it, so its inode number identifies it. A path with
    another inode is another file.
    """
    found: dict[str, int] = {}
    moved: dict[str, set[int]] = {}
    for path, inode in files.items():
        if _inode(path) == inode:
            found[path] = inode
        else:
            moved.setdefault(str(Path(path).parent), set()).add(inode)
    for directory, inodes in moved.items():
        try:
            with os.scandir(directory) as entries:
                for entry in itertools.islice(entries, MOST_LOOKED_AT):
                    if entry.inode() in inodes and entry.path not in found and entry.is_file(follow_symlinks=False):
                        found[entry.path] = entry.inode()
        except (OSError, ValueError):
            continue  # skip a directory that was removed, and an invalid path
    return found


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except (OSError, ValueError):
        return None


def taken(directories: Iterable[Path], files: Mapping[str, int], device: int) -> tuple[int, int]:
    """Return how many bytes and inodes these directories and files use on the file system `device`. Each file counts
    once.

    `files`: path → inode; a path with another inode does not count.
    """
    seen: set[int] = set()
    size = 0

    def count(path: str, inode: int | None = None) -> bool:
        nonlocal size
        try:
            info = os.lstat(path)
        except (OSError, ValueError):
            return True
        if info.st_dev == device and info.st_ino not in seen and inode in (None, info.st_ino):
            seen.add(info.st_ino)
            size += info.st_blocks * 512
        return len(seen) < MOST_FILES

    for path, inode in files.items():
        if not count(path, inode):
            return size, len(seen)
    for directory in directories:
        if "\0" in str(directory):
            continue  # skip a path with a NUL byte, because it is invalid
        for parent, _, names in os.walk(directory):
            if not count(parent) or not all(count(f"{parent}/{name}") for name in names):
                return size, len(seen)
    return size, len(seen)


def in_units(size: int) -> str:
    """Return a size in bytes as text with about two digits: `1.6 MB`, `61 GB`, `1 byte`."""
    if abs(size) < 1000:
        return f"{size} byte" if abs(size) == 1 else f"{size} bytes"
    units = ("kB", "MB", "GB", "TB")
    power = next((n for n in range(1, 5) if abs(size) < 999.5 * 1000**n), 4)
    value, unit = size / 1000**power, units[power - 1]
    return f"{value:.1f} {unit}" if abs(value) < 9.95 else f"{value:.0f} {unit}"
