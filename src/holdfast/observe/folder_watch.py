"""Watches a folder for written files without polling: inotify has a descriptor to wait on."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from holdfast.observe.devices.growing_files import c_call

_MODIFY, _CLOSE_WRITE, _MOVED_TO = 0x2, 0x8, 0x80
_DELETE, _MOVED_FROM = 0x200, 0x40
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_BLOCK = 16_384


class FolderWatch:
    """Watches a folder. `fileno()`: readable when a file in it was written and closed, or was moved into it.

    `gone`: also report removed names. `growing`: also report files that are being written. Raises OSError if the folder
    cannot be watched.
    """

    def __init__(self, folder: Path, *, gone: bool = False, growing: bool = False) -> None:
        self._fd = c_call("inotify_init1", _NONBLOCK | _CLOEXEC)
        mask = _CLOSE_WRITE | _MOVED_TO
        mask |= (_DELETE | _MOVED_FROM if gone else 0) | (_MODIFY if growing else 0)
        try:
            c_call("inotify_add_watch", self._fd, os.fsencode(folder), mask)
        except OSError:
            os.close(self._fd)
            raise

    def fileno(self) -> int:
        return self._fd

    def take(self) -> list[str]:
        """Return the names of changed files. This never blocks. An empty name means that the kernel has lost events, so
        that any file may have changed.
        """
        found: list[str] = []
        try:
            noted = os.read(self._fd, _BLOCK)
        except OSError:
            return found
        at = 0
        while at + 16 <= len(noted):
            _, _, _, length = struct.unpack_from("iIII", noted, at)
            found.append(os.fsdecode(noted[at + 16 : at + 16 + length].rstrip(b"\0")))
            at += 16 + int(length)
        return found

    def close(self) -> None:
        os.close(self._fd)
