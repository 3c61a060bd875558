"""Reads logs with the times of their lines. The times of `stdout.log` are beside it in `stdout.times`.

Both files may be large, so they are read in blocks. A job may have thousands of logs, so no file stays open between two
blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from holdfast.model.log_time_format import HEAD_BYTES, RECORD_BYTES, inode_in, records, times_name
from holdfast.model.noun_base import Noun
from holdfast.record.rotated_logs import Mark, older, pieces
from holdfast.safe_files import opened

_READ_BYTES = 1024 * RECORD_BYTES


class Span(Noun, frozen=True, kw_only=True):
    """Consecutive lines of a log with the same time. A line longer than a block is split into several spans."""

    #: When the lines were read from the worker, in seconds since the epoch; None: not recorded.
    at: float | None
    data: bytes


class Times:
    """The recorded times of one file of a log. `file`: the open file with the times; None: there is none."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        size = os.fstat(file.fileno()).st_size if file is not None else 0
        self.count = max(0, size - HEAD_BYTES) // RECORD_BYTES

    def around(self, byte: int) -> tuple[float | None, Iterator[tuple[int, float]]]:
        """Return when the byte at this offset of the log was read from the worker, and the records of later bytes."""
        behind = self._first(lambda at, moment: at > byte)
        return next(self._from(behind - 1))[1] if behind else None, self._from(behind)

    def byte_at(self, moment: float) -> int | None:
        """Return the offset of the first byte that was read from the worker at `moment` or later; None if there is
        none.
        """
        number = self._first(lambda at, read: read >= moment)
        return next(self._from(number))[0] if number < self.count else None

    def _first(self, fits: Callable[[int, float], bool]) -> int:
        """Return the number of the first record for which `fits` is true, by binary search.

        `fits` must be true for all later records too.
        """
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if fits(*next(self._from(middle))):
                high = middle
            else:
                low = middle + 1
        return low

    def _from(self, number: int) -> Iterator[tuple[int, float]]:
        while self._file is not None and number < self.count:
            self._file.seek(HEAD_BYTES + number * RECORD_BYTES)
            # Read one record first, because a binary search needs no more. Then read whole blocks.
            found = records(self._file.read(RECORD_BYTES)) or [(0, 0.0)]
            yield from found
            number += 1
            found = records(self._file.read(_READ_BYTES))
            yield from found
            number += len(found)


@contextmanager
def timed_pieces(path: str | Path) -> Iterator[list[tuple[int, BinaryIO, Times]]]:
    """Open all files of a log.

    Yield (inode number, file, times), the oldest first. Raises OSError if there are none.
    """
    with ExitStack() as stack, pieces(path) as found:
        times: dict[int, BinaryIO] = {}
        where = Path(path).with_name(times_name(Path(path).name))
        for number in range(len(found) + 1):
            try:
                file = stack.enter_context(opened(older(where, number) if number else where, link=False))
            except OSError:
                continue  # skip: this file has no times, or a rotation has just begun
            inode = inode_in(file.read(HEAD_BYTES))
            if inode is not None:
                times.setdefault(inode, file)
        if not times.keys() & {inode for inode, _ in found}:
            # The directory was copied, so its files have new inode numbers. Match logs and times by their order.
            times = dict(zip((inode for inode, _ in reversed(found)), times.values(), strict=False))
        yield [(inode, file, Times(times.get(inode))) for inode, file in found]


def has_times(path: str | Path) -> bool:
    """Whether any byte of this log has a recorded time."""
    try:
        with timed_pieces(path) as found:
            return any(times.count for _, _, times in found)
    except OSError:
        return False


def since_mark(path: str | Path, moment: float) -> Mark:
    """Return the position of the first line that was read from the worker at `moment` or later, or else
    the log's end.
    """
    with timed_pieces(path) as found:
        for inode, file, times in found:
            byte = times.byte_at(moment)
            if byte is None:
                continue
            if byte:
                file.seek(byte - 1)
                # This byte may be in the middle of a line, so go to the next line.
                byte += len(file.readline(1 << 20)) - 1
            return inode, byte
        inode, file, _ = found[-1]
        return inode, file.seek(0, os.SEEK_END)


def later(path: str | Path, one: Mark | None, other: Mark | None) -> Mark | None:
    """Return the later of two positions in a log. The position None means the start of the log."""
    if one is None or other is None:
        return one or other
    with pieces(path) as found:
        order = [inode for inode, _ in found]
    return max(one, other, key=lambda mark: (order.index(mark[0]) if mark[0] in order else -1, mark[1]))


def read_on(path: str | Path, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark]:
    """Return the next lines of a log and the position of their end. No lines: the log has no more for now.

    Raises OSError if there is no log.

    since: position at which to start; None: the start of the log.
    size: approximate number of bytes to read.
    whole_lines: leave an unfinished last line for a later call.
    """
    with timed_pieces(path) as found:
        known = [inode for inode, _, _ in found]
        mark = since or (known[0], 0)
        first = known.index(since[0]) if since is not None and since[0] in known else 0
        for inode, file, times in found[first:]:
            at = since[1] if since is not None and inode == since[0] else 0
            file.seek(at)
            data = file.read(size)
            mark = (inode, at)
            if not data:
                continue
            over = len(data) < size
            if not over or (whole_lines and inode == known[-1]):
                lines = data[: data.rfind(b"\n") + 1]
                if not lines and over:
                    break
                data = lines or data  # no line ends in the block, so return the block as a part of a line
            return list(_spans(data, at, times)), (inode, at + len(data))
    return [], mark


def _spans(data: bytes, begin: int, times: Times) -> Iterator[Span]:
    """Split the lines of a block into spans of equal time. A line has the time of its first byte."""
    done = 0
    moment, behind = times.around(begin)
    for at, next_moment in behind:
        if at >= begin + len(data):
            break
        end = data.find(b"\n", at - begin - 1) + 1
        if not end:
            break  # stop: this record begins in the block's unfinished last line
        if end > done:
            yield Span(at=moment, data=data[done:end])
            done = end
        moment = next_moment
    if done < len(data):
        yield Span(at=moment, data=data[done:])
