"""Asks a job's processes to leave: each rank first, and what it has started only afterwards.

A trainer that catches the signal has something to save, and may need its helpers for that: torch's DataLoader fails in
the rank as soon as one of its workers is killed. So a process that has a handler for the signal gets it alone, and what
lies below it is left to it. When it has ended, what it left behind is asked as well. A process without a handler (a
shell around a trainer) ends at once or never passes the signal on: it and what lies below it are asked together.

A shell is special: while it waits for a command in the foreground it does not run its traps, for any signal.
SIGINT is special as well: every Python catches it, a launcher that only waits for a trainer too. Unless SIGTERM is
caught with it, only forks of the process and multiprocessing's helpers are left to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast.act.linux import children, dispositions, is_fork

#: Stands for "no signal": every process of the job has got one from outside.
ALREADY_TOLD = 0
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "busybox", "yash"})


class Termination:
    """One stop of an attempt: the processes that were asked, and those to ask when the process above them has ended."""

    def __init__(self) -> None:
        self._asked: set[int] = set()
        self._terminated: set[int] = set()
        """Those that were asked with SIGTERM: no process gets it twice."""

    def begin_anew(self) -> None:
        """Begin with the next attempt's processes: none of them was asked to exit."""
        self._asked.clear()
        self._terminated.clear()

    def ask(self, number: int, tops: Iterable[int], mute: Mapping[int, bool] | None = None) -> None:
        """Send the signal to these processes and their descendants, except for descendants that are left to them.

        `mute`: those of them that SIGTERM would kill at once write their stacks in its place. True: also where SIGTERM
        is caught, since only `on_drain` catches it.
        """
        if number == ALREADY_TOLD:
            self._asked.update(pid for top in tops for pid in _tree(top))
            return
        # All are found before the first is signalled: one that dies of it leaves its children to another parent.
        for pid in [pid for top in tops for pid in _reached(top, number)]:
            self._tell(pid, number, mute or {})

    def ask_left_behind(self, tops: Iterable[int]) -> None:
        """A process has ended: ask the processes that it left behind. `tops`: children of this process that are no
        rank's process."""
        self.ask(signal.SIGTERM, [pid for pid in tops if pid not in self._asked])

    def _tell(self, pid: int, number: int, mute: Mapping[int, bool]) -> None:
        self._asked.add(pid)
        if number == signal.SIGTERM:
            if pid in self._terminated:
                return
            self._terminated.add(pid)
            if pid in mute:
                from holdfast.act.fatal_stack_dump import request_stacks  # only a hang needs it

                if request_stacks(pid, shielded=mute[pid]):
                    return
        try:
            os.kill(pid, number)
            # A stopped process takes its signal only when it goes on.
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # gone between look and signal


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to each of them."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # gone between look and signal


def _reached(pid: int, number: int) -> Iterator[int]:
    """This process, and its descendants that are not left to it."""
    yield pid
    below = children(pid)
    if below and number in (caught := dispositions(pid).caught):
        if _is_shell(pid):
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


def _is_shell(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name in _SHELLS
    except OSError:
        return False  # gone, or it may not be read


def _is_helper(pid: int, child: int) -> bool:
    """Whether the child does a part of this process's own work: a fork of it, or a process of multiprocessing."""
    if is_fork(pid, child):
        return True
    try:
        return b"multiprocessing" in Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return True  # gone


def _in_foreground(pid: int) -> bool:
    """Whether a script's shell waits for this child. A child that a script starts with `&` ignores SIGINT (POSIX
    2.9.3.1)."""
    return signal.SIGINT not in dispositions(pid).ignored
