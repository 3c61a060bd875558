"""Starts and reaps the helper processes of holdfast: checks, probes, nurseries, the store, resets.

A process has one set of children, so there is one register. A helper stands in it from its spawn until it is reaped:
which children are the job's is then a lookup, and no station has to be asked.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_helpers: set[int] = set()
_informants: list[Callable[[], None]] = []
_DEFAULTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


def helpers() -> frozenset[int]:
    """The children of this process that are not the job's."""
    for look in tuple(_informants):
        look()
    return frozenset(_helpers)


def note(pid: int) -> None:
    """A helper has been started, or a process that a helper has forked is a child of ours now."""
    _helpers.add(pid)


def forget(pid: int) -> None:
    """It is reaped; or it is the job's from now on."""
    _helpers.discard(pid)


def inform(look: Callable[[], None]) -> None:
    """`look` runs before each answer of `helpers`: it notes children that something else has forked for us."""
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
    """Run a program as a helper: it leads a session, and its two streams go to these descriptors.

    `errors`: None: they are dropped. `given`: what it reads; None: nothing. `deaf`: the signals that it starts with
    blocked. Raises OSError where it cannot be run.
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
        pid = spawned(session=False)  # a Python that was built for an old libc
    return Child(pid, group=True)


class Child:
    """One helper: its pidfd is readable when it has ended. Exactly one of `reap` and `end` follows.

    `group`: it leads a process group or session of its own, and all of that is killed with it. `pidfd`: where the
    caller has one. Raises OSError where none can be had; the helper is ended then.
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
        """It has ended, and may be reaped without a wait."""
        try:
            return os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True  # something else has reaped it

    def kill(self) -> None:
        """SIGKILL. It is not waited for: the pidfd tells."""
        try:
            if self._group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended, or was reaped

    def reap(self) -> int | None:
        """After its end: the exit status, or minus its signal; None where something else reaped it."""
        status = self._reap(os.WEXITED)
        os.close(self.pidfd)
        return status

    def end(self, wait_s: float = 1.0) -> None:
        """Kill and reap it.

        A child in uninterruptible sleep would block this process for ever, so the wait ends after `wait_s` seconds;
        such a child is reaped when it dies, as an orphan. Any other is gone within milliseconds.
        """
        import select  # hardly any start needs it

        self.kill()
        select.select([self.pidfd], [], [], wait_s)
        self._reap(os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)

    def _reap(self, options: int) -> int | None:
        forget(self.pid)
        try:
            # By the pidfd: the number may be another child's by now.
            found = os.waitid(os.P_PIDFD, self.pidfd, options)
        except ChildProcessError:
            return None
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
