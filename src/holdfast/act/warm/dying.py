"""Children that nobody needs any more, from their kill until they are reaped."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Collection


class Dying:
    """Their pidfds stay registered with the selector until they are reaped; from then on both are forgotten."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._pids: dict[int, int] = {}
        """By their pidfds."""

    def pids(self) -> Collection[int]:
        return self._pids.values()

    def fds(self) -> Collection[int]:
        return self._pids.keys()

    def bury(self, pid: int, pidfd: int) -> None:
        """Kill a child. It is to be reaped when its pidfd is readable."""
        self._pids[pidfd] = pid
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has died already

    def reap(self, pidfd: int) -> None:
        del self._pids[pidfd]
        self._selector.unregister(pidfd)
        try:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        except ChildProcessError:
            pass  # taken for an orphan, and reaped, before it was known to be this one
        os.close(pidfd)
