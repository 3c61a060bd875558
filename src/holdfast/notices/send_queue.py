"""A bounded queue for one way of sending notices. It runs one process at a time, each with a time limit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from holdfast import children
from holdfast.act.linux import descendants
from holdfast.act.termination import kill
from holdfast.import_path import module_command
from holdfast.reactor import DueCall, Reactor
from holdfast.safe_text import one_line

#: Maximum number of events that wait for a slow command. If there are more, the oldest are dropped.
MOST_WAITING = 64
_LAST_BYTES = 2048


def ours(module: str, *words: str) -> tuple[str, ...]:
    """Return the command line that runs a module of holdfast."""
    return module_command(module, *words)


class SendQueue:
    """Sends events one after another, each through a new process.

    `name`: name of the option that requested this way of sending.
    `limit_s`: time limit of each process, in seconds.
    `say`: prints one line.
    """

    def __init__(self, name: str, limit_s: float, say: Callable[[str], None]) -> None:
        self._name = name
        self._limit_s = limit_s
        self._tell = say
        self._queue: deque[tuple[Sequence[str], bytes, Mapping[str, str]]] = deque()
        self._child: children.Child | None = None
        self._words = -1
        self._last = b""
        self._late: DueCall | None = None
        self._lost = 0
        self._said = ""
        self._reactor: Reactor

    def join(self, reactor: Reactor) -> None:
        self._reactor = reactor

    @property
    def busy(self) -> bool:
        return self._child is not None

    def add(self, command: Sequence[str], data: bytes, variables: Mapping[str, str]) -> None:
        """Queue a run of `command`. `data`: its standard input. `variables`: its additional environment variables."""
        if len(self._queue) >= MOST_WAITING:
            self._queue.popleft()
            self._lost += 1
        self._queue.append((command, data, variables))
        if self._child is None:
            self._next()

    def close(self) -> None:
        """Kill the running process, and report the events that were not sent."""
        waiting = len(self._queue) + self._lost
        if self._child is not None:
            self._kill()
            self._say("it still ran after the notice about the job's end, and was killed")
        self._queue.clear()
        if waiting:
            self._tell(f"{self._name}: {waiting} event{'s'[: waiting != 1]} dropped: more came than could be sent")

    # ------------------------------------------------------------------------------------ methods that run the commands

    def _next(self) -> None:
        while self._queue and self._child is None:
            command, data, variables = self._queue.popleft()
            try:
                self._begin(command, data, variables)
            except OSError as error:
                self._say(error.strerror or str(error))

    def _begin(self, command: Sequence[str], data: bytes, variables: Mapping[str, str]) -> None:
        given = os.memfd_create("notice", os.MFD_CLOEXEC)
        self._words, writing = os.pipe2(os.O_CLOEXEC)
        try:
            # Stdin is a file in memory, so the command may read it late or not at all.
            os.write(given, data)
            os.lseek(given, 0, os.SEEK_SET)
            environment = {**os.environ, **{name: text.replace("\0", "") for name, text in variables.items()}}
            self._child = children.start(command, output=writing, errors=writing, given=given, env=environment)
        except OSError:
            os.close(self._words)
            raise
        finally:
            os.close(given)
            os.close(writing)
        self._last = b""
        os.set_blocking(self._words, False)
        self._reactor.watch(self._words, self._on_readable)
        self._reactor.watch(self._child.pidfd, self._ended)
        self._late = self._reactor.at(self._reactor.now() + self._limit_s, self._too_late)

    def _on_readable(self, fd: int, now: float) -> None:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        self._last = (self._last + data)[-_LAST_BYTES:]
        if not data:
            self._reactor.forget(fd)

    def _ended(self, fd: int, now: float) -> None:
        if self._reactor.watched(self._words) is not None:
            self._on_readable(self._words, now)
        status = self._release().reap()
        if status:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            lines = [line for line in self._last.decode(errors="replace").splitlines() if line.strip()]
            self._say(how + (f": {one_line(lines[-1])[:300]}" if lines else ""))
        else:
            self._said = ""
        self._next()

    def _too_late(self, now: float) -> None:
        self._late = None
        self._kill()
        self._say(f"killed after {self._limit_s:g} s (--notice-timeout)")
        self._next()

    def _kill(self) -> None:
        assert self._child is not None
        # Find the command's child processes before the kill, because afterwards they have another parent.
        below = descendants(self._child.pid)
        child = self._release()
        child.kill()
        kill(below)
        child.end()

    def _release(self) -> children.Child:
        assert self._child is not None
        child, self._child = self._child, None
        for fd in (child.pidfd, self._words):
            self._reactor.forget(fd)
        os.close(self._words)
        if self._late is not None:
            self._late.close()
            self._late = None
        return child

    def _say(self, why: str) -> None:
        """Print one line with the reason `why`, unless the last printed line had the same reason."""
        if why != self._said:
            self._said = why
            self._tell(f"{self._name}: {why}; the job is not affected")
