"""Forks a helper process. It inherits only the descriptors that the caller names, and no signal handler or session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from holdfast.act import open_files
from holdfast.act.linux import become_subreaper, die_with_parent
from holdfast.children import Child

_FAILED = 70


def forked(body: Callable[[], object], *, keep: Sequence[int], output: int | None = None) -> Child:
    """Run `body` in a forked child, which exits with status 70 if `body` raises.

    `keep`: the descriptors that stay open in the child. `output`: its stdout and stderr; None for /dev/null. Raises
    OSError if no process can be created.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = _FAILED
        try:
            isolate(parent, keep, os.open(os.devnull, os.O_WRONLY) if output is None else output)
            body()
            status = 0
        finally:
            os._exit(status)
    return Child(pid)


def isolate(parent: int, keep: Sequence[int], output: int) -> None:
    """Isolate the child: give it its own session and default signals, and close all descriptors except `keep` and the
    standard ones. It dies with `parent`.

    The child becomes a subreaper, so its orphaned descendants stay below it and can be found. `output`: the fd for its
    stdout and stderr.
    """
    os.setsid()
    die_with_parent(parent, signal.SIGKILL)
    become_subreaper()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    last = 3
    for fd in sorted(keep):
        os.closerange(last, fd)
        last = fd + 1
    os.closerange(last, 1 << 20)
    open_files.restore()
    if sys.stdout is None or sys.stdout.fileno() != 1:
        sys.stdout = sys.__stdout__
    if sys.stderr is None or sys.stderr.fileno() != 2:
        sys.stderr = sys.__stderr__
