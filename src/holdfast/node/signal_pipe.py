"""Signals as readable bytes: the supervisor waits in only one place."""

from __future__ import annotations

import os
import signal

HEARD = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCHLD,
)


class Signals:
    """While this is open, signals end nothing: `take` returns their numbers once `fileno()` is readable."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._before = {number: signal.signal(number, _nothing) for number in HEARD}
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # The guard had blocked them over its fork: those that came since arrive now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)

    def fileno(self) -> int:
        return self._reader

    def take(self) -> list[int]:
        """The numbers that came since the last call, in order; many SIGCHLDs may have become few."""
        try:
            return list(os.read(self._reader, 4096))
        except BlockingIOError:
            return []

    def close(self) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)


def _nothing(_number: int, _frame: object) -> None:
    """Only the byte in the pipe is wanted; there must be a handler for it to be written."""
