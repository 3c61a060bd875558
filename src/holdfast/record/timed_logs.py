"""A log with the times of its lines: `stdout.times` beside `stdout.log`, both read in blocks, since either may be
large.

No file stays open between two blocks: a job may have thousands of logs.
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
    """Lines with one common time, or a part of a line that is longer than a block."""

    #: When they were read, in seconds since the epoch; None: this was not recorded.
    at: float | None
    data: bytes


class Times:
    """The records for one file of a log; none where `file` is None."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        size = os.fstat(file.fileno()).st_size if file is not None else 0
        self.count = max(0, size - HEAD_BYTES) // RECORD_BYTES

    def around(self, byte: int) -> tuple[float | None, Iterator[tuple[int, float]]]:
        """The time of this byte of the log, and the records behind it."""
        behind = self._first(lambda at, moment: at > byte)
        return next(self._from(behind - 1))[1] if behind else None, self._from(behind)

    def byte_at(self, moment: float) -> int | None:
        """The first byte that was read at this moment or later; None: there is none."""
        number = self._first(lambda at, read: read >= moment)
        return next(self._from(number))[0] if number < self.count else None

    def _first(self, fits: Callable[[int, float], bool]) -> int:
        """The first record that satisfies the condition; all later records do as well."""
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
            # A search asks for one record; who reads on is given many at once.
            found = records(self._file.read(RECORD_BYTES)) or [(0, 0.0)]
            yield from found
            number += 1
            found = records(self._file.read(_READ_BYTES))
            yield from found
            number += len(found)


@contextmanager
def timed_pieces(path: str | Path) -> Iterator[list[tuple[int, BinaryIO, Times]]]:
    """As `pieces`, each with the times of its bytes."""
    with ExitStack() as stack, pieces(path) as found:
        times: dict[int, BinaryIO] = {}
        where = Path(path).with_name(times_name(Path(path).name))
        for number in range(len(found) + 1):
            try:
                file = stack.enter_context(opened(older(where, number) if number else where))
            except OSError:
                continue  # none were kept, or it is being rotated
            inode = inode_in(file.read(HEAD_BYTES))
            if inode is not None:
                times.setdefault(inode, file)
        if not times.keys() & {inode for inode, _ in found}:
            # A directory that was copied: its files have other numbers, and the same order.
            times = dict(zip((inode for inode, _ in reversed(found)), times.values(), strict=False))
        yield [(inode, file, Times(times.get(inode))) for inode, file in found]


def has_times(path: str | Path) -> bool:
    """Whether any byte of this log has a time."""
    try:
        with timed_pieces(path) as found:
            return any(times.count for _, _, times in found)
    except OSError:
        return False


def since_mark(path: str | Path, moment: float) -> Mark:
    """Where the first line begins that was read at `moment` or later; the log's end where there is none yet."""
    with timed_pieces(path) as found:
        for inode, file, times in found:
            byte = times.byte_at(moment)
            if byte is None:
                continue
            if byte:
                file.seek(byte - 1)
                byte += len(file.readline(1 << 20)) - 1  # the line that this byte is in had begun before
            return inode, byte
        inode, file, _ = found[-1]
        return inode, file.seek(0, os.SEEK_END)


def later(path: str | Path, one: Mark | None, other: Mark | None) -> Mark | None:
    """The later of two places. None: the log's first byte."""
    if one is None or other is None:
        return one or other
    with pieces(path) as found:
        order = [inode for inode, _ in found]
    return max(one, other, key=lambda mark: (order.index(mark[0]) if mark[0] in order else -1, mark[1]))


def read_on(path: str | Path, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark]:
    """The next lines of a log, about `size` bytes, and where they end. No lines: there are no more for now.

    `whole_lines`: a line that has no end yet is left for a later call. Raises OSError where there is no log.
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
                data = lines or data  # a line longer than a block comes in parts
            return list(_spans(data, at, times)), (inode, at + len(data))
    return [], mark


def _spans(data: bytes, begin: int, times: Times) -> Iterator[Span]:
    """The lines of this block, divided by the time of their first byte."""
    done = 0
    moment, behind = times.around(begin)
    for at, next_moment in behind:
        if at >= begin + len(data):
            break
        end = data.find(b"\n", at - begin - 1) + 1
        if not end:
            break  # it is in the block's last line
        if end > done:
            yield Span(at=moment, data=data[done:end])
            done = end
        moment = next_moment
    if done < len(data):
        yield Span(at=moment, data=data[done:])
