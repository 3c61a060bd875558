"""Reads a process and its tree from /proc: threads, states, waits, CPU time and bytes moved so far.

This module only reads, and sends no signal. A process may end at any time; the functions then return less data.
"""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.model.evidence import ThreadState
from holdfast.model.noun_base import Noun
from holdfast.observe.syscall_names import syscall_file, syscall_name

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: At most this many threads of a process are read: a report needs the first dozen, and a process may have thousands.
MAX_THREADS = 48
#: The main threads of at most this many descendants are read, besides the process's own threads.
MAX_CHILDREN = 12


class ProcessLook(Noun, frozen=True, kw_only=True):
    """The state of a process and its descendants at one moment."""

    pid: int
    #: The process's own threads, main thread first; then the main threads of its descendants.
    threads: tuple[ThreadState, ...] = ()
    #: CPU seconds of the whole tree, including its reaped children.
    cpu_s: float = 0.0
    #: Bytes that the tree's live processes have read and written so far with system calls.
    io_bytes: int = 0
    #: The process and its living descendants.
    tree: tuple[int, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether every thread of the process itself is stopped (T) or traced (t)."""
        own = [thread for thread in self.threads if thread.pid in (0, self.pid)]
        return bool(own) and all(thread.state in ("T", "t") for thread in own)


def _text(path: str) -> str:
    # Use os.read: these are many small files, and a look at 64 ranks should take milliseconds.
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
    """Return the numeric entries of a directory in /proc; empty if the process has ended."""
    try:
        return [int(name) for name in os.listdir(path) if name.isdigit()]  # noqa: PTH208 names only, no Path objects
    except OSError:
        return []


def _stat(path: str) -> tuple[str, list[str]] | None:
    """Return comm and the fields from the state on. comm may contain blanks and brackets, so it ends at the last
    bracket."""
    text = _text(path)
    left, right = text.find("("), text.rfind(")")
    if left < 0 or right < left:
        return None
    return text[left + 1 : right], text[right + 2 :].split()


def state(pid: int) -> str:
    """Return the state letter of /proc/PID/stat, `Z` for a zombie; empty if the process has ended."""
    found = _stat(f"/proc/{pid}/stat")
    return found[1][0] if found else ""


def parent(pid: int) -> int | None:
    """Return the pid of the process's parent; None if the process has ended."""
    found = _stat(f"/proc/{pid}/stat")
    return int(found[1][1]) if found else None


def children(pid: int) -> tuple[int, ...]:
    """Return the direct children. A kernel without CONFIG_PROC_CHILDREN needs a scan of /proc."""
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

    A process whose parent has died is not found, since another process has adopted it; the worker's cgroup still
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
    """Return the descriptor of the system call and its file, such as `0 pipe:[8123]`; empty if there is none or it may
    not be read."""
    number = syscall_file(call)
    if number is None:
        return ""
    try:
        target = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 Path.readlink would tidy `pipe:[1]` away
    except OSError:
        return ""
    return f"{number} {target[:200]}"


def _waits_in(pid: int, tid: int, call: str) -> str:
    """Return the wait as `futex (futex_do_wait)`, or the part that may be read: the system call needs the right to
    trace."""
    called = syscall_name(call)
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
    """Return the state of one thread; None if it has ended. `name`: shown instead of the thread's own name."""
    found = _stat(f"/proc/{pid}/task/{tid}/stat")
    if found is None:
        return None
    comm, fields = found
    # A running thread does not wait; /proc then shows an earlier call.
    call = "" if fields[0] == "R" else _text(f"/proc/{pid}/task/{tid}/syscall")
    return ThreadState(
        tid=tid,
        pid=pid,
        name=name or comm,
        state=fields[0],
        waits_in="" if fields[0] == "R" else _waits_in(pid, tid, call),
        cpu_s=_cpu_s(fields, reaped=False),
        file=_file_of(pid, call),
    )


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
    """Return the present state of the process and its tree; None if it has ended or is a zombie."""
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
    """Whether the process runs Python, by its executable's name, else by a mapped libpython."""
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
