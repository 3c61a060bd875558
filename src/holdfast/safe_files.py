"""Opens files safely in directories where other users can write: without blocking, and only regular files.

Opening a named pipe would block until another process opens the other end, and reading a device might never end. The
size of every read is limited.
"""

from __future__ import annotations

import errno
import os
import select
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
    stat.S_IFLNK: "a link",
}


def open_file(path: Name, flags: int, mode: int = 0o600, *, device: bool = False, link: bool = True) -> int:
    """Open a regular file and return its descriptor, which no child inherits. Raise OSError for any other kind of file.

    `device`: whether to accept a character device too. Such a device accepts or refuses bytes at once.
    `link`: whether to follow a symbolic link to the file.
    """
    try:
        # Check before opening, because opening some devices has effects (a tape rewinds, a watchdog starts).
        _must_be_file(os.stat(path, follow_symlinks=link).st_mode, path, device)
    except FileNotFoundError:
        pass  # `os.open` creates the file, or raises the error
    flags_of_link = 0 if link else os.O_NOFOLLOW
    fd = os.open(path, flags & ~os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | flags_of_link, mode)
    try:
        _must_be_file(os.fstat(fd).st_mode, path, device)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def opened(path: Name, *, link: bool = True) -> BinaryIO:
    """Open a regular file for reading, like `open(path, "rb")`. Raise OSError for any other kind of file.

    `link`: whether to follow a symbolic link to the file.
    """
    return os.fdopen(open_file(path, os.O_RDONLY, link=link), "rb")


def read_file(path: Name, most_bytes: int, *, cut: bool = False) -> bytes:
    """Return the content of a regular file.

    If the file is longer than `most_bytes`, raise OSError, or with `cut` return its beginning.
    """
    with opened(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        if not cut:
            raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", os.fspath(path))
        data = data[:most_bytes]
    return data


def end_of_file(path: Name, most_bytes: int) -> bytes:
    """Return the last `most_bytes` bytes of a regular file. Raise OSError for any other kind of file."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes)


def small_text(path: Name) -> str:
    """Return the text of a small trusted file, such as a file in /proc, without blanks around it; empty if it cannot
    be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_given(path: Name, most_bytes: int) -> bytes:
    """Return the content of a path that the user named: a file, or a pipe such as `<(command)`, which is read to its
    end.

    Raise OSError if it cannot be read, has more than `most_bytes` bytes, or is a pipe without data for `GIVEN_S`
    seconds.
    """
    if not_a_file(path) not in ("a named pipe", "a device"):
        return read_file(path, most_bytes)
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
    """Replace the content of a regular file by `data`. Raise OSError if it cannot be written."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)


def created(path: Name) -> BinaryIO:
    """Open a regular file for writing, and empty it. Raise OSError if it cannot be opened."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


def write_given(path: Name, data: bytes) -> None:
    """Write to a path that the user named: a file, whose content becomes `data`, or a pipe, a terminal or a device.

    If a pipe is full, wait for its reader. Raise OSError if the path cannot be written.
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
    """Put a file with `data` and `mode` at `path`, completely or not at all.

    An existing file is replaced. Raise OSError on failure.
    """
    head, tail = os.path.split(os.fspath(path))
    temporary = os.path.join(head, f".{tail}.{os.getpid()}")
    try:
        # An existing temporary file is from a dead process, or another user put it there to block this write.
        try:
            os.unlink(temporary)
        except FileNotFoundError:
            pass  # usually no earlier temporary file exists
        # O_EXCL, because another user may have put a link there since.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
        if mode != 0o600:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # the temporary file does not exist
        raise


def not_a_file(path: Name) -> str:
    """Return the kind of a path that is not a file, such as `a named pipe`; empty for a file or a missing path.

    Raise OSError if the path cannot be examined.
    """
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
