"""Reads new lines of growing files and of the kernel's log. Each source has a descriptor to wait on.

Nothing polls: `/dev/kmsg` becomes readable when it has a record, and inotify reports the growth of a file.
"""

from __future__ import annotations

import _ctypes  # used instead of `ctypes`, which creates three dozen types and so loads slowly
import errno
import functools
import os
import re
import select
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock

if TYPE_CHECKING:
    import re

#: A call of `take` ends after this many seconds, so that a flood of lines does not delay other work.
TURN_S = 0.05
_BLOCK = 16_384
_LONGEST = 65_536


@functools.cache
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return the patterns of a record of /dev/kmsg and of a printed line's time stamp, compiled at the first use."""
    return re.compile(rb"^\d+,\d+,(\d+),[^;]*;(.*)$", re.DOTALL), re.compile(rb"^\[\s*(\d+\.\d+)\]")


_IN_MODIFY, _IN_ATTRIB, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x4, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_IGNORED = 0x400, 0x800, 0x8000
_WATCHED = _IN_MODIFY | _IN_ATTRIB | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF
_FOLDER_GONE = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_IGNORED
_IN_NONBLOCK, _IN_CLOEXEC = 0o4000, 0o2000000


class GrowingFile:
    """Reads the new lines of a file or of `/dev/kmsg` with their times (`from_start`: all lines).

    `fileno()`: readable when there may be more lines. `missing`: why there will be no lines, as a sentence, or "". If
    the file is replaced, the old file is read to its end, then the new one from its beginning. A truncated file is read
    from its beginning. An incomplete line waits for its end. `news`: messages about times at which the file is
    unreadable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "/dev/kmsg",
        *,
        from_start: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Open the file, or watch its folder until the file exists. `clock`: returns the time, to date lines and to end
        calls in time.
        """
        self.path = Path(path)
        self._clock = clock or Clock()
        self.missing = ""
        self.news: list[str] = []
        #: The number of skipped lines, which were longer than 64 KiB.
        self.too_long = 0
        self._fd = -1
        self._wake = -1
        self._more = -1
        #: An epoll that waits for events of the folder, and for the descriptor `_more`, which is readable after a call
        #: of `take` that ended early.
        self._both: select.epoll | None = None
        self._rest = b""
        #: The last, unfinished line of a replaced file.
        self._rest_of_old: list[bytes] = []
        self._skipping = False
        self._device = False
        self._trouble = ""
        try:
            self._device = self.path.exists() and stat.S_ISCHR(self.path.stat().st_mode)
            if self._device:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                _must_be_waited_for(self._fd)
            else:
                self._watch()
                try:
                    self._fd = _regular(self.path)
                except FileNotFoundError:
                    pass  # ignore a missing file, because it may come later, and its folder is watched
            if self._fd >= 0 and not from_start:
                os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"{self.path} cannot be read ({_words(error)}): its faults are not seen"
            self.close()

    def fileno(self) -> int:
        """Return the descriptor to wait on, or -1 if there will be no lines."""
        if self._device:
            return self._fd
        return self._both.fileno() if self._both is not None else -1

    def take(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield the complete new lines, each with its time in seconds since the epoch. This never blocks and never
        raises.

        The call ends after `TURN_S` seconds; `fileno()` then stays readable, and the next call reads the rest.
        """
        end = self._clock.now() + TURN_S
        if not self._device:
            self._look()
        while True:
            rows = self._block()
            if rows is None:
                if self._device or not self._moves_on():
                    return
                rows, self._rest_of_old = self._rest_of_old, []
            for line in rows:
                yield _timed(line, now, self._clock.boot)
            if self._clock.now() >= end:
                if self._more >= 0:
                    os.eventfd_write(self._more, 1)
                return

    def close(self) -> None:
        if self._both is not None:
            self._both.close()
            self._both = None
        for fd in (self._fd, self._wake, self._more):
            if fd >= 0:
                os.close(fd)
        self._fd = self._wake = self._more = -1

    def _block(self) -> list[bytes] | None:
        """Return the lines of one read, or None if there is nothing more to read."""
        try:
            block = os.read(self._fd, _BLOCK) if self._fd >= 0 else b""
        except BrokenPipeError:
            # Go on: the kernel has overwritten records, and the next read begins at the oldest remaining one.
            return []
        except OSError:
            return None
        return self._split(block) if block else None

    def _split(self, block: bytes) -> list[bytes]:
        if self._device:
            # A read of /dev/kmsg returns one record. Its first line is the message, the others are key=value pairs.
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

    def _moves_on(self) -> bool:
        """Return whether a new or truncated file must be read from its beginning, at the end of the open file."""
        try:
            found = self.path.stat()
            if self._fd >= 0:
                mine = os.fstat(self._fd)
                if (mine.st_ino, mine.st_dev) == (found.st_ino, found.st_dev):
                    self._trouble = ""
                    if found.st_size >= os.lseek(self._fd, 0, os.SEEK_CUR):
                        return False
                    os.lseek(self._fd, 0, os.SEEK_SET)
                    self._begin()
                    return True
            new = _regular(self.path)
        except FileNotFoundError:
            self._let_go_of_deleted()
            return False  # wait: there is no new file yet
        except OSError as error:
            words = _words(error)
            if words != self._trouble:
                self._trouble = words
                self.news.append(f"{self.path} cannot be read ({words}): its faults are not seen until it can")
            return False
        if self._fd >= 0:
            os.close(self._fd)
        if self._trouble:
            self.news.append(f"{self.path} can be read again")
        self._fd, self._trouble = new, ""
        self._begin()
        return True

    def _let_go_of_deleted(self) -> None:
        """Close a deleted file. While it is open, the kernel does not report the removal of its folder."""
        if self._fd >= 0 and os.fstat(self._fd).st_nlink == 0:
            os.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        """Forget unfinished lines, because a new or truncated file begins."""
        if self._rest:
            self._rest_of_old = [self._rest]
        self._rest, self._skipping = b"", False

    def _watch(self) -> None:
        self._wake = _inotify()
        for folder in self._folders():
            _add(self._wake, folder)
        self._more = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._both = select.epoll()
        for fd in (self._wake, self._more):
            self._both.register(fd, select.EPOLLIN)

    def _folders(self) -> set[Path]:
        """Return the folder of the file's name and the folder of the file. They differ if the name is a symbolic
        link.
        """
        return {self.path.parent, Path(os.path.realpath(self.path)).parent}

    def _look(self) -> None:
        """Read the folder's events from inotify. Only the removal of a folder matters, because the file is inspected
        next.
        """
        if self._wake < 0:
            return
        gone = False
        for fd in (self._wake, self._more):
            try:
                noted = os.read(fd, _BLOCK)
            except OSError:
                continue  # ignore the error: inotify has no event, and the file is inspected in any case
            gone = gone or (fd == self._wake and _folder_gone(noted))
        if gone:
            self._watch_again()

    def _watch_again(self) -> None:
        try:
            for folder in self._folders():
                _add(self._wake, folder)
        except OSError as error:
            self.news.append(
                f"the folder of {self.path} is gone ({_words(error)}): what is reported there is not seen any more"
            )


def _regular(path: Path) -> int:
    """Open a regular file. Raises OSError for another kind: a pipe's content belongs to another reader, and a device
    has no end.
    """
    fd = -1
    if stat.S_ISREG(path.stat().st_mode):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    raise OSError(errno.EINVAL, "it is not a regular file")


def _must_be_waited_for(fd: int) -> None:
    """Raise OSError for a device that nothing can wait on, such as /dev/null, by which some users disable a log."""
    with select.epoll() as epoll:
        try:
            epoll.register(fd, select.EPOLLIN)
        except PermissionError as error:
            raise OSError(errno.EINVAL, "it is not a log") from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _timed(line: bytes, now: float, boot: float) -> tuple[str, float]:
    kmsg, stamped = _patterns()
    record = kmsg.match(line)
    if record is not None:
        return record[2].decode("utf-8", "replace"), boot + int(record[1]) / 1e6
    stamp = stamped.match(line)
    at = boot + float(stamp[1]) if stamp is not None else now
    # A time stamp in the future is from another boot, so ignore it.
    return line.decode("utf-8", "replace"), at if at <= now + 1 else now


def _inotify() -> int:
    return c_call("inotify_init1", _IN_NONBLOCK | _IN_CLOEXEC)


def _add(wake: int, folder: Path) -> None:
    c_call("inotify_add_watch", wake, os.fsencode(folder), _WATCHED)


def c_call(name: str, *words: int | bytes) -> int:
    """Call a function of the C library and return its result. Raises OSError."""
    ours: Any = None  # with None, dlopen opens this process itself, which includes the C library
    answer: int = _ctypes.call_cdeclfunction(_ctypes.dlsym(_ctypes.dlopen(ours, 0), name), words)
    if answer < 0:
        import ctypes  # imported late, because only the reading of errno needs it

        answer = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*words))
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def _folder_gone(noted: bytes) -> bool:
    at = 0
    while at + 16 <= len(noted):
        _, mask, _, length = struct.unpack_from("iIII", noted, at)
        if mask & _FOLDER_GONE:
            return True
        at += 16 + int(length)
    return False
