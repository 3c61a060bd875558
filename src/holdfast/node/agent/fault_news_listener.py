"""Notifies an agent after `holdfast faults report` or `holdfast release` on its node has written to the fault log.

These commands send a message to a socket in the job's directory. The message has no content.
"""

from __future__ import annotations

import _socket  # used instead of `socket`, which creates enums of a hundred constants and so loads slowly
import os
from collections.abc import Callable
from pathlib import Path

from holdfast.reactor import Reactor
from holdfast.wire.fault_news import NEWS_NAME

#: Limit on the number of messages read in one turn of the reactor.
MOST_AT_ONCE = 64


class FaultNews:
    """Calls `heard(now)` when messages have arrived. It does nothing if no socket can be created in the job's
    directory.
    """

    def __init__(self, directory: Path, reactor: Reactor, heard: Callable[[float], None]) -> None:
        self._heard = heard
        self._reactor = reactor
        self._path = directory / NEWS_NAME
        self._socket: _socket.socket | None = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            self._shut()
            return
        try:
            self._path.unlink(missing_ok=True)  # remove the socket's file, which a killed agent may have left
            # A socket's path may have at most 107 bytes, and the state directory's path may be longer. So bind through
            # /proc.
            self._socket.bind(f"/proc/self/fd/{folder}/{NEWS_NAME}")
            self._path.chmod(0o600)
        except OSError:
            self._shut()
            return
        finally:
            os.close(folder)
        reactor.watch(self._socket.fileno(), self._ready)

    def close(self) -> None:
        """Stop listening and remove the socket's file."""
        if self._socket is not None:
            self._reactor.forget(self._socket.fileno())
            self._shut()
            self._path.unlink(missing_ok=True)

    def _ready(self, fd: int, now: float) -> None:
        assert self._socket is not None, "it is watched"
        for _ in range(MOST_AT_ONCE):
            try:
                self._socket.recv(1)
            except BlockingIOError:
                break
        self._heard(now)

    def _shut(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
