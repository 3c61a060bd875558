"""Who uses how much of a file system: what the disk cleaner weighs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from holdfast.model.base import Noun

MOST_FILES = 200_000
"""Files counted of one job: a tree beyond that is counted in part, and the share it gets is a lower bound."""


class DiskUse(Noun, frozen=True, kw_only=True):
    """One file system as `statvfs` tells it. What root keeps for itself counts as taken, as in `df`."""

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
    """The file system that holds `path`; None where it cannot be asked."""
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


def written_files(pids: Iterable[int]) -> set[str]:
    """Regular files that these processes have open for writing now. Processes that are gone have none."""
    found: set[str] = set()
    for pid in pids:
        try:
            entries = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for entry in entries:
            try:
                writable = entry.lstat().st_mode & stat.S_IWUSR  # the link's mode tells how the file is open
                target = entry.readlink()
                if writable and stat.S_ISREG(entry.stat().st_mode):
                    found.add(str(target))
            except OSError:
                continue
    return found


def taken(directories: Iterable[Path], files: Iterable[str], device: int) -> tuple[int, int]:
    """Bytes and inodes that these directories and files take on one file system; each file counts once."""
    seen: set[int] = set()
    size = 0

    def count(path: str) -> bool:
        nonlocal size
        try:
            info = os.lstat(path)
        except OSError:
            return True
        if info.st_dev == device and info.st_ino not in seen:
            seen.add(info.st_ino)
            size += info.st_blocks * 512
        return len(seen) < MOST_FILES

    for path in files:
        if not count(path):
            return size, len(seen)
    for directory in directories:
        for parent, _, names in os.walk(directory):
            if not count(parent) or not all(count(f"{parent}/{name}") for name in names):
                return size, len(seen)
    return size, len(seen)
