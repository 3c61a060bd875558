"""Reads rotated logs: `stderr.log` is the current file, `stderr.log.1` the one before it, and so on.

Readers open all files before they read, because a rotation renames files but leaves open files alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.safe_files import opened

MOST_PIECES = 1000
#: A log is read backwards in blocks of this many bytes, because it may have gigabytes.
BLOCK_BYTES = 1 << 20

#: A position in a log: (inode number of the file, byte offset in the file).
Mark = tuple[int, int]


def older(path: str | Path, number: int) -> str:
    """Return the name that a log file has after `number` rotations."""
    return f"{os.fspath(path)}.{number}"


@contextmanager
def pieces(path: str | Path) -> Iterator[list[tuple[int, BinaryIO]]]:
    """Open all files of a log. Yield (inode number, file), the oldest first. Raises OSError if there are none.

    No link is followed, because a worker could have created it, and the reader may be root.
    """
    with ExitStack() as stack:
        found: dict[int, BinaryIO] = {}
        missing = 0
        for number in range(MOST_PIECES):
            name = older(path, number) if number else os.fspath(path)
            try:
                file = stack.enter_context(opened(name, link=False))
            except OSError as error:
                if not isinstance(error, FileNotFoundError) and not Path(name).is_symlink():
                    raise
                missing += 1
                if missing > 1:
                    break
                continue  # a rotation has just renamed the file of this number to the next number
            missing = 0
            # A rotation may rename files between two calls of open. The second call then finds an open file again under
            # its next name.
            found.setdefault(os.fstat(file.fileno()).st_ino, file)
        if not found:
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        yield list(reversed(found.items()))


def files_of(path: str | Path) -> list[tuple[str, int]]:
    """Return the files of a log with their sizes in bytes, the oldest first. Raises OSError if there are none."""
    with pieces(path) as found:
        sizes = [os.fstat(file.fileno()).st_size for _, file in found]
    names = [os.fspath(path) if not number else older(path, number) for number in reversed(range(len(sizes)))]
    return list(zip(names, sizes, strict=True))


def before_end(path: str | Path, size: int) -> tuple[Mark, int]:
    """Return the position `size` bytes before a log's end, and the total size of the log in bytes. Raises OSError if
    there is no log.
    """
    with pieces(path) as found:
        sizes = [(inode, os.fstat(file.fileno()).st_size) for inode, file in found]
    whole = sum(one for _, one in sizes)
    at = max(0, whole - size)
    for inode, one in sizes:
        if at < one:
            return (inode, at), whole
        at -= one
    return (sizes[-1][0], sizes[-1][1]), whole


def tail_mark(path: str | Path, lines: int) -> Mark | None:
    """Return the position at which the last `lines` lines of a log begin. Return None for the start of the log."""
    with pieces(path) as found:
        for inode, file in reversed(found):
            at = tail_start(file, lines)
            file.seek(at)
            block = b""
            while more := file.read(BLOCK_BYTES):
                block = more
                lines -= block.count(b"\n")
            lines -= bool(block) and not block.endswith(b"\n")  # an unfinished last line counts as a line
            if at > 0 or lines <= 0:
                return inode, at
    return None


def tail_start(file: BinaryIO, lines: int) -> int:
    """Return the byte offset at which the last `lines` lines of an open file begin. The file is read backwards."""
    end = file.seek(0, os.SEEK_END)
    at, wanted = end, lines
    while at > 0 and lines > 0:
        size = min(BLOCK_BYTES, at)
        at -= size
        file.seek(at)
        block = file.read(size)
        found = len(block)
        # The newline at the end of the file begins no new line.
        if at + size == end and block.endswith(b"\n"):
            found -= 1
        while (found := block.rfind(b"\n", 0, found)) >= 0:
            wanted -= 1
            if wanted == 0:
                return at + found + 1
    return end if lines <= 0 else 0
