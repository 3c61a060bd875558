"""One process beside the workers: a hook, a daemon or sshd, with a log of its own.

It is a helper (`holdfast.children`): what stops the job's processes passes it by, and it ends when its station says so.
It runs in the workers' directory. Both of its streams go to one log. What it has started and left behind is an orphan
of this process: a child of the job like any other, stopped with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import children
from holdfast.act.linux import descendants
from holdfast.act.spawn import READY, spawn
from holdfast.act.termination import Termination, kill
from holdfast.errors import BadUsage
from holdfast.observe.worker_stream import BLOCK_BYTES, Stream, StreamLog
from holdfast.reactor import CallbackPriority

if TYPE_CHECKING:
    from holdfast.reactor import News, Reactor

#: Of its last words.
LAST_BYTES = 2048


class SidecarEnd:
    """How it ended."""

    __slots__ = ("exit_code", "last_words", "signal", "trouble")

    def __init__(self, status: int | None, trouble: str, last_words: str) -> None:
        self.exit_code = status if status is not None and status >= 0 else None
        self.signal = -status if status is not None and status < 0 else None
        self.trouble = trouble
        """Why it never became its program; empty where it did."""
        self.last_words = last_words

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.trouble


class SidecarProcess:
    """It runs from its construction until `ended(side, end, now)` is called."""

    def __init__(
        self,
        reactor: Reactor,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: StreamLog,
        *,
        ended: Callable[[SidecarProcess, SidecarEnd, float], News],
        mask: Callable[[str], str] = str,
        up: Callable[[float], News] | None = None,
    ) -> None:
        """`mask`: takes secrets out of its last words. `up`: called once when it runs its program.

        Raises OSError where no process can be made.
        """
        self._reactor = reactor
        self._ended = ended
        self._mask = mask
        self._up = up
        self._said = b""
        reader, writer = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            started = spawn(command, env, cwd=cwd, stdin_fd=nothing, stdout_fd=writer, stderr_fd=writer)
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
            os.close(nothing)
        self._child = children.Child(started.pid, started.pidfd, group=True)
        self._status_fd = started.status_fd
        self._stream = Stream(reader, log.source, log, None)
        try:
            os.write(started.go_fd, b"g")
        except BrokenPipeError:
            pass  # it has died; its pidfd tells
        os.close(started.go_fd)
        reactor.watch(self._child.pidfd, self._died, turn=CallbackPriority.DEATH)
        reactor.watch(self._status_fd, self._on_readable, turn=CallbackPriority.DEATH)
        reactor.watch(reader, self._wrote)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> Path:
        return self._stream.file.path

    def last_words(self) -> str:
        """The end of its output, without secrets."""
        return self._mask(self._stream.tail()[-LAST_BYTES:].decode("utf-8", "replace"))

    def terminate(self) -> None:
        """Ask it to leave, and what runs below it as far as that is not left to it."""
        Termination().ask(signal.SIGTERM, [self.pid])

    def kill(self) -> None:
        """SIGKILL to it and to all below it."""
        kill([*descendants(self.pid), self.pid])

    def close(self) -> None:
        """Nothing more is heard of it: the job is over, and all that lived has been killed."""
        for fd in (self._child.pidfd, self._stream.fd):
            self._reactor.forget(fd)
        self._close_status()
        self._child.end(0.0)
        self._stream.close(self._reactor.now())

    # ------------------------------------------------------------------------------------------ what comes

    def _on_readable(self, fd: int, now: float) -> News:
        """The status pipe: `+` prepared, end of file up, anything else why it is not the program."""
        if data := os.read(fd, 4096):
            self._said += data
            return None
        self._close_status()
        up, self._up = self._up, None
        return up(now) if up is not None and self._said == READY else None

    def _wrote(self, fd: int, now: float) -> None:
        self._stream.on_readable(now, BLOCK_BYTES)
        if self._stream.ended:
            self._reactor.forget(fd)

    def _died(self, fd: int, now: float) -> News:
        self._reactor.forget(fd)
        self._up = None
        while self._status_fd >= 0:
            self._on_readable(self._status_fd, now)
        status = self._child.reap()
        self._reactor.forget(self._stream.fd)
        self._stream.drain(now)
        end = SidecarEnd(status, self._said.removeprefix(READY).decode(errors="replace"), self.last_words())
        self._stream.close(now)
        return self._ended(self, end, now)

    def _close_status(self) -> None:
        if self._status_fd >= 0:
            self._reactor.forget(self._status_fd)
            os.close(self._status_fd)
            self._status_fd = -1


def why(error: OSError | BadUsage) -> str:
    """Why there is no process: the machine gives none, or the command names what is not there."""
    return error.message if isinstance(error, BadUsage) else f"no process could be made: {error.strerror}"
