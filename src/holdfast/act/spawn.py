"""One worker's process: prepared, waiting, and then the user's program.

The supervisor forks by itself (it has one thread, on purpose): the child becomes a session of its own, joins its
groups, wires its streams, reports `ready`, and waits for its go before it becomes the program. If it cannot become the
program, the error comes back through a pipe, which closes by itself on success.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.act.linux import close_others, die_with_parent, let_trace
from holdfast.file_modes import users_umask

READY = b"+"
_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_DEFAULTED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Spawned(msgspec.Struct, frozen=True):
    """A prepared process. The caller owns the four fds."""

    pid: int
    pidfd: int
    #: One byte is the go. If it is closed without a byte, the process exits.
    go_fd: int
    #: `READY`; then the end of file when the program runs, or the text of the error that prevented it.
    status_fd: int


def spawn(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    stdin_fd: int,
    stdout_fd: int,
    stderr_fd: int,
    groups: Sequence[Path] = (),
    keep: Sequence[int] = (),
    deaf: bool = False,
    cpus: Collection[int] = (),
) -> Spawned:
    """Fork a worker that waits for its go. Raises OSError if it cannot fork.

    `groups`: cgroup.procs files to join. `keep`: fds that it gets besides its streams; no other of ours, and none that
    our caller left open, reaches it. `deaf`: it is a helper of ours, and what a scheduler sends to every process of the
    job is not for it: those signals are blocked. `cpus`: it runs only on these; none: where we may run.
    """
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        for fd in (go_read, go_write, status_read, status_write):
            os.close(fd)
        raise
    if pid == 0:
        os.close(go_write)
        streams, blocked = (stdin_fd, stdout_fd, stderr_fd), _FOR_WORKERS if deaf else ()
        _become(command, env, cwd, streams, groups, go_read, status_write, parent, keep, blocked, cpus)
    os.close(go_read)
    os.close(status_write)
    os.set_blocking(status_read, False)
    return Spawned(pid, os.pidfd_open(pid), go_write, status_read)


def _become(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    streams: tuple[int, int, int],
    groups: Sequence[Path],
    go_fd: int,
    status_fd: int,
    parent: int,
    keep: Sequence[int],
    blocked: Sequence[int],
    cpus: Collection[int],
) -> NoReturn:
    """In the child. It must not return, and must not run the supervisor's handlers."""
    code = 127
    what = "prepare"
    try:
        for number in _DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # who made a helper does not wait for what it says
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.set_wakeup_fd(-1)
        os.umask(users_umask())
        os.setsid()
        die_with_parent(parent, signal.SIGKILL)
        let_trace(parent)
        for group in groups:
            group.write_text("0", encoding="utf-8")
        if cpus:
            what = f"bind to the CPUs {', '.join(map(str, sorted(cpus)))}"
            os.sched_setaffinity(0, cpus)
            what = "prepare"
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
            # One that is in its place already would be closed when the program begins.
            os.set_inheritable(target, True)
        # At once, since it may wait for long: what we let go of (the port that rank 0 is to open) is then free.
        close_others((go_fd, status_fd, *keep))
        try:
            os.write(status_fd, READY)
        except BrokenPipeError:
            pass
        if not os.read(go_fd, 1):
            os._exit(0)
        what = f"working directory {cwd}"
        os.chdir(cwd)
        what = f"exec {command[0]}"
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvpe(command[0], list(command), dict(env))
    except OSError as error:
        code = 126 if isinstance(error, PermissionError) or error.errno == 8 else 127
        os.write(status_fd, f"{what}: {error.strerror} (status {code})".encode(errors="replace"))
    finally:
        os._exit(code)
