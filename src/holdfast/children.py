"""Starts and reaps the helper processes of holdfast: checks, probes, nurseries, the store, resets.

Each process has one register of its helpers, which this module holds. A helper is in the register from its start until
it is reaped. Every other child of the process belongs to the job.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_helpers: set[int] = set()
_informants: list[Callable[[], None]] = []
_DEFAULTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


def helpers() -> frozenset[int]:
    """Return the pids of the registered helpers: children of this process that do not belong to the job."""
    for look in tuple(_informants):
        look()
    return frozenset(_helpers)


def note(pid: int) -> None:
    """Register a helper that was just started, or that another helper forked and that is now a child of this
    process."""
    _helpers.add(pid)


def forget(pid: int) -> None:
    """Remove a process from the register, because it was reaped or belongs to the job from now on."""
    _helpers.discard(pid)


def inform(look: Callable[[], None]) -> None:
    """Register a function `look` that `helpers` calls first.

    `look` registers (`note`) children that a helper has forked for this process.
    """
    _informants.append(look)


def inform_no_more(look: Callable[[], None]) -> None:
    if look in _informants:
        _informants.remove(look)


def start(
    command: Sequence[str],
    *,
    output: int,
    errors: int | None = None,
    given: int | None = None,
    env: Mapping[str, str] = os.environ,
    deaf: Sequence[int] = (),
) -> Child:
    """Run a program as a helper in a new session.

    `output`, `errors`: descriptors for stdout and stderr; `errors` None: stderr is discarded. `given`: descriptor for
    stdin; None: /dev/null. `deaf`: signals that are blocked when the program starts. Raise OSError if the program
    cannot be run.
    `command`: the program and its arguments.
    """
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if given is None else (os.POSIX_SPAWN_DUP2, given, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0) if errors is None else (os.POSIX_SPAWN_DUP2, errors, 2),
    ]

    def spawned(session: bool) -> int:
        leads = {"setsid": True} if session else {"setpgroup": 0}
        return os.posix_spawnp(
            command[0],
            list(command),
            env,
            file_actions=actions,
            setsigmask=deaf,
            setsigdef=_DEFAULTED,
            **leads,
        )

    try:
        pid = spawned(session=True)
    except NotImplementedError:
        pid = spawned(session=False)  # this Python was built for an old libc whose posix_spawn has no setsid
    return Child(pid, group=True)


class Child:
    """One helper. Its pidfd becomes readable when the helper ends. Then call exactly one of `reap` and `end`.

    `group`: whether the helper leads a process group or session, which `kill` also kills. `pidfd`: the helper's open
    pidfd, if the caller has one. If no pidfd can be opened, the helper is killed and OSError is raised.
    """

    __slots__ = ("_group", "pid", "pidfd")

    def __init__(self, pid: int, pidfd: int | None = None, *, group: bool = False) -> None:
        self.pid = pid
        self._group = group
        try:
            self.pidfd = os.pidfd_open(pid) if pidfd is None else pidfd
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        note(pid)

    @property
    def ended(self) -> bool:
        """Whether the helper has ended, so that it can be reaped without waiting."""
        try:
            return os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True  # another part of the process has reaped it

    def kill(self) -> None:
        """Send SIGKILL without waiting. The pidfd becomes readable when the helper has ended."""
        try:
            if self._group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the child has just ended, or was reaped

    def reap(self) -> int | None:
        """Reap the helper after its end. Return the exit status, or minus its signal.

        Return None if another part of the process has reaped it.
        """
        status = self._reap(os.WEXITED)
        os.close(self.pidfd)
        return status

    def end(self, wait_s: float = 1.0) -> None:
        """Kill and reap the helper.

        A child in uninterruptible sleep would block this process for ever, so the wait ends after `wait_s` seconds.
        Such a child becomes an orphan, and init reaps it when it dies. Any other child ends within milliseconds.
        """
        self.kill()
        select.select([self.pidfd], [], [], wait_s)
        self._reap(os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)

    def _reap(self, options: int) -> int | None:
        forget(self.pid)
        try:
            # Use the pidfd, because another child may already have the same pid.
            found = os.waitid(os.P_PIDFD, self.pidfd, options)
        except ChildProcessError:
            return None
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
