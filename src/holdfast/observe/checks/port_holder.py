"""Finds the process that holds a TCP port of this machine. It listens on the port, has bound it, or has a connection
from it.

/proc/net/tcp does not list a socket that is bound but does not listen. To get its address, this module copies the other
process's descriptor (pidfd_getfd, Linux 5.6), and closes the copy at once. The kernel allows that for processes that
this user may trace: the job's processes, and all processes for root.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterable, Iterator

from holdfast.model.human_format import duration
from holdfast.observe.checks import proc_files
from holdfast.safe_files import small_text

#: The addresses of at most this many sockets are read.
MOST_SOCKETS = 4096
_LISTEN = "0A"
_TIME_WAIT = "06"
#: The system call's number, which is the same on every architecture.
_PIDFD_GETFD = 438
_ENDED = "a connection that has ended (TIME_WAIT: the kernel frees the port within 60 s)"


class _Row:
    """A socket in /proc/net/tcp: its name in /proc/PID/fd, its port, its state and its user id."""

    __slots__ = ("name", "port", "state", "uid")

    def __init__(self, line: str) -> None:
        fields = line.split()
        self.port = int(fields[1].rpartition(":")[2], 16)
        self.state, self.uid, self.name = fields[3], int(fields[7]), f"socket:[{fields[9]}]"


def find(port: int, pids: Iterable[int]) -> int | None:
    """Return the process that holds the port. Prefer one that listens on it."""
    among = list(pids)
    rows = [row for row in _rows() if row.port == port]
    listening = {row.name for row in rows if row.state == _LISTEN}
    others = {row.name for row in rows if row.state not in (_LISTEN, _TIME_WAIT)}
    for names in (listening, others):
        for pid in among if names else ():
            if any(name in names for _, name in _sockets(pid)):
                return pid
    return None if listening else _bound(among).get(port)


def holder(port: int) -> str:
    """Describe the holder of a port: `pid 123 (python serve.py), user ada, which runs for 3 min, rank 2 of job train-1
    (attempt 3)`.

    Return only the user if the process is another user's, and "" if no process is visible.
    """
    if (pid := find(port, proc_files.pids())) is not None:
        return f"pid {pid} ({proc_files.command(pid)}){about(pid)}{_job(pid)}"
    rows = [row for row in _rows() if row.port == port]
    hidden = {row.uid for row in rows if row.state != _TIME_WAIT and row.uid != os.geteuid()}
    if hidden:
        return f"a process of user {_user(min(hidden))} (hidden from other users)"
    return _ENDED if rows and all(row.state == _TIME_WAIT for row in rows) else ""


def about(pid: int) -> str:
    """Describe a process's user and age, if they are visible: `, user ada, which runs for 3 min`."""
    try:
        user = f", user {_user(os.stat(f'/proc/{pid}').st_uid)}"  # noqa: PTH116 - faster, as for all of /proc
    except OSError:
        return ""  # return nothing, because the process has exited
    age_s = proc_files.age_s(pid)
    return user if age_s is None else f"{user}, which runs for {duration(age_s)}"


def taken(ports: Iterable[int]) -> list[int]:
    """Return the ports that a socket of this machine uses, in the order of `ports`."""
    wanted = list(ports)
    seen = {row.port for row in _rows()} if wanted else set()
    if not seen.intersection(wanted) and wanted:
        seen |= set(_bound(proc_files.pids()))
    return [port for port in wanted if port in seen]


def _rows() -> Iterator[_Row]:
    for table in ("tcp", "tcp6"):
        for line in small_text(f"/proc/net/{table}").splitlines()[1:]:
            yield _Row(line)


def _sockets(pid: int) -> list[tuple[int, str]]:
    """Return (descriptor, name) of a process's sockets; empty if the process has exited or another user owns it."""
    found = []
    try:
        for word in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - only the names are needed
            name = os.readlink(f"/proc/{pid}/fd/{word}")  # noqa: PTH115 - faster: there may be thousands
            if name.startswith("socket:"):
                found.append((int(word), name))
    except OSError:
        pass  # ignore a process that has exited, and a descriptor that was closed
    return found


def _bound(pids: Iterable[int]) -> dict[int, int]:
    """Return port → pid for the TCP sockets that /proc/net does not list."""
    known = {line.split()[column] for path, column in _TABLES for line in small_text(path).splitlines()[1:]}
    found: dict[int, int] = {}
    asked: set[str] = set()
    own = os.getpid()
    for pid in pids:
        fresh = [(fd, name) for fd, name in _sockets(pid) if name[8:-1] not in known and name not in asked]
        if not fresh or len(asked) >= MOST_SOCKETS:
            continue
        asked.update(name for _, name in fresh)
        try:
            process = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            for fd, _ in fresh[:MOST_SOCKETS]:
                if (port := _port(os.dup(fd) if pid == own else _copy(process, fd))) is not None:
                    found.setdefault(port, pid)
        finally:
            os.close(process)
    return found


#: The kernel's tables of sockets, each with the number of its column for the socket's inode.
_TABLES = (
    ("/proc/net/tcp", 9),
    ("/proc/net/tcp6", 9),
    ("/proc/net/udp", 9),
    ("/proc/net/udp6", 9),
    ("/proc/net/unix", 6),
)


def _copy(process: int, fd: int) -> int:
    """Return a copy of another process's descriptor, or -1 if the kernel refuses."""
    import ctypes  # imported late, because only the search for a port's holder needs it

    return int(ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, fd, 0))


def _port(fd: int) -> int | None:
    """Return the port of a TCP socket, and close `fd`. Return None if it has no port or is no TCP socket."""
    if fd < 0:
        return None
    try:
        found = socket.socket(fileno=fd)
    except OSError:  # a socket of another kind may have no address
        os.close(fd)
        return None
    with found:
        try:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
                return None
            return int(found.getsockname()[1]) or None
        except OSError:
            return None


def _job(pid: int) -> str:
    """Describe the job of a process: `, rank 0 of job train-1 (attempt 3)`; "" if no job of holdfast started the
    process."""
    job, rank, attempt = (proc_files.variable(pid, name)[:80] for name in ("HOLDFAST_JOB", "RANK", "HOLDFAST_ATTEMPT"))
    if not job or not job.isprintable():
        return ""
    if rank.isdigit() and attempt.isdigit():
        return f", rank {rank} of job {job} (attempt {attempt})"
    return f", started by job {job}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
