"""The few calls of the kernel for which Python has no function."""

from __future__ import annotations

import _ctypes  # `ctypes` itself makes three dozen types first
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_PF_EXITING = 0x4
#: This process's symbols, with the C library's, as a library.
_ITSELF: Any = None
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(_ITSELF, 0), "prctl") if sys.platform == "linux" else 0


def _prctl(option: int, argument: int) -> int:
    return int(_ctypes.call_cdeclfunction(_PRCTL, (option, argument, 0, 0, 0)))


def become_subreaper() -> bool:
    """Orphans below this process become its children instead of init's; False where the system cannot do it."""
    return sys.platform == "linux" and _prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0


def die_with_parent(parent: int, signal_number: int) -> None:
    """Get this signal when the parent thread dies. Ends the process at once if the parent has died already."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent:
            os._exit(1)


def name_process(name: str) -> None:
    """What `ps` and /proc/PID/comm call this process from now on; at most 15 letters."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(name.encode())
    except OSError:
        pass  # a system without it: the name is for people only


def let_trace(pid: int) -> None:
    """Where Yama lets only ancestors trace: let this process and its descendants (py-spy, in a hang) read this
    process's stacks."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PTRACER, pid)


class Dispositions:
    """What a process does with signals, by proc(5). All empty where it has ended or may not be read."""

    __slots__ = ("caught", "ignored", "state")

    def __init__(self, caught: int = 0, ignored: int = 0, state: str = "") -> None:
        self.caught = _numbers(caught)
        """The signals for which it has a handler."""
        self.ignored = _numbers(ignored)
        self.state = state
        """The letter: R, S, D, T, t, Z."""


def _numbers(mask: int) -> frozenset[int]:
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)


def dispositions(pid: int) -> Dispositions:
    """How a process has set its signals, and its state."""
    masks, state = {"SigCgt:": 0, "SigIgn:": 0}, ""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, *words = line.split()
                if name == "State:":
                    state = words[0]
                elif name in masks:
                    masks[name] = int(words[0], 16)
    except OSError:
        pass  # gone
    return Dispositions(masks["SigCgt:"], masks["SigIgn:"], state)


def handlers(pid: int) -> tuple[frozenset[int], str]:
    """The signals for which a process has a handler, and its state; empty for one that has ended."""
    found = dispositions(pid)
    return found.caught, found.state


def children(pid: int) -> list[int]:
    """The direct children of a process, zombies included. Empty where the process has ended."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found.extend(int(word) for word in file.read().split())
    except FileNotFoundError:
        if os.path.isdir(f"/proc/{pid}"):
            return _children_by_scan(pid)  # a kernel built without CONFIG_PROC_CHILDREN
    except OSError:
        pass  # it went away while we looked
    return found


def is_fork(pid: int, child: int) -> bool:
    """Whether the child still runs the program of its parent: an exec gives it a stack at another address."""
    first, second = _stack(pid), _stack(child)
    return first is not None and first == second


def _stack(pid: int) -> bytes | None:
    """The start address of a process's stack; None where it has ended, and 0 where it is not visible."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rsplit(b")", 1)[1].split()[25]
    except OSError:
        return None


def is_dying(pid: int) -> bool:
    """Whether the process is exiting beyond return, or has ended and is not reaped.

    A dying process closes its sockets well before its death is announced: a peer that notices can be dead first.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)


def _children_by_scan(pid: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    if int(file.read().rsplit(b")", 1)[1].split()[1]) == pid:
                        found.append(int(name))
            except OSError:
                continue
    return found


def descendants(pid: int, leave: frozenset[int] = frozenset()) -> list[int]:
    """Every process below this one, parents before children; the trees of `leave` are left out."""
    found: list[int] = []
    queue = [child for child in children(pid) if child not in leave]
    while queue:
        found.extend(queue)
        queue = [below for child in queue for below in children(child)]
    return found


def in_background(pid: int) -> bool:
    """Whether this process's terminal belongs to another group now: mostly that of a shell, which started it
    with `&`."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    group, terminal, foreground = int(fields[2]), int(fields[4]), int(fields[5])
    return terminal != 0 and foreground not in (-1, group)


def close_others(keep: Collection[int]) -> None:
    """Close every fd but the standard streams and these."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # the one that the listing itself had


def how_ended(pidfd: int) -> str:
    """` (signal 9)`, ` (status 70)`: how it ended, as far as is known; it stays to be reaped."""
    try:
        info = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return ""
    if info is None:
        return ""
    return f" (status {info.si_status})" if info.si_code == os.CLD_EXITED else f" (signal {info.si_status})"
