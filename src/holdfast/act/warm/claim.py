"""A fork that waits, and how it is made the worker of a ticket."""

from __future__ import annotations

import array
import marshal
import os
import socket

import msgspec

from holdfast.act.spawn import Spawned
from holdfast.act.starts import Ticket


class Idle(msgspec.Struct, frozen=True):
    """A fork that nobody has claimed."""

    pid: int
    pidfd: int
    door: socket.socket


def is_awake(idle: Idle) -> bool:
    """Whether it can answer: one that somebody has stopped, or that is dying, never says that it is ready."""
    try:
        with open(f"/proc/{idle.pid}/stat", "rb", buffering=0) as file:
            state = file.read().rsplit(b")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in (b"T", b"t", b"Z", b"X")


def claim(idle: Idle, ticket: Ticket) -> Spawned | None:
    """Send it what the worker of this ticket needs; None if it has died. Its door is closed then."""
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    order = os.memfd_create("claim")
    wanted = {
        "env": dict(ticket.env),
        "cwd": str(ticket.cwd),
        "groups": [str(group) for group in ticket.groups],
        "label": ticket.label,
    }
    with open(order, "wb", closefd=False) as file:
        file.write(marshal.dumps(wanted))
    fds = array.array("i", [order, *ticket.streams, go_read, status_write])
    try:
        idle.door.sendmsg([b"claim"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError:
        os.close(go_write)
        os.close(status_read)
        return None
    finally:
        idle.door.close()
        for fd in (order, go_read, status_write):
            os.close(fd)
    os.set_blocking(status_read, False)
    return Spawned(idle.pid, idle.pidfd, go_write, status_read)
