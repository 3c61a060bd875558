"""Files in places where others can put something: opened without waiting, and only where they are files.

A named pipe stands still in `open()` until a process opens its other end, a device has no end, and what a directory
holds today may be a socket tomorrow. Every read is bounded.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

Name = str | os.PathLike[str]

GIVEN_S = 10.0

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a disk",
}


def open_file(path: Name, flags: int, mode: int = 0o600, *, device: bool = False) -> int:
    """The descriptor of a regular file; no child inherits it. Raises OSError for all else that stands there.

    `device`: a character device does too, which takes bytes at once or refuses them.
    """
    try:
        # Looked at first: opening some devices does something (a tape rewinds, a watchdog starts).
        _must_be_file(os.stat(path).st_mode, path, device)
    except FileNotFoundError:
        pass  # it is made below, or the opening says that it is missing
    fd = os.open(path, flags & ~os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
    try:
        _must_be_file(os.fstat(fd).st_mode, path, device)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def opened(path: Name) -> BinaryIO:
    """A regular file for reading, as `open(path, "rb")` gives it. Raises OSError."""
    return os.fdopen(open_file(path, os.O_RDONLY), "rb")


def read_file(path: Name, most_bytes: int, *, cut: bool = False) -> bytes:
    """The content of a regular file. Raises OSError, also for a longer one; with `cut` its beginning is enough."""
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        if not cut:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", os.fspath(path))
        data = data[:most_bytes]
    return data


def end_of_file(path: Name, most_bytes: int) -> bytes:
    """The last bytes of a regular file. Raises OSError."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def read_given(path: Name, most_bytes: int) -> bytes:
    """The content of what a user named: a file, or the pipe of `<(command)`, which is waited for so long as it writes.

    Raises OSError, also for more than `most_bytes` and for a pipe that gives nothing for `GIVEN_S` seconds.
    """
    if not_a_file(path) not in ("a named pipe", "a device"):
        return read_file(path, most_bytes)
    import select  # a start without a pipe does not import it

    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        data = bytearray()
        while len(data) <= most_bytes:
            if not select.select([fd], [], [], GIVEN_S)[0]:
                raise OSError(errno.ETIMEDOUT, f"nothing was written to it for {GIVEN_S:g} s", os.fspath(path))
            block = os.read(fd, 1 << 16)
            if not block:
                return bytes(data)
            data += block
    finally:
        os.close(fd)
    raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", os.fspath(path))


def write_file(path: Name, data: bytes, mode: int = 0o600) -> None:
    """Make a regular file hold exactly `data`. Raises OSError."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)


def created(path: Name) -> BinaryIO:
    """An empty regular file for writing, what it held is gone. Raises OSError."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


def write_given(path: Name, data: bytes) -> None:
    """Write to what a user named: a file, which then holds exactly `data`, or a pipe, a terminal or a device.

    Raises OSError; waits for the reader of a pipe that is full.
    """
    if not_a_file(path) in ("", "a directory"):
        write_file(path, data)
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no process reads it", os.fspath(path)) from None
        raise
    os.set_blocking(fd, True)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def replace_file(path: Name, data: bytes, mode: int = 0o600) -> None:
    """Put a file with `data` and `mode` at `path`, whole or not at all, over what stood there. Raises OSError."""
    head, tail = os.path.split(os.fspath(path))
    draft = os.path.join(head, f".{tail}.{os.getpid()}")
    try:
        # What lies there is a dead process' draft, or was put there to be in the way.
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass  # as nearly always
        write_file(draft, data)
        if mode != 0o600:
            os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        try:
            os.unlink(draft)
        except OSError:
            pass  # it was never made
        raise


def not_a_file(path: Name) -> str:
    """What stands there instead of a file: `a named pipe`; empty for a file, and for nothing. Raises OSError."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no file")


def _must_be_file(mode: int, path: Name, device: bool) -> None:
    if stat.S_ISREG(mode) or (device and stat.S_ISCHR(mode)):
        return
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"it is {kind}, and a file was expected", os.fspath(path))
