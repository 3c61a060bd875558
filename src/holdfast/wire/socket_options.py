"""Sets the socket options of a job's connections, and formats addresses."""

from __future__ import annotations

import socket

#: A silent connection is closed after this fraction of the lease, so that the agent can reconnect before the lease
#: ends.
SILENCE = 0.75


def set_up(sock: socket.socket, lease_s: float) -> None:
    """Make `sock` non-blocking, and send data without delay.

    The connection breaks if the peer's kernel is silent for three quarters of the lease (`lease_s` seconds).
    """
    sock.setblocking(False)
    silent_s = max(1.0, SILENCE * lease_s)
    every_s = max(1, int(silent_s / 3))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    # Break the connection if sent data, or the kernel's probes, stay unacknowledged for this long.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * silent_s))


def plain_address(address: str) -> str:
    """Return an IPv4-mapped IPv6 address (`::ffff:10.1.2.7`) as IPv4. Return any other address as it is."""
    mapped = address.lower().removeprefix("::ffff:")
    return mapped if mapped != address.lower() and "." in mapped else address


def written(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
