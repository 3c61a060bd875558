"""Measures the link to another node's agent: single bytes for the round trip time, then a block in both directions.

The listening peer echoes the bytes. It accepts only a peer with the token that the owner has sent to both. No call
blocks, so the agent's heartbeats go on.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
from collections.abc import Callable, Iterator

from holdfast.model.gang_protocol import TOKEN_BYTES, MeasurePeer, OpenPort, PeerMeasured
from holdfast.reactor import DueCall, Reactor

PINGS = 5
#: A node serves at most this many connections at a time, and closes further ones.
PEERS = 16
_CHUNK = 1 << 18


class PeerPort:
    """Listens for peers and echoes their bytes, until `close`. Raises OSError if no port is free."""

    def __init__(self, order: OpenPort, reactor: Reactor, ports: Iterator[int]) -> None:
        """Listen at the first free port of `ports` (0: any). `order`: the token, the block's size and the time
        limit."""
        self._order = order
        self._reactor = reactor
        self._served: set[_Echo] = set()
        self._listener = _listener(ports)
        self.port: int = self._listener.getsockname()[1]
        reactor.watch(self._listener.fileno(), self._accept)

    def close(self) -> None:
        for echo in tuple(self._served):
            echo.close()
        self._reactor.forget(self._listener.fileno())
        self._listener.close()

    def _accept(self, fd: int, now: float) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # ignore a peer that has already disconnected
        if len(self._served) >= PEERS:
            peer.close()
            return
        self._served.add(_Echo(peer, self._order, self._reactor, now, self._served.discard))


def _listener(ports: Iterator[int]) -> socket.socket:
    """Return a socket that listens on all addresses, at the first free port of `ports` (0: any). Raises OSError."""
    why = OSError("no port is left")
    for port in ports:
        family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
        try:
            found = socket.create_server(("", port), family=family, backlog=64, dualstack_ipv6=family != socket.AF_INET)
        except (OSError, ValueError) as error:
            if family == socket.AF_INET:
                why = error if isinstance(error, OSError) else OSError(str(error))
                continue
            try:
                found = socket.create_server(("", port), backlog=64)  # use IPv4 alone, because this kernel has no IPv6
            except OSError as other:
                why = other
                continue
        found.setblocking(False)
        return found
    raise why


class _Stream:
    """A connection with a time limit. When it is ready, `_advance` continues the exchange."""

    def __init__(self, link: socket.socket, reactor: Reactor, limit: float) -> None:
        self._link = link
        self._fd = link.fileno()
        self._reactor = reactor
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._limit: DueCall = reactor.at(limit, self._late)
        self._writes: bool | None = None
        self._out = memoryview(b"")
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._limit.close()
            self._reactor.forget(self._fd)
            self._link.close()

    def _late(self, now: float) -> None:
        raise NotImplementedError

    def _advance(self, now: float) -> None:
        raise NotImplementedError

    def _ready(self, fd: int, now: float) -> None:
        self._advance(now)

    def _wait(self, *, to_write: bool) -> None:
        if self._writes is not to_write and not self._closed:
            self._reactor.forget(self._fd)
            self._reactor.watch(self._fd, self._ready, writable=to_write)
            self._writes = to_write

    def _send(self) -> bool:
        """Send the remaining bytes. Return whether all are sent. Raises OSError."""
        while self._out:
            try:
                self._out = self._out[self._link.send(self._out[:_CHUNK]) :]
            except BlockingIOError:
                return False
        return True

    def _receive(self, most: int) -> bytes | None:
        """Return the bytes that have arrived; None: none now. Raises OSError, also if the peer has disconnected."""
        try:
            data = self._link.recv(min(most, _CHUNK))
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError("the peer closed the connection")
        return data


class _Echo(_Stream):
    """The listening end of a connection. It compares the token, echoes each ping, and then echoes a block."""

    def __init__(
        self,
        link: socket.socket,
        order: OpenPort,
        reactor: Reactor,
        now: float,
        over: Callable[[_Echo], None],
    ) -> None:
        super().__init__(link, reactor, now + order.wait_s)
        self._token = bytes.fromhex(order.token)
        self._over = over
        self._shown = b""
        self._pings = 0
        self._block = bytearray()
        self._size = order.size
        self._wait(to_write=False)

    def close(self) -> None:
        super().close()
        self._over(self)

    def _late(self, now: float) -> None:
        self.close()

    def _advance(self, now: float) -> None:
        try:
            while self._step():
                pass
        except OSError:
            self.close()

    def _step(self) -> bool:
        """Do one step of the exchange. Return False if nothing can be done now."""
        if not self._send():
            self._wait(to_write=True)
            return False
        if len(self._block) == self._size:
            self.close()
            return False
        wanted = self._size - len(self._block) if self._pings == PINGS else 1
        if len(self._shown) < TOKEN_BYTES:
            wanted = TOKEN_BYTES - len(self._shown)
        data = self._receive(wanted)
        if data is None:
            self._wait(to_write=False)
            return False
        if len(self._shown) < TOKEN_BYTES:
            self._shown += data
            if len(self._shown) == TOKEN_BYTES and not hmac.compare_digest(self._shown, self._token):
                raise ConnectionError("another token")
        elif self._pings < PINGS:
            self._pings += 1
            self._out = memoryview(data)
        else:
            self._block += data
            if len(self._block) == self._size:
                self._out = memoryview(bytes(self._block))
        return True


class PeerProbe(_Stream):
    """The connecting end: connects to a peer and measures the link. `tell`: gets the result, once."""

    def __init__(
        self, order: MeasurePeer, reactor: Reactor, now: float, tell: Callable[[PeerProbe, PeerMeasured], None]
    ) -> None:
        """Begin to connect. `order`: the peer's address, the token, the block's size and the time limit."""
        self._order = order
        self._tell = tell
        family = socket.AF_INET6 if ":" in order.address else socket.AF_INET
        super().__init__(socket.socket(family, socket.SOCK_STREAM), reactor, now + order.wait_s)
        self._connected = False
        self._sent_at = now
        self._trips: list[float] = []
        self._block = b""
        self._back = bytearray()
        error = self._link.connect_ex((order.address, order.port))
        self._refused = "" if error in (0, errno.EINPROGRESS) else os.strerror(error)
        if self._refused:
            self._limit.close()
            self._limit = reactor.at(now, lambda now: self._fail(self._refused))
        else:
            self._wait(to_write=True)

    def _late(self, now: float) -> None:
        place = "no connection" if not self._connected else f"{len(self._back)} of {self._order.size} bytes came back"
        self._fail(f"{place} within {self._order.wait_s:g} s")

    def _advance(self, now: float) -> None:
        try:
            while self._step():
                pass
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _step(self) -> bool:
        if not self._connected:
            error = self._link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected = True
            self._out = memoryview(bytes.fromhex(self._order.token) + b".")
            self._sent_at = self._reactor.now()
        if not self._send():
            self._wait(to_write=True)
            return False
        self._wait(to_write=False)
        data = self._receive(1 if not self._block else self._order.size - len(self._back))
        if data is None:
            return False
        if self._block:
            self._back += data
            return self._compared()
        self._trips.append(self._reactor.now() - self._sent_at)
        if len(self._trips) == PINGS:
            self._block = os.urandom(4096) * (self._order.size // 4096 + 1)
            self._block = self._block[: self._order.size]
            self._out = memoryview(self._block)
        else:
            self._out = memoryview(b".")
        self._sent_at = self._reactor.now()
        return True

    def _compared(self) -> bool:
        if len(self._back) < self._order.size:
            return True
        if self._back != self._block:
            self._fail("what came back is not what was sent")
            return False
        took_s = self._reactor.now() - self._sent_at
        self._done(round_trip_s=min(self._trips), exchange_s=took_s)
        return False

    def _fail(self, why: str) -> None:
        self._done(trouble=why[:200])

    def _done(self, *, round_trip_s: float = 0.0, exchange_s: float = 0.0, trouble: str = "") -> None:
        if self._closed:
            return
        self.close()
        order = self._order
        self._tell(
            self,
            PeerMeasured(
                attempt=order.attempt,
                round=order.round,
                number=order.number,
                round_trip_s=round_trip_s,
                exchange_s=exchange_s,
                trouble=trouble,
            ),
        )
