"""Files that grow, and the kernel's log: lines as they are written, waited for on a descriptor.

Nothing here polls: `/dev/kmsg` is itself readable when a record has come, and a file's growth comes through inotify.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 65_536
_LONGEST = 65_536
_MOST_BLOCKS = 256
"""Read at a time: a flood must not keep the loop from its other work; the rest is read at the next turn."""


@functools.cache
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A record of /dev/kmsg, and the stamp of a printed line: compiled for whoever reads one."""
    return re.compile(rb"^\d+,\d+,(\d+),[^;]*;(.*)$", re.DOTALL), re.compile(rb"^\[\s*(\d+\.\d+)\]")


_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100
_IN_NONBLOCK, _IN_CLOEXEC = 0o4000, 0o2000000


class Lines:
    """The lines of a file or of `/dev/kmsg` from now on (`from_start`: from its beginning), with their times.

    `fileno()` is readable when there may be more. `missing` says in a sentence why nothing will come, else it is
    empty. A file that is replaced or cut short is read from its new beginning; a line without an end waits for it.
    """

    def __init__(self, path: str | os.PathLike[str] = "/dev/kmsg", *, from_start: bool = False) -> None:
        self.path = Path(path)
        self.missing = ""
        self.too_long = 0
        """Lines of more than 64 KiB, which are skipped."""
        self._fd = -1
        self._wake = -1
        self._rest = b""
        self._skipping = False
        self._device = False
        try:
            self._device = self.path.exists() and stat.S_ISCHR(self.path.stat().st_mode)
            if self._device:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if not from_start:
                    os.lseek(self._fd, 0, os.SEEK_END)
            else:
                self._wake = _inotify(self.path.parent)
                self._open()
                if self._fd >= 0 and not from_start:
                    os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.missing = (
                f"{self.path} cannot be read ({(error.strerror or str(error)).lower()}): its faults are not seen"
            )
            self.close()

    def fileno(self) -> int:
        """What to wait on; -1 where nothing will come."""
        return self._fd if self._device else self._wake

    def take(self, now: float) -> Iterator[tuple[str, float]]:
        """The complete lines that have come, each with its time in seconds. Never waits, never raises."""
        boot = now - time.monotonic()
        if self._wake >= 0:
            try:
                os.read(self._wake, _BLOCK)
            except OSError:
                pass  # nothing noted: a look at the file itself does no harm
            self._reopen()
        for _ in range(_MOST_BLOCKS):
            if self._fd < 0:
                return
            try:
                block = os.read(self._fd, _BLOCK)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # kmsg: records were overwritten before we came; the next read goes on at the oldest left
            except OSError:
                return
            if not block:
                return
            for line in self._split(block):
                yield _timed(line, now, boot)

    def close(self) -> None:
        for fd in (self._fd, self._wake):
            if fd >= 0:
                os.close(fd)
        self._fd = self._wake = -1

    def _split(self, block: bytes) -> list[bytes]:
        if self._device:
            # One record a read; what follows its first line is a dictionary, not text.
            return [block.partition(b"\n")[0]]
        rows = (self._rest + block).split(b"\n")
        self._rest = rows.pop()
        if self._skipping and rows:
            rows.pop(0)
            self._skipping = False
        if len(self._rest) > _LONGEST or self._skipping:
            self.too_long += not self._skipping
            self._rest, self._skipping = b"", True
        return rows

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1  # it may come: its folder is watched

    def _reopen(self) -> None:
        try:
            found = self.path.stat()
        except OSError:
            return
        if self._fd >= 0:
            mine = os.fstat(self._fd)
            if (mine.st_ino, mine.st_dev) == (found.st_ino, found.st_dev):
                if found.st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
                    os.lseek(self._fd, 0, os.SEEK_SET)
                    self._rest, self._skipping = b"", False
                return
            os.close(self._fd)
        self._rest, self._skipping = b"", False
        self._open()


def _timed(line: bytes, now: float, boot: float) -> tuple[str, float]:
    kmsg, stamped = _patterns()
    record = kmsg.match(line)
    if record is not None:
        return record[2].decode("utf-8", "replace"), boot + int(record[1]) / 1e6
    stamp = stamped.match(line)
    at = boot + float(stamp[1]) if stamp is not None else now
    # A stamp of another boot says nothing about now.
    return line.decode("utf-8", "replace"), at if at <= now + 1 else now


def _inotify(folder: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if libc.inotify_add_watch(fd, os.fsencode(folder), _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE) < 0:
        number = ctypes.get_errno()
        os.close(fd)
        raise OSError(number, os.strerror(number))
    return fd
