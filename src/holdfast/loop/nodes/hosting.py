"""The socket that the owner of a job listens on."""

from __future__ import annotations

import errno
import socket

from holdfast.errors import BadUsage
from holdfast.loop.order import NodesOrder

_WAITING = 4096
"""Agents that the kernel keeps until they are let in; it takes as many of them as it allows (net.core.somaxconn)."""


def owner_socket(order: NodesOrder) -> socket.socket | None:
    """The socket of an owner on this node; None: the owner is elsewhere, and is dialled.

    Where the port is held already, its holder is dialled: it may be the owner of this job. Raises BadUsage.
    """
    if not order.hosts:
        return None
    try:
        return listen(order.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise BadUsage(
            f"port {order.port} of the endpoint cannot be opened here: {error.strerror}; expected a port that this "
            "user may listen on",
            hint="holdfast run --rdzv-endpoint HOST:29500 …",
        ) from error


def listen(port: int) -> socket.socket:
    """A socket that listens on every address of this machine, IPv4 and IPv6. Raises OSError."""
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)  # a kernel without IPv6
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        raise
    return listener
