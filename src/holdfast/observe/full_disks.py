"""Finds full file systems after a write has failed for lack of space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.observe.checks.quota import mount_of, quota_of, unescape
from holdfast.observe.disk_usage import DiskUse, disk_use, in_units
from holdfast.safe_files import small_text

#: At most this many paths are looked at.
MOST_PLACES = 64
#: Local file systems, on which calls do not block.
_OWN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "vfat", "bcachefs")
#: A file system with fewer free bytes counts as full, because checkpoints and logs are larger.
_NEARLY_BYTES = 16 << 20


def full_disks(named: Sequence[str], places: Sequence[str], answers: Callable[[str], bool]) -> tuple[str, ...]:
    """Return a clause for each full file system: `/scratch (/dev/sdb1, ext4) has 0 bytes of 20 MB free`.

    `named`: absolute paths of failed writes. Their file systems are listed even if they have free space (there may be a
    quota, or files were removed since). `places`: other directories that programs write to. These, and the mounts of
    this machine's disks, are listed if full. `answers`: whether a path on a server responds soon; it is called before
    the path is used.
    """
    seen: set[int] = set()
    told: list[str] = []
    for path in [*named, *places, *own_mounts()][:MOST_PLACES]:
        mount = mount_of(Path(path))
        if (mount is None or mount[1] not in _OWN) and not answers(path):
            continue
        place = _there(path)
        use = disk_use(place)
        if use is None or use.device in seen:
            continue
        full = _lack(use)
        if full or path in named:
            seen.add(use.device)
            quota = quota_of(place)
            told.append(_name(place) + " " + (full or (_of_quota(*quota) if quota else _room(use))))
    return tuple(told)


def shared_memory() -> tuple[str, ...]:
    """Return `/dev/shm has a size of 64 MB`, or "" if there is no /dev/shm."""
    use = disk_use(Path("/dev/shm"))
    return () if use is None or not use.total_bytes else (f"/dev/shm has a size of {in_units(use.total_bytes)}",)


def own_mounts() -> list[str]:
    """Return the mount points of this machine's disks."""
    found = []
    for line in small_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] in _OWN:
            found.append(unescape(fields[4]))
    return found


def _there(path: str) -> Path:
    """Return the path, or its nearest existing parent, because a failed write may have left no file."""
    place = Path(path)
    return next((step for step in (place, *place.parents) if step.exists()), place)


def _name(place: Path) -> str:
    found = mount_of(place.resolve())
    return str(place) if found is None else f"{found[2]} ({found[0]}, {found[1]})"


def _lack(use: DiskUse) -> str:
    free, inodes = use.total_bytes - use.used_bytes, use.total_inodes - use.used_inodes
    if use.total_bytes and free < min(_NEARLY_BYTES, use.total_bytes / 20):
        return f"has {_room_of(use)}"
    if use.total_inodes and inodes < 16:
        return f"has {inodes} of {use.total_inodes} inodes free, and {_room_of(use)}"
    return ""


def _of_quota(used_bytes: int, limit_bytes: int) -> str:
    return f"gives this user {in_units(limit_bytes)} by its quota, of which {in_units(used_bytes)} are used"


def _room(use: DiskUse) -> str:
    return f"has {_room_of(use)} now: a quota ended the write, or files are gone since"


def _room_of(use: DiskUse) -> str:
    return f"{in_units(use.total_bytes - use.used_bytes)} of {in_units(use.total_bytes)} free"
