"""Reads a process and its descendants from /proc: threads, states, waits, CPU time and bytes moved so far.

This module sends no signal. A process may exit at any time; the functions then return less data.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.evidence import ThreadState
from holdfast.model.noun_base import Noun

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: At most this many of a process's threads are read. A report needs a dozen, and a process may have thousands.
MAX_THREADS = 48
#: The main threads of at most this many descendants are read, besides the process's threads.
MAX_CHILDREN = 12
#: Number → name of the system calls that can block, by machine. Any other call is shown as `syscall N`. Source: the
#: kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (arm64).
_X86_64 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 22: "pipe", 23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 65: "semop",
    70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 219: "restart_syscall", 220: "semtimedop",
    230: "clock_nanosleep", 232: "epoll_wait", 243: "mq_timedreceive", 247: "waitid", 257: "openat",
    262: "newfstatat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range", 281: "epoll_pwait", 288: "accept4",
    299: "recvmmsg", 306: "syncfs", 326: "copy_file_range", 426: "io_uring_enter", 441: "epoll_pwait2",
    449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_ARM64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync",
    83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
    124: "sched_yield", 128: "restart_syscall", 133: "rt_sigsuspend", 137: "rt_sigtimedwait", 183: "mq_timedreceive",
    188: "msgrcv", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs",
    285: "copy_file_range", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_BY_MACHINE = {"x86_64": _X86_64, "aarch64": _ARM64}
_HERE = _BY_MACHINE.get(os.uname().machine, {})
_WITH_FILE = frozenset({
    "read", "write", "pread64", "pwrite64", "readv", "writev", "ioctl", "fcntl", "flock", "fsync", "fdatasync",
    "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "accept", "accept4", "connect", "sync_file_range",
})  # fmt: skip


class ProcessLook(Noun, frozen=True, kw_only=True):
    """The state of a process and its descendants at one moment."""

    pid: int
    #: The process's own threads, main thread first; then the main threads of its descendants.
    threads: tuple[ThreadState, ...] = ()
    #: CPU seconds used by the processes in `tree`, including their reaped children.
    cpu_s: float = 0.0
    #: Bytes that the processes in `tree` have read and written so far with system calls.
    io_bytes: int = 0
    #: The pids of the process and its living descendants.
    tree: tuple[int, ...] = ()

    @property
    def stopped(self) -> bool:
        """Return whether every thread of the process itself is stopped (T) or traced (t)."""
        own = [thread for thread in self.threads if thread.pid in (0, self.pid)]
        return bool(own) and all(thread.state in ("T", "t") for thread in own)


def _text(path: str) -> str:
    # Use os.read, because a sample of 64 ranks reads many small files and should take milliseconds.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 65536).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _numbers(path: str) -> list[int]:
    """Return the numeric entries of a directory in /proc; empty if the process has exited."""
    try:
        return [int(name) for name in os.listdir(path) if name.isdigit()]  # noqa: PTH208 only the names are needed
    except OSError:
        return []


def _stat(path: str) -> tuple[str, list[str]] | None:
    """Return the process name, and the fields after it from the state on. The name may contain blanks and brackets, so
    it ends at the last bracket.
    """
    text = _text(path)
    left, right = text.find("("), text.rfind(")")
    if left < 0 or right < left:
        return None
    return text[left + 1 : right], text[right + 2 :].split()


def state(pid: int) -> str:
    """Return the state letter of /proc/PID/stat, `Z` for a zombie, or "" if the process has exited."""
    found = _stat(f"/proc/{pid}/stat")
    return found[1][0] if found else ""


def parent(pid: int) -> int | None:
    """Return the pid of the process's parent, or None if the process has exited."""
    found = _stat(f"/proc/{pid}/stat")
    return int(found[1][1]) if found else None


def children(pid: int) -> tuple[int, ...]:
    """Return the direct children. Without CONFIG_PROC_CHILDREN in the kernel, scan /proc."""
    base = f"/proc/{pid}/task"
    tasks = _numbers(base)
    if tasks and not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return tuple(sorted(other for other in _numbers("/proc") if parent(other) == pid))
    found: list[int] = []
    for task in tasks:
        found.extend(int(word) for word in _text(f"{base}/{task}/children").split())
    return tuple(found)


def tree(pid: int, *, limit: int = 4096) -> tuple[int, ...]:
    """Return the process and its descendants, parents first, at most `limit`.

    A process whose parent has died is missing, because another process has adopted it. The worker's cgroup still
    contains it.
    """
    found: list[int] = []
    seen: set[int] = set()
    todo = [pid]
    while todo and len(found) < limit:
        one = todo.pop(0)
        if one in seen:
            continue
        seen.add(one)
        found.append(one)
        todo.extend(children(one))
    return tuple(found)


def _file_of(pid: int, call: str) -> str:
    """Return the descriptor in a system call and its file, such as `0 pipe:[8123]`; "" if there is none or it is
    unreadable.
    """
    number = _syscall_file(call)
    if number is None:
        return ""
    try:
        target = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 Path.readlink would tidy `pipe:[1]` away
    except OSError:
        return ""
    return f"{number} {target[:200]}"


def _waits_in(pid: int, tid: int, call: str) -> str:
    """Return the readable part of a thread's wait: the system call and the kernel's function, as `futex
    (futex_do_wait)`.

    Only a process with the right to trace may read the system call.
    """
    called = _syscall_name(call)
    channel = _text(f"/proc/{pid}/task/{tid}/wchan").strip("\0 \n")
    if channel in ("", "0"):
        return called
    return f"{called} ({channel})" if called else channel


def _cpu_s(fields: list[str], *, reaped: bool) -> float:
    ticks = int(fields[11]) + int(fields[12])
    if reaped:
        ticks += int(fields[13]) + int(fields[14])
    return ticks / _TICKS_PER_S


def thread(pid: int, tid: int, *, name: str = "") -> ThreadState | None:
    """Return the state of one thread; None if it has exited. `name`: a name to show in place of the thread's. `tid`:
    the thread's id.
    """
    found = _stat(f"/proc/{pid}/task/{tid}/stat")
    if found is None:
        return None
    comm, fields = found
    # A running thread does not wait, although /proc may show an earlier call.
    runs = fields[0] == "R"
    call = "" if runs else _text(f"/proc/{pid}/task/{tid}/syscall")
    return ThreadState(
        tid=tid,
        pid=pid,
        name=name or comm,
        state=fields[0],
        waits_in="" if runs else _waits_in(pid, tid, call),
        cpu_s=_cpu_s(fields, reaped=False),
        switches=_voluntary_switches(pid, tid) if runs else 0,
        faults=int(fields[7]) if runs else 0,
        file=_file_of(pid, call),
    )


def _voluntary_switches(pid: int, tid: int) -> int:
    said = _text(f"/proc/{pid}/task/{tid}/status").partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)
    return int(said[0]) if said and said[0].isdigit() else 0


def threads(pid: int) -> tuple[ThreadState, ...]:
    """Return the process's threads, the main thread first, at most `MAX_THREADS`."""
    tids = sorted(_numbers(f"/proc/{pid}/task"), key=lambda tid: (tid != pid, tid))
    return tuple(found for tid in tids[:MAX_THREADS] if (found := thread(pid, tid)) is not None)


def _io_bytes(pid: int) -> int:
    moved = 0
    for line in _text(f"/proc/{pid}/io").splitlines():
        key, _, value = line.partition(":")
        if key in ("rchar", "wchar"):
            moved += int(value)
    return moved


def snapshot(pid: int) -> ProcessLook | None:
    """Return the present state of the process and its tree; None if it has exited or is a zombie."""
    found = _stat(f"/proc/{pid}/stat")
    if found is None or found[1][0] in "ZX":
        return None
    family = tree(pid)
    cpu_s, io_bytes = 0.0, 0
    others: list[ThreadState] = []
    for member in family:
        stat = _stat(f"/proc/{member}/stat")
        if stat is None:
            continue
        cpu_s += _cpu_s(stat[1], reaped=True)
        io_bytes += _io_bytes(member)
        if member != pid and len(others) < MAX_CHILDREN:
            child = thread(member, member, name=f"{stat[0]} (child {member})")
            if child is not None:
                others.append(child)
    return ProcessLook(pid=pid, threads=(*threads(pid), *others), cpu_s=cpu_s, io_bytes=io_bytes, tree=family)


def is_python(pid: int) -> bool:
    """Return whether the process runs Python, by its executable's name or by a mapped libpython."""
    try:
        if Path(f"/proc/{pid}/exe").readlink().name.startswith(("python", "pypy")):
            return True
    except OSError:
        return False
    try:
        with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as maps:
            return any("libpython" in line for line in maps)
    except OSError:
        return False


def _syscall_file(line: str) -> int | None:
    """Return the descriptor in the call's first argument; None for calls without one."""
    words = line.split()
    if len(words) < 2 or _syscall_name(line) not in _WITH_FILE:
        return None
    try:
        number = int(words[1], 16)
    except ValueError:
        return None
    return number if number < 1 << 24 else None


def _syscall_name(line: str) -> str:
    """Return the name of the call in a line of /proc/PID/syscall; "" if the thread runs, or the line was unreadable."""
    word = line.split(" ", 1)[0].strip()
    if not word.isdigit():
        return ""
    number = int(word)
    return _HERE.get(number, f"syscall {number}")
