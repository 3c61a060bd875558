"""Turns signals into readable bytes on a pipe. The supervisor then waits for signals and file descriptors in one
place.
"""

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
    """Catches signals while it is open, so that they do not end the process. When `fileno()` is readable, `take`
    returns the signals.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._before = {number: signal.signal(number, _nothing) for number in HEARD}
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # The guard blocked the signals before its fork. Those that came since arrive now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)

    def fileno(self) -> int:
        return self._reader

    def take(self) -> list[int]:
        """Return the signals since the last call, in the order of arrival. The kernel may have merged several
        SIGCHLDs.
        """
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
    """Do nothing. Python writes a byte to the pipe only for signals with a handler."""
