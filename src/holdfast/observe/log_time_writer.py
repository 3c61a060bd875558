"""Writes when a log's bytes were read, to a file next to the log. An error with that file never affects the log."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from holdfast.model.log_time_format import HEAD_BYTES, RECORD_BYTES, head, record, times_name
from holdfast.safe_files import open_file

#: The least seconds between two records: bytes within a millisecond share one time.
STEP_S = 0.001
#: The least seconds between two records if the times would take more than an eighth of the log's size (short lines).
COARSE_STEP_S = 0.1
#: Size in bytes up to which the file always uses the fine step.
FREE_BYTES = 64 * 1024
RETRY_S = 5.0


class LogTimes:
    """Appends to one file, one record per write, without a buffer, so that a kill of this process loses no record.

    A record is written before the log's bytes, so that a reader of the bytes finds their time.
    """

    __slots__ = ("_due", "_fd", "_size", "path")

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(times_name(log.name))
        self._fd = -1
        self._size = 0
        #: No record is written before this time, in seconds since the epoch.
        self._due = 0.0

    def note(self, log_fd: int, at: int, now: float) -> None:
        """Record that the log's bytes from offset `at` on were read at `now` (seconds since the epoch)."""
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
            # Usually a full disk. The next opening truncates a partial record.
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
        """Rotate this file together with its log (`stderr.log` became `stderr.log.1`); `kept` rotated files
        are kept."""
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
            pass  # the file's head identifies its log, so no reader uses it for another log

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
