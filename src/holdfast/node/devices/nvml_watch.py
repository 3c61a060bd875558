"""The NVML source of a run: a small child process that waits for NVML events and writes them to a pipe.

A call to the NVML library blocks, and the supervisor must have no threads, because it forks. So the library runs in a
child process. NVML keeps every GPU open, so a reset sends the child SIGTERM, and the run restarts the child after the
reset.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.act.isolated_fork import forked
from holdfast.model.codec import encode
from holdfast.model.faults import FaultEvent
from holdfast.observe.devices.nvml_events import watch
from holdfast.untrusted import Malformed, json_as

if TYPE_CHECKING:
    from holdfast.children import Child

#: The child's name. Every holdfast process on this machine recognises the child by it.
NAME = "holdfast-nvml"
_PR_SET_NAME = 15
_BLOCK = 65_536
_LONGEST = 1 << 20
#: The child is restarted at most this often in one run. A reset takes minutes, so a run never needs more.
_MOST_RETURNS = 100


class NvmlWatch:
    """The NVML fault source of a run. `before`: runs first in the child process, and may take as long as a reset."""

    def __init__(self, *, node: str, before: Callable[[], None]) -> None:
        self.missing = ""
        self.news: list[str] = []
        self._node = node
        self._before = before
        self._epoll = select.epoll()
        self._pipe = -1
        self._child: Child | None = None
        self._rest = b""
        self._why = ""
        self._listening = False
        self._returns = 0
        self._start()

    def fileno(self) -> int:
        return self._epoll.fileno() if self._child is not None else -1

    def take(self, now: float) -> list[FaultEvent]:
        """Return the new fault events. If the child has exited, restart it or set `missing` to the reason."""
        del now
        ended = any(self._child is not None and fd == self._child.pidfd for fd, _ in self._epoll.poll(0))
        events = self._read()
        if ended:
            self._reap()
        return events

    def close(self) -> None:
        if self._child is not None:
            self._release(self._child)
            self._child.end()
        self._epoll.close()

    def _start(self) -> None:
        self._pipe, writer = os.pipe()
        self._child = forked(lambda: self._watch(writer), keep=(writer,))
        os.close(writer)
        os.set_blocking(self._pipe, False)
        self._rest, self._why = b"", ""
        self._listening = True
        for fd in (self._pipe, self._child.pidfd):
            self._epoll.register(fd, select.EPOLLIN)

    def _watch(self, writer: int) -> None:
        """Wait for NVML events and write them to the pipe. This runs in the child process."""
        _name()
        self._before()
        why = watch(lambda event: _write(writer, encode(event)), node=self._node)
        _write(writer, msgspec.json.encode(why))

    def _read(self) -> list[FaultEvent]:
        events: list[FaultEvent] = []
        while len(self._rest) < _LONGEST:
            try:
                block = os.read(self._pipe, _BLOCK)
            except BlockingIOError:
                break
            if not block:
                # A pipe without a writer stays readable for ever, so stop polling it. The pidfd shows the exit of the
                # child.
                if self._listening:
                    self._listening = False
                    self._epoll.unregister(self._pipe)
                break
            self._rest += block
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            try:
                found: FaultEvent | str = json_as(line, FaultEvent | str)
            except Malformed:
                continue  # skip this line: it is no event, but output of the library
            if isinstance(found, str):
                self._why = found
            else:
                events.append(found)
        return events

    def _reap(self) -> None:
        assert self._child is not None
        self._release(self._child)
        code = self._child.reap()
        self._child = None
        if code == -signal.SIGTERM and self._returns < _MOST_RETURNS:
            self._returns += 1
            self._start()
            return
        self.missing = self._why or (
            f"the process that waits for NVML was ended by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"the process that waits for NVML ended with status {code}"
        )

    def _release(self, child: Child) -> None:
        self._epoll.unregister(child.pidfd)
        if self._listening:
            self._epoll.unregister(self._pipe)
        os.close(self._pipe)
        self._pipe = -1


def _write(fd: int, line: bytes) -> None:
    os.write(fd, line + b"\n")


def _name() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
