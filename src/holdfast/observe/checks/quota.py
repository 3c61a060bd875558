"""Reads this user's disk quota on local file systems with quotactl(2)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from holdfast.safe_files import small_text

_Q_GETQUOTA = 0x800007
_USRQUOTA = 0
_BLOCK_BYTES = 1024
_KINDS = frozenset({"ext4", "ext3", "xfs", "f2fs", "reiserfs", "jfs"})


class _Dqblk(ctypes.Structure):
    _fields_ = (
        ("hard_blocks", ctypes.c_uint64),
        ("soft_blocks", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("hard_inodes", ctypes.c_uint64),
        ("soft_inodes", ctypes.c_uint64),
        ("used_inodes", ctypes.c_uint64),
        ("block_time", ctypes.c_uint64),
        ("inode_time", ctypes.c_uint64),
        ("valid", ctypes.c_uint32),
    )


def quota_left(path: Path) -> int | None:
    """Return the bytes that this user may still write on the file system of `path`; None if no quota is known."""
    quota = quota_of(path)
    return None if quota is None else max(0, quota[1] - quota[0])


def quota_of(path: Path) -> tuple[int, int] | None:
    """Return (used, allowed) bytes of this user on the file system of `path`, or None if no quota is known."""
    mount = mount_of(path)
    if mount is None or mount[1] not in _KINDS or "quota" not in mount[3]:
        return None
    block = _Dqblk()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.quotactl((_Q_GETQUOTA << 8) | _USRQUOTA, mount[0].encode(), os.getuid(), ctypes.byref(block)) != 0:
        return None
    limit = min((blocks for blocks in (block.hard_blocks, block.soft_blocks) if blocks), default=0)
    return (int(block.used_bytes), limit * _BLOCK_BYTES) if limit else None


def mount_of(path: Path) -> tuple[str, str, str, str] | None:
    """Return (device, type, mount point, options) of the mount of `path`, from mountinfo alone, without an access to
    the file system.
    """
    best: tuple[str, str, str, str] | None = None
    place = str(path.absolute())
    for line in small_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        dash = fields.index("-")
        point = unescape(fields[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        # Of several mounts at one mount point, the last one is visible.
        if inside and (best is None or len(point) >= len(best[2])):
            options = f"{fields[5]};{fields[dash + 3] if len(fields) > dash + 3 else ''}"
            best = (unescape(fields[dash + 2]), fields[dash + 1], point, options)
    return best


def unescape(word: str) -> str:
    """Decode a word of mountinfo, where space, tab, newline and backslash are octal numbers."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word
