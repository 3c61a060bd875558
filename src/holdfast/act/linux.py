"""Linux system calls and /proc files that Python's standard library has no function for."""

from __future__ import annotations

import _ctypes  # used instead of `ctypes`, which creates three dozen types and so loads slowly
import os
import sys

TYPE_CHECKING = False  # importing `typing` would take longer than everything else in this module
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PTRACER = 0x59616D61
_PF_EXITING = 0x4
_PF_FORKNOEXEC = 0x40
#: With this argument, dlopen opens this process itself, which includes the C library.
_ITSELF: Any = None
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(_ITSELF, 0), "prctl") if sys.platform == "linux" else 0


def _prctl(option: int, argument: int) -> int:
    return int(_ctypes.call_cdeclfunction(_PRCTL, (option, argument, 0, 0, 0)))


def become_subreaper() -> bool:
    """Make this process the parent of its orphaned descendants, in place of init. Return False if the system cannot do
    that.
    """
    return sys.platform == "linux" and _prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0


def die_with_parent(parent: int, signal_number: int) -> None:
    """Let the kernel send this process the signal when its parent thread dies. Exit at once if the parent is dead
    already.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal_number)
        if os.getppid() != parent:
            os._exit(1)


def name_process(name: str) -> None:
    """Set the process name that `ps` and /proc/PID/comm show; at most 15 letters."""
    try:
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(name.encode())
    except OSError:
        pass  # ignore a system without this file, because only humans read the name


def let_trace(pid: int) -> None:
    """Allow process `pid` and its descendants to trace this process, even if Yama allows only ancestors. py-spy needs
    that to read stacks.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PTRACER, pid)


class Dispositions:
    """How a process handles signals, from /proc/PID/status. All fields are empty if the process has exited or is not
    readable.
    """

    __slots__ = ("caught", "ignored", "state")

    def __init__(self, caught: int = 0, ignored: int = 0, state: str = "") -> None:
        """Parse the fields of /proc/PID/status. `caught`, `ignored`: signal masks. `state`: the state letter."""
        #: The signals for which the process has a handler.
        self.caught = _numbers(caught)
        self.ignored = _numbers(ignored)
        #: The state letter of proc(5): R, S, D, T, t or Z.
        self.state = state


def _numbers(mask: int) -> frozenset[int]:
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)


def dispositions(pid: int) -> Dispositions:
    """Return how a process handles signals, and its state."""
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
        pass  # ignore a process that has exited
    return Dispositions(masks["SigCgt:"], masks["SigIgn:"], state)


def handlers(pid: int) -> tuple[frozenset[int], str]:
    """Return the signals for which a process has a handler, and its state letter. Both are empty if it has exited."""
    found = dispositions(pid)
    return found.caught, found.state


def children(pid: int) -> list[int]:
    """Return the direct children of a process, zombies included; empty if the process has exited."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
                found.extend(int(word) for word in file.read().split())
    except FileNotFoundError:
        if os.path.isdir(f"/proc/{pid}"):
            # The kernel was built without CONFIG_PROC_CHILDREN, so scan /proc.
            return _children_by_scan(pid)
    except OSError:
        pass  # ignore that the process exited while its children were read
    return found


def is_fork(pid: int, child: int) -> bool:
    """Return whether the child has not called exec since its fork. An exec would have moved its stack to another
    address.
    """
    first, second = _stack(pid), _stack(child)
    return first is not None and first == second


def _stack(pid: int) -> bytes | None:
    """Return the start address of a process's stack as digits; `0` if it is not readable, None if the process has
    exited.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rsplit(b")", 1)[1].split()[25]
    except OSError:
        return None


def is_dying(pid: int) -> bool:
    """Return whether the process is exiting inside the kernel, or is a zombie.

    A dying process closes its sockets well before the kernel reports its exit. So the failure of a peer, caused by a
    closed socket, may be reported first.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)


def is_unchanged_fork(pid: int) -> bool:
    """Return whether the process has not called exec since its fork. Return False if it has exited, or if the kernel
    does not show that.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    return bool(int(fields[6]) & _PF_FORKNOEXEC)


def executable(pid: int) -> str:
    """Return the file name of a process's executable; empty if the process has exited or may not be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def pipe_at(pid: int, fd: int) -> str:
    """Return the name of the pipe behind this fd of a process, such as `pipe:[123]`; empty if it is no pipe."""
    try:
        name = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""
    return name if name.startswith("pipe:") else ""


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
    """Return all descendants of `pid`, parents before children. Leave out the children in `leave` and their
    descendants."""
    found: list[int] = []
    queue = [child for child in children(pid) if child not in leave]
    while queue:
        found.extend(queue)
        queue = [below for child in queue for below in children(child)]
    return found


def in_background(pid: int) -> bool:
    """Return whether the process is in the background of its terminal. Usually a shell has started it with `&`."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    group, terminal, foreground = int(fields[2]), int(fields[4]), int(fields[5])
    return terminal != 0 and foreground not in (-1, group)


def close_others(keep: Collection[int]) -> None:
    """Close every fd except the standard streams and those in `keep`."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # ignore the fd that listed the directory, because it is closed by now


def how_ended(pidfd: int) -> str:
    """Return how a process has ended, as ` (signal 9)` or ` (status 70)`; "" if unknown. Do not reap the process."""
    try:
        info = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return ""
    if info is None:
        return ""
    return f" (status {info.si_status})" if info.si_code == os.CLD_EXITED else f" (signal {info.si_status})"
