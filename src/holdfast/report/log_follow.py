"""Waits for logs to grow and for their job to end, with events of the kernel instead of polling.

inotify reports writes. A separate thread waits in `flock` for the owner's lock, and gets it as soon as the owner dies
for any reason.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import threading
from pathlib import Path
from typing import Self

from holdfast.model.log_time_format import SUFFIX
from holdfast.safe_files import opened

_CREATE, _MODIFY, _MOVED_TO = 0x100, 0x002, 0x080
_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK


class LogWatch:
    """Watches directories and one lock. Raises OSError if inotify is not available."""

    def __init__(self, lock: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError("this system has no inotify")
        self._add = libc.inotify_add_watch
        self._fd: int = libc.inotify_init1(_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._names: dict[int, Path] = {}
        self._ended, self._end = os.pipe2(os.O_CLOEXEC)
        # Use a daemon thread, so that a command that reads the logs can exit without waiting for the job.
        threading.Thread(target=_await_lock, args=(lock, self._end), daemon=True).start()

    def add(self, directory: Path) -> bool:
        """Also watch this directory.

        Return True if it was not watched before. Ignore a directory that no longer exists.
        """
        mask = _CREATE | _MODIFY | _MOVED_TO
        number = self._add(self._fd, os.fsencode(directory), mask)
        if number < 0 or number in self._names:
            return False
        self._names[number] = directory
        return True

    def wait(self) -> set[Path] | None:
        """Wait for a change in the watched directories. Return the changed paths; empty: too many paths changed to list
        them. Return None if the job has ended (its lock is free).

        Ignore changes of the file with a log's times, because it changes before the log does.
        """
        while True:
            ready, _, _ = select.select([self._fd, self._ended], [], [])
            if self._ended in ready:
                return None
            changed, all_told = self._changed()
            if changed or not all_told:
                return changed if all_told else set()

    def _changed(self) -> tuple[set[Path], bool]:
        """Return the paths that have changed, and whether the list contains all of them."""
        changed: set[Path] = set()
        told = True
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return changed, told
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].rstrip(b"\0")
                at += length
                if mask & _OVERFLOW or number not in self._names:
                    told = False
                elif SUFFIX.encode() not in name:
                    changed.add(self._names[number] / os.fsdecode(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        # Do not close `_end` here: the thread closes it, because the thread may outlive this object.
        os.close(self._ended)


def _await_lock(lock: Path, end: int) -> None:
    try:
        with opened(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    except OSError:
        pass  # without a lock there is nothing to wait for, so the job counts as ended
    finally:
        os.close(end)
