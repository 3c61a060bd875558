"""Writes a worker's log file. A failing disk does not end the training."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from holdfast.clock import Clock
from holdfast.model.log_time_format import HEAD_BYTES, RECORD_BYTES, head, record, times_name
from holdfast.model.noun_base import Noun
from holdfast.safe_files import open_file

#: Seconds from a failed write to the next try. Bytes in between are lost, and counted.
RETRY_S = 5.0

#: Shortest time between two records of a log's times, in seconds. Bytes within this time share a record.
STEP_S = 0.001
#: Shortest time between two records in a log with short lines, in seconds. With more records, the times would take over
#: an eighth of the log's size.
COARSE_STEP_S = 0.1
#: A log of fewer than this many bytes always uses `STEP_S`.
FREE_BYTES = 64 * 1024

#: A write of more than this many seconds is reported as slow, because the workers' pipes fill up meanwhile.
SLOW_S = 2.0

_CURES = {
    errno.ENOSPC: "Free space",
    errno.EDQUOT: "Free space or raise the quota",
    errno.EROFS: "Remount it writable, or give another --log-dir",
    errno.EACCES: "Make it writable, or give another --log-dir",
    errno.EFBIG: "Raise the file size limit (ulimit -f)",
}


class Rotation(Noun, frozen=True, kw_only=True):
    """The size at which a log is rotated, and how many rotated files are kept."""

    most_bytes: int
    #: The number of rotated files to keep, besides the present one.
    kept: int


class LogTimes:
    """Records when a log's bytes were read, in a file beside the log. An error with this file does not affect the log.

    Each write appends one record, without a buffer, so that a kill of this process loses none. The record is written
    before the log's bytes, so that a reader of the bytes finds their time.
    """

    __slots__ = ("_due", "_fd", "_size", "path")

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(times_name(log.name))
        self._fd = -1
        self._size = 0
        #: When the next record may be written, in seconds since the epoch.
        self._due = 0.0

    def note(self, log_fd: int, at: int, now: float) -> None:
        """Record that the log's bytes from offset `at` on were read at `now` (seconds since the epoch). `log_fd`: the
        open log.
        """
        if now < self._due:
            return
        try:
            if self._fd < 0:
                self._open(log_fd)
            done = os.write(self._fd, record(at, now))
            self._size += done
        except OSError:
            done = 0
        if done == RECORD_BYTES:
            self._due = now + (STEP_S if self._size <= FREE_BYTES + at // 8 else COARSE_STEP_S)
        else:
            # After this error the disk is usually full, so record no more times. The next opening of the file truncates
            # a partial record.
            self.close()
            self._due = now + RETRY_S

    def _open(self, log_fd: int) -> None:
        self._fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        begin = head(os.fstat(log_fd).st_ino)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, HEAD_BYTES, 0) == begin:
            self._size = size - (size - HEAD_BYTES) % RECORD_BYTES
            if self._size != size:
                os.ftruncate(self._fd, self._size)
            return
        if size:
            os.ftruncate(self._fd, 0)
        self._size = os.write(self._fd, begin)

    def put_aside(self, kept: int) -> None:
        """Rotate this file of times together with its log (`stderr.log` became `stderr.log.1`). `kept`: the number of
        rotated files to keep.
        """
        self.close()
        self._size = 0
        self._due = 0.0
        older = [self.path.with_name(f"{self.path.name}.{number}") for number in range(1, kept + 1)]
        try:
            for newer, place in reversed([*pairwise([self.path, *older])]):
                if newer.exists():
                    newer.replace(place)
                else:
                    place.unlink(missing_ok=True)
            if not older:
                self.path.unlink(missing_ok=True)
        except OSError:
            # Ignore the error: the file's first bytes identify its log, so no reader uses it for another log.
            pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LogFile:
    """Appends to one log file. Never raises: bytes that cannot be written are counted and reported once, and a later
    write tries again.

    After a gap, a marker line in the file gives the number of missing bytes. `say`: gets a message and its subject, so
    that the owner of many files prints the same problem only once.
    """

    __slots__ = (
        "_clock",
        "_fd",
        "_gap_bytes",
        "_in_line",
        "_retry_at",
        "_rotation",
        "_say",
        "_shown",
        "_size",
        "_slow_said",
        "_times",
        "_trouble",
        "lost_bytes",
        "path",
        "source",
    )

    def __init__(
        self,
        path: Path,
        source: str,
        say: Callable[[str, object], None],
        *,
        shown: bool,
        now: float,
        clock: Callable[[], float] | None = None,
        rotation: Rotation | None = None,
    ) -> None:
        """Create the log.

        `path`: the file. `source`: the worker and stream, for messages. `shown`: whether a terminal shows the stream
        too. `say`: prints a message. `now`: seconds since the epoch. `rotation`: None lets the file grow without a
        limit.
        """
        self.path = path
        self._rotation = rotation
        self._size = 0
        #: Whether the last line in the file has no newline yet.
        self._in_line = False
        self._clock = clock or Clock().now
        self.source = source
        #: The number of bytes of the worker's output that the file lacks.
        self.lost_bytes = 0
        self._shown = shown
        self._say = say
        self._fd = -1
        self._gap_bytes = 0
        self._trouble = 0
        self._retry_at = now
        self._slow_said = False
        #: The file of times. It is created with the first byte, because most workers write nothing to stderr.
        self._times: LogTimes | None = None
        self._put(b"", now, now)

    def write(self, block: bytes, now: float, read_at: float | None = None) -> None:
        """Append a block. `read_at`: when the block was read, in seconds since the epoch, if before `now`."""
        at = now if read_at is None else read_at
        if self._trouble and (now < self._retry_at or not self._recover(now)):
            self._lose(len(block))
            return
        before = self._clock()
        for piece in self._pieces(block):
            written = self._put(piece, now, at)
            if written < len(piece):
                self._lose(len(piece) - written)
        took = self._clock() - before
        if took > SLOW_S and not self._slow_said:
            self._slow_said = True
            self._say(
                f"{self.source}: one write of {amount(len(block))} to {self.path} took {took:.1f} s. The disk is slow, "
                "and the workers wait for it whenever their pipes are full. A --log-dir on a local disk would help.",
                "slow disk",
            )

    def _pieces(self, block: bytes) -> Iterator[bytes]:
        """Yield the block in pieces. The file may be rotated between two pieces, so every piece but the last ends with
        a whole line.
        """
        rotation = self._rotation
        while rotation is not None and self._size + len(block) > rotation.most_bytes:
            room = max(0, rotation.most_bytes - self._size)
            cut = block.rfind(b"\n", 0, room) + 1
            if not cut and self._in_line:
                cut = block.find(b"\n") + 1  # finish the line in this file, whatever its length
                if not cut and self._size + len(block) <= 2 * rotation.most_bytes:
                    break
            if cut:
                yield block[:cut]
                block = block[cut:]
            elif not self._size:
                break  # stop: a line longer than the limit gets its own file
            if not self._put_aside(rotation):
                rotation = self._rotation = None
        if block:
            yield block

    def _put_aside(self, rotation: Rotation) -> bool:
        """Rotate the file. Return whether the next byte goes to a new file."""
        self.close()
        name = self.path.name
        older = [self.path.with_name(f"{name}.{number}") for number in range(1, rotation.kept + 1)]
        try:
            for newer, place in reversed([*pairwise(older)]):
                try:
                    newer.replace(place)
                except FileNotFoundError:
                    pass  # ignore a missing file: there are fewer rotated files so far than may be kept
            if older:
                self.path.replace(older[0])
            else:
                self.path.unlink()
        except OSError as error:
            self._say(f"{self.source}.log: {self.path} cannot be put aside and grows on: {error.strerror}", "rotation")
            return False
        if self._times is not None:
            self._times.put_aside(rotation.kept)
        self._size = 0
        self._in_line = False
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._times is not None:
                self._times.close()

    def _lose(self, count: int) -> None:
        self.lost_bytes += count
        self._gap_bytes += count

    def _recover(self, now: float) -> bool:
        """Reopen the file, because its handle may be stale, and write a marker for the gap. Return whether that
        worked.
        """
        self.close()
        gap = f"\n[holdfast: {amount(self._gap_bytes)} of output missing here]\n".encode() if self._gap_bytes else b""
        if self._put(gap, now, now) < len(gap) or self._fd < 0:
            return False
        self._trouble = 0
        missing = f"; it lacks {amount(self.lost_bytes)}" if self.lost_bytes else ""
        self._gap_bytes = 0
        self._say(f"{self.source}.log: {self.path} takes output again{missing}.", "recovered")
        return True

    def _put(self, block: bytes, now: float, read_at: float) -> int:
        """Write a block that was read at `read_at`. Return the number of written bytes."""
        done = 0
        try:
            if self._fd < 0:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fd = open_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, device=True)
                self._size = os.fstat(self._fd).st_size
            if block:
                if self._times is None:
                    self._times = LogTimes(self.path)
                self._times.note(self._fd, self._size, read_at)
                done = os.write(self._fd, block)
            while done < len(block):
                done += os.write(self._fd, memoryview(block)[done:])
        except OSError as error:
            self._retry_at = now + RETRY_S
            if not self._trouble:
                self._trouble = error.errno or errno.EIO
                self._say(self._complaint(error), self._trouble)
        self._size += done
        if done:
            self._in_line = not block[:done].endswith(b"\n")
        return done

    def _complaint(self, error: OSError) -> str:
        why = (error.strerror or str(error)).lower()
        cure = _CURES.get(error.errno or 0, "Look after the disk")
        rest = "the terminal still shows it" if self._shown else "it is redirected, so nothing shows it meanwhile"
        return (
            f"{self.source}.log: {why} under {self.path.parent}; its output from here on is not in the file. "
            f"{cure}; {rest}. The worker goes on, and the file is tried again every {RETRY_S:g} s."
        )


def amount(count: int) -> str:
    """Format a number of bytes as `12.3 MB`, with decimal units."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
