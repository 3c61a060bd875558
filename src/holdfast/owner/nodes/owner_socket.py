"""Opens the socket on which the owner of a job listens."""

from __future__ import annotations

import errno
import socket

from holdfast.act.rendezvous_ports import own_loopback
from holdfast.errors import BadUsage
from holdfast.launch.launch_spec import NodesOrder

#: Maximum number of connections that the kernel queues until they are accepted. net.core.somaxconn may lower it.
_WAITING = 4096


_ONLY_HERE = ("localhost", "127.0.0.1")


def owner_socket(order: NodesOrder) -> socket.socket | None:
    """Open the socket of an owner on this node. Raises BadUsage.

    Return None if the owner runs on another node. Also return None if the port is in use, because the process that uses
    it may be the owner of this job. `order`: the multi-node options, with the endpoint.
    """
    if not order.hosts:
        return None
    if order.starter is not None:
        return _free_socket(order)
    try:
        return listen(order.port, only_here=order.host in _ONLY_HERE)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise _cannot(order.port, error) from error


def _free_socket(order: NodesOrder) -> socket.socket:
    """Open the owner's socket at the user's port, at a port of the range, or at any port. The starter sends the port to
    the agents.
    """
    first, last = (order.port, order.port) if order.port or order.port_range is None else order.port_range
    for port in range(first, last + 1):
        try:
            return listen(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _cannot(port, error) from error
    which = f"port {first} is" if first == last else f"all ports from {first} to {last} are"
    raise BadUsage(
        f"{which} in use on this machine: expected a free one, where the other hosts reach the owner of the job",
        hint=f"ss -ltnp 'sport >= {first} and sport <= {last}'",
    )


def _cannot(port: int, error: OSError) -> BadUsage:
    return BadUsage(
        f"port {port} of the endpoint cannot be opened here: {error.strerror}; expected a port that this user may "
        "listen on",
        hint="holdfast run --rdzv-endpoint HOST:29500 …",
    )


def listen(port: int, *, only_here: bool = False) -> socket.socket:
    """Open a socket that listens on every address of this machine, IPv4 and IPv6. Raises OSError.

    `only_here`: listen only on 127.0.0.1, or on ::1 without IPv4. No other machine can connect to these addresses.
    """
    here = own_loopback() if only_here else ""
    try:
        listener = socket.socket(socket.AF_INET if "." in here else socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)  # the kernel has no IPv6, so use IPv4 alone
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((here, port))
        listener.listen(_WAITING)
    except OSError:
        listener.close()
        raise
    return listener
