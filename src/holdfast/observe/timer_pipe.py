"""Reads the pipe of torch's timers, to which workers write the deadline of a code block.

Each line is a JSON object, `{"pid", "scope_id", "expiration_time", "signal"}`, of at most PIPE_BUF bytes, so that lines
of several workers never mix. The time is in seconds since the epoch; a negative time cancels the timer. The format is
that of `torch.distributed.elastic.timer.file_based_local_timer`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from holdfast.untrusted import LATEST_S, Malformed, json_as

MOST_BYTES = 64 * 1024
MOST_TIMERS = 10_000


class TorchTimer(msgspec.Struct, frozen=True):
    """A timer of a worker.

    Its time is in seconds since the epoch. If the signal is 0 or less, the worker is not killed at that time.
    """

    pid: int
    scope_id: str
    expiration_time: float
    signal: int = 0


class TimerPipe:
    """The active timers. Raises OSError if no pipe can be created at `path`, or if `path` is another kind of file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not stat.S_ISFIFO(path.lstat().st_mode):
                raise FileExistsError(17, "there is a file, and no pipe, of this name", str(path))
            path.unlink()
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        # Open the pipe for writing too. Otherwise it would have an end of file when the last worker closes it.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._timers: dict[tuple[int, str], TorchTimer] = {}

    def fileno(self) -> int:
        return self._fd

    def read(self) -> None:
        """Read the written lines and update the timers. Invalid lines are skipped."""
        try:
            data = self._rest + os.read(self._fd, MOST_BYTES)
        except BlockingIOError:
            return
        *lines, rest = data.split(b"\n")
        self._rest = rest if len(rest) <= MOST_BYTES else b""
        for line in lines:
            try:
                timer = json_as(line, TorchTimer)
            except Malformed:
                continue
            if timer.expiration_time > LATEST_S:
                continue  # skip the timer, because it never expires with such a late time
            key = timer.pid, timer.scope_id
            if timer.expiration_time < 0:
                self._timers.pop(key, None)
            elif len(self._timers) < MOST_TIMERS or key in self._timers:
                self._timers[key] = timer

    def first(self) -> float | None:
        """Return when the next timer expires, in seconds since the epoch; None: there is none."""
        return min((timer.expiration_time for timer in self._timers.values()), default=None)

    def over(self, now: float) -> list[TorchTimer]:
        """Return the expired timers, the earliest first. Remove all timers of a worker with an expired one."""
        found = [timer for timer in self._timers.values() if timer.expiration_time <= now]
        gone = {timer.pid for timer in found}
        self._timers = {key: timer for key, timer in self._timers.items() if timer.pid not in gone}
        return sorted(found, key=lambda timer: timer.expiration_time)

    def forget(self) -> None:
        """Drop all timers, because a new attempt begins."""
        self._timers.clear()

    def close(self) -> None:
        os.close(self._fd)
        self.path.unlink(missing_ok=True)
