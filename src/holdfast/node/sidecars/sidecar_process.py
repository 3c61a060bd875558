"""One process beside the workers (a hook, a daemon or sshd) with its own log.

It is a helper (`holdfast.children`), so it is stopped by its caller, not with the workers. It runs in the workers'
directory, and both of its streams go to one log. Processes that it leaves behind become children of this process, and
are stopped with the job.
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
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.observe.worker_stream import BLOCK_BYTES, Stream, StreamLog
from holdfast.reactor import CallbackPriority

if TYPE_CHECKING:
    from holdfast.reactor import News, Reactor

#: A report has at most this many bytes of a sidecar's last output.
LAST_BYTES = 2048


class NoSshServer(Exception):
    """Raised if the ssh server cannot run, with the reason as the message."""


class SidecarEnd:
    """How a sidecar ended. `status`: its exit status, or the negative signal number, or None if unknown. `trouble`: why
    the program was never started, or "". `last_words`: the end of its output.
    """

    __slots__ = ("exit_code", "last_words", "signal", "trouble")

    def __init__(self, status: int | None, trouble: str, last_words: str) -> None:
        self.exit_code = status if status is not None and status >= 0 else None
        self.signal = -status if status is not None and status < 0 else None
        #: Why the program was never started; "" if it was.
        self.trouble = trouble
        self.last_words = last_words

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.trouble


def not_started(trouble: str) -> SidecarEnd:
    """Return the `SidecarEnd` of a sidecar whose process was never created."""
    return SidecarEnd(None, trouble, "")


class SidecarProcess:
    """One process beside the workers. The constructor starts it. `ended(side, end, now)`: called when it has ended."""

    def __init__(
        self,
        reactor: Reactor,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: StreamLog,
        *,
        ended: Callable[[SidecarProcess, SidecarEnd, float], News],
        up: Callable[[float], News] | None = None,
    ) -> None:
        """Start the process. Raises OSError if that fails.

        `command`, `env`, `cwd`: the program, its variables and its directory. `log`: gets its output. `up(now)`: called
        once, when the program runs.
        """
        self._reactor = reactor
        self._ended = ended
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
            pass  # ignore the error: the process has died, and its pidfd reports that
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
        """Return the end of the process's output, with secrets masked."""
        return without_secrets(self._stream.tail()[-LAST_BYTES:].decode("utf-8", "replace"))

    def terminate(self) -> None:
        """Send SIGTERM to the process and its descendants, but not to descendants of a process that handles SIGTERM."""
        Termination().ask(signal.SIGTERM, [self.pid])

    def kill(self) -> None:
        """Send SIGKILL to the process and all its descendants."""
        kill([*descendants(self.pid), self.pid])

    def close(self) -> None:
        """Release the process without a call of `ended`, because the job is over and every process was killed."""
        for fd in (self._child.pidfd, self._stream.fd):
            self._reactor.forget(fd)
        self._close_status()
        self._child.end(0.0)
        self._stream.close(self._reactor.now())

    # ----------------------------------------------------------------------------------- methods that the reactor calls

    def _on_readable(self, fd: int, now: float) -> News:
        """Read the status pipe. `+`: the process is prepared. End of file: the program runs. Other text: why the
        program did not start.
        """
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
    """Return why a process could not be started: the machine cannot create one, or the command contains an unknown
    name.
    """
    return error.message if isinstance(error, BadUsage) else f"no process could be made: {error.strerror}"
