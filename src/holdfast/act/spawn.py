"""Starts one worker's process. The process prepares itself, waits for GO, and then becomes the user's program.

The supervisor calls fork directly, because it has only one thread. The child creates its own session, joins its control
groups, connects its streams, reports `READY`, and waits for a byte from the supervisor before it execs the program. If
the exec fails, the child writes the error to a status pipe. If it works, the pipe closes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from holdfast.act import open_files
from holdfast.act.interpreter_line import script_fault
from holdfast.act.linux import close_others, die_with_parent, let_trace
from holdfast.act.program_check import InterpreterError, check_program
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
    """A prepared process that waits for GO. The caller owns the four fds and closes them."""

    pid: int
    pidfd: int
    #: Write one byte to this fd to let the process exec its program. If the fd is closed without a byte, the process
    #: exits.
    go_fd: int
    #: A pipe from the process. It yields `READY`, then the end of file when the program runs, or the error of a failed
    #: start.
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
    check: bool = False,
) -> Spawned:
    """Fork a process that waits for permission to exec `command`. Raises OSError if fork fails.

    `cwd`: its working directory. `stdin_fd`, `stdout_fd`, `stderr_fd`: its streams, which stay open in the caller.
    `groups`: cgroup.procs files to join. `keep`: fds that stay open in it besides its streams; all others are closed.
    `deaf`: block the signals that a scheduler sends to every process of a job (for holdfast's own helpers). `cpus`: the
    CPUs to which it is bound; empty means holdfast's own. `check`: report a missing working directory or program early,
    in place of `READY`.
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
        _become(command, env, cwd, streams, groups, go_read, status_write, parent, keep, blocked, cpus, check)
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
    check: bool,
) -> NoReturn:
    """In the child process: prepare, wait for GO, and exec. This must never return, and must never run the supervisor's
    signal handlers.
    """
    code = 127
    what = "prepare"
    try:
        for number in _DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        # ignore SIGPIPE, because the parent may have closed the status pipe
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
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
            # If dup2 copies an fd onto itself, the fd keeps its close-on-exec flag, and the exec would close it.
            os.set_inheritable(target, True)
        # Close all other fds before the wait. Otherwise a port that the supervisor releases for rank 0 would stay in
        # use.
        close_others((go_fd, status_fd, *keep))
        open_files.restore()
        if check:
            what = f"working directory {cwd}"
            os.chdir(cwd)
            what = f"exec {command[0]}"
            check_program(command[0], env)
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
        fault = ""
        if what.startswith("exec "):
            fault = script_fault(command[0], env)
        if isinstance(error, InterpreterError) and not fault:
            what = f"{what}: its interpreter {error.filename!r}"
        text = f"{what}: {error.strerror} (status {code})" + (f": {fault}" if fault else "")
        os.write(status_fd, text.encode(errors="replace"))
    finally:
        os._exit(code)
