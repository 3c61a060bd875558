"""Signals a job's processes to exit: each rank first, and its descendants only afterwards.

A trainer that catches the signal may have to save something, and may need its helpers for that: torch's DataLoader
raises in the rank as soon as one of its workers is killed. So a process that has a handler for the signal is signalled
alone, and its descendants are not. Once it has ended, the descendants that it left behind are signalled as well. A
process without a handler (such as a shell around a trainer) does not forward the signal, so its descendants are
signalled together with it.

A shell is special: while it waits for a command in the foreground, it runs no trap. SIGINT is special as well: every
Python catches it, even a launcher that only waits for a trainer. If a process catches SIGINT but not SIGTERM, only its
own forks and multiprocessing's helpers are spared.

After a hang, a Python process that SIGTERM would end anyway gets SIGABRT instead, so that it writes its stacks first.
This works with an unmodified script and needs no tool. PYTHONFAULTHANDLER=1, which holdfast sets for workers, enables
faulthandler for SIGSEGV, SIGFPE, SIGABRT, SIGBUS and SIGILL: it writes all threads' stacks to stderr, and then the
signal kills the process. Of these five, only SIGABRT means a requested abort. (`faulthandler.register`, for a signal
that a process survives, needs a line in the script.)

A filter (`train | tee log`, `exec > >(…)`) is spared too: it exits once its writers have exited, and a trainer that
saves still prints to it. If it does not exit, `leftovers.py` signals it later.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast.act.leftovers import SHELLS, filters
from holdfast.act.linux import children, dispositions, executable, handlers, is_fork

#: Stands for a signal that every process of the job has already received from outside. A request with it sends no
#: signal.
ALREADY_TOLD = 0


class Termination:
    """Signals one attempt's processes. It remembers which ones it has signalled, and signals orphans when they
    appear.
    """

    def __init__(self) -> None:
        self._asked: set[int] = set()
        #: The pids that have got SIGTERM. No process gets it twice.
        self._terminated: set[int] = set()

    def begin_anew(self) -> None:
        """Forget the signalled pids, because another attempt begins."""
        self._asked.clear()
        self._terminated.clear()

    def ask(self, number: int, tops: Iterable[int], mute: Mapping[int, bool] | None = None) -> None:
        """Send the signal to the processes `tops` and their descendants, but not to descendants of a process that
        handles it.

        `mute`: the processes that must write their stacks, so they get SIGABRT instead of SIGTERM: pid → whether the
        process catches SIGTERM only for `on_drain`. A process that catches SIGTERM for another purpose still gets
        SIGTERM. `number`: the signal.
        """
        if number == ALREADY_TOLD:
            self._asked.update(pid for top in tops for pid in _tree(top))
            return
        # Find all processes before the first signal, because the children of a dead process get another parent.
        reached = [pid for top in tops for pid in _reached(top, number)]
        spared = filters(reached, reached, number)
        for pid in reached:
            if pid not in spared:
                self._tell(pid, number, mute or {})

    def ask_left_behind(self, tops: Iterable[int]) -> None:
        """Signal the processes `tops`, which an exited process left behind, with their descendants. Filters are
        included.
        """
        for pid in [pid for top in tops for pid in _reached(top, signal.SIGTERM)]:
            self._tell(pid, signal.SIGTERM, {})

    def unasked(self, tops: Iterable[int]) -> list[int]:
        """Return which of the processes `tops` have got no signal yet."""
        return [pid for pid in tops if pid not in self._asked]

    def _tell(self, pid: int, number: int, mute: Mapping[int, bool]) -> None:
        self._asked.add(pid)
        if number == signal.SIGTERM:
            if pid in self._terminated:
                return
            self._terminated.add(pid)
            if pid in mute and request_stacks(pid, shielded=mute[pid]):
                return
        try:
            os.kill(pid, number)
            # A stopped process must continue before it can handle the signal.
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # ignore a process that has exited since it was listed


def request_stacks(pid: int, *, shielded: bool = False) -> bool:
    """Send SIGABRT in place of SIGTERM, so that the process writes its stacks. If that would do harm, send no signal
    and return False.

    The process must catch SIGABRT. It must not catch SIGTERM, since it may then have work to save. It must not be
    stopped, since a stopped process handles the signal only after it continues. `shielded`: its SIGTERM handler is
    holdfast's `on_drain`, which saves nothing.
    """
    caught, state = handlers(pid)
    if state in ("T", "t") or signal.SIGABRT not in caught or (signal.SIGTERM in caught and not shielded):
        return False
    try:
        _without_core(pid)
        os.kill(pid, signal.SIGABRT)
    except (OSError, ValueError):
        # The process has exited or is another user's, so the caller's SIGTERM will fail too.
        return False
    return True


def _without_core(pid: int) -> None:
    """Forbid a core file, because it could have 100 GB. With a limit of 1 byte the kernel does not pipe a core to a
    program either.
    """
    import resource  # imported late, because only a hang needs it

    hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
    resource.prlimit(pid, resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each process."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # ignore a process that has exited since it was listed


def _reached(pid: int, number: int) -> Iterator[int]:
    """Yield this process, and the descendants that must be signalled together with it."""
    yield pid
    below = children(pid)
    if below and number in (caught := dispositions(pid).caught):
        if executable(pid) in SHELLS:
            below = [child for child in below if _in_foreground(child)]
        elif number == signal.SIGINT and signal.SIGTERM not in caught:
            below = [child for child in below if not _is_helper(pid, child)]
        else:
            below = []
    for child in below:
        yield from _reached(child, number)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)


def _is_helper(pid: int, child: int) -> bool:
    """Return whether the child works for this process: it is a fork of it, or a process of multiprocessing."""
    if is_fork(pid, child):
        return True
    try:
        return b"multiprocessing" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return True  # a child that has exited counts as a helper


def _in_foreground(pid: int) -> bool:
    """Return whether a script's shell probably waits for this child. A child that a script starts with `&` ignores
    SIGINT (POSIX 2.9.3.1).
    """
    return signal.SIGINT not in dispositions(pid).ignored
