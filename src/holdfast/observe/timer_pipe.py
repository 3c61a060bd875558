"""The pipe of torch's timers: workers write there the time by which they want to have finished a step.

One JSON object a line: `{"pid", "scope_id", "expiration_time", "signal"}`, at most PIPE_BUF bytes, so that lines of
several workers never mix. The time is in seconds since the epoch; a negative one cancels the timer. Source: torch's
`torch.distributed.elastic.timer.file_based_local_timer`.
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
    """One worker's timer. Seconds since the epoch; a signal of 0 or less: the worker is not to be killed."""

    pid: int
    scope_id: str
    expiration_time: float
    signal: int = 0


class TimerPipe:
    """The present timers. Raises OSError where no pipe can be made at `path`, or another file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not stat.S_ISFIFO(path.lstat().st_mode):
                raise FileExistsError(17, "there is a file, and no pipe, of this name", str(path))
            path.unlink()
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        # To write as well: so the last worker that closes it leaves no end of file behind.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._timers: dict[tuple[int, str], TorchTimer] = {}

    def fileno(self) -> int:
        return self._fd

    def read(self) -> None:
        """Take in the written lines. Other lines are skipped."""
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
                continue  # never, and no time that a clock could wait for
            key = timer.pid, timer.scope_id
            if timer.expiration_time < 0:
                self._timers.pop(key, None)
            elif len(self._timers) < MOST_TIMERS or key in self._timers:
                self._timers[key] = timer

    def first(self) -> float | None:
        """When the next timer expires."""
        return min((timer.expiration_time for timer in self._timers.values()), default=None)

    def over(self, now: float) -> list[TorchTimer]:
        """Expired timers, the earliest first; all timers of their workers are dropped."""
        found = [timer for timer in self._timers.values() if timer.expiration_time <= now]
        gone = {timer.pid for timer in found}
        self._timers = {key: timer for key, timer in self._timers.items() if timer.pid not in gone}
        return sorted(found, key=lambda timer: timer.expiration_time)

    def forget(self) -> None:
        """A new attempt begins with none."""
        self._timers.clear()

    def close(self) -> None:
        os.close(self._fd)
        self.path.unlink(missing_ok=True)
