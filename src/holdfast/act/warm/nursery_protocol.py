"""The messages between the supervisor and a prewarmed process. Some of them turn an idle fork into a worker."""

from __future__ import annotations

import array
import marshal
import os
import signal
import socket
from typing import Any

import msgspec

from holdfast import children
from holdfast.act.spawn import Spawned
from holdfast.act.worker_starts import Ticket
from holdfast.children import Child
from holdfast.model.cpu_lists import cpus_of

_RECEIVE = 1 << 16


def receive(control: socket.socket) -> tuple[tuple[Any, ...], list[int]] | None:
    """Return the next message and its fds, which the caller must close; None if there is no message now, or if the
    socket has ended.
    """
    size = array.array("i").itemsize
    try:
        data, ancillary, _, _ = control.recvmsg(_RECEIVE, socket.CMSG_SPACE(4 * size), socket.MSG_DONTWAIT)
    except OSError:
        return None
    if not data:
        return None
    fds = array.array("i")
    for _, _, raw in ancillary:
        fds.frombytes(raw[: len(raw) - len(raw) % size])
    try:
        message = marshal.loads(data)
    except (EOFError, ValueError, TypeError):
        # Skip a malformed message, because libraries in the prewarmed process may write to any descriptor.
        message = None
    return message if isinstance(message, tuple) else ("garbled",), list(fds)


class Idle(msgspec.Struct, frozen=True):
    """A fork of a prewarmed process that is not a worker yet. `channel`: the socket to the fork."""

    child: Child
    channel: socket.socket


def is_awake(idle: Idle) -> bool:
    """Return whether the fork can answer. A fork that is stopped (SIGSTOP) or dying cannot."""
    return _state(idle.child.pid) not in (b"", b"T", b"t", b"Z", b"X")


def rouse(pid: int, pidfd: int) -> bool:
    """Continue the process if it was stopped (SIGSTOP). Return whether it was stopped.

    Only a signal puts a process into state T. A process that waits for the CPU, its disk or a debugger has another
    state, and gets no signal.
    """
    if _state(pid) != b"T":
        return False
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except ProcessLookupError:
        return False  # the fork has just died; its pidfd reports that to the reactor
    return True


def _state(pid: int) -> bytes:
    """Return the process's state letter of proc(5), or "" if it has exited."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rsplit(b")", 1)[1].split()[0]
    except OSError:
        return b""


def claim(idle: Idle, ticket: Ticket) -> Spawned | None:
    """Send the fork a worker's data. Return None if the fork has died. `channel` is closed in any case."""
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    order = os.memfd_create("claim")
    wanted = {
        "env": dict(ticket.env),
        "cwd": str(ticket.cwd),
        "groups": [str(group) for group in ticket.groups],
        "cpus": sorted(cpus_of(ticket.placement.cpus)),
    }
    with open(order, "wb", closefd=False) as file:
        file.write(marshal.dumps(wanted))
    fds = array.array("i", [order, *ticket.streams, go_read, status_write])
    try:
        idle.channel.sendmsg([b"claim"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError:
        os.close(go_write)
        os.close(status_read)
        return None
    finally:
        idle.channel.close()
        for fd in (order, go_read, status_write):
            os.close(fd)
    os.set_blocking(status_read, False)
    children.forget(idle.child.pid)  # from now on the fork counts as a process of the job
    return Spawned(idle.child.pid, idle.child.pidfd, go_write, status_read)
