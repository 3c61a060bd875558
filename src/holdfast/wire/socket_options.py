"""What every connection of the job has set, and how an address is written."""

from __future__ import annotations

import socket

#: This part of the lease: a connection whose other end answers nothing is given up before the lease is over.
SILENCE = 0.75


def set_up(sock: socket.socket, lease_s: float) -> None:
    """It does not block, sends at once, and ends when the peer's kernel is silent for three quarters of the lease."""
    sock.setblocking(False)
    silent_s = max(1.0, SILENCE * lease_s)
    every_s = max(1, int(silent_s / 3))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    # Of what was sent and not acknowledged; and of an unread connection's probes.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * silent_s))


def plain_address(address: str) -> str:
    """An IPv4 address that an IPv6 socket shows as `::ffff:10.1.2.7`, as people write it."""
    mapped = address.lower().removeprefix("::ffff:")
    return mapped if mapped != address.lower() and "." in mapped else address


def written(host: str, port: int) -> str:
    """`host:port`, and `[addr]:port` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
