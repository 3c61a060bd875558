"""The agent's end of the connection: it connects to the owner, sends the hello, and reconnects after a lost connection.

A lost connection does not end an attempt; only the end of the lease does. The agent reconnects after 0.1 s, and the
delay doubles up to 5 s. A random part is subtracted from each delay, so that a thousand agents do not reconnect at the
same moment.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.wire.address_resolver import Address, Resolving, literal
from holdfast.wire.message_frames import FromOwner, frame
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.socket_options import plain_address, set_up, written
from holdfast.wire.tls_channel import Channel, ChannelEnd, ChannelEndKind

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News, Reactor
    from holdfast.wire.message_frames import Sent

#: Seconds for a connection to one address. It is shorter than the lease, so that the next address is tried before the
#: lease ends.
CONNECT_S = 3.0
SHAKE_S = 10.0
FIRST_S = 0.1
LONGEST_S = 5.0
#: The lease in seconds that is assumed until the agent knows the job.
LEASE_S = 6.0

_UNDER_WAY = (errno.EINPROGRESS, errno.EAGAIN, errno.EALREADY)

#: A function that creates the first message from this node's and the owner's address on the connection.
Hello = Callable[[str, str], "Sent"]
Heard = Callable[[Any, float], "News"]
Lost = Callable[[ChannelEnd, float], "News"]


class _Line(Channel):
    """One connection to the owner, from the attempt to connect until it ends."""

    __slots__ = ("_connecting", "_dialler", "_where")

    def __init__(self, dialler: Dialler, reactor: Reactor, sock: socket.socket, where: str) -> None:
        super().__init__(reactor, sock, dialler.credentials, {Identity.OWNER: FromOwner}, writable=True)
        self._dialler = dialler
        self._connecting = True
        self._where = where

    def _shake(self, now: float) -> News:
        if self._connecting:
            if code := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return self._over(
                    ChannelEnd(why=ChannelEndKind.UNREACHED, words=f"{self._where}: {os.strerror(code)}"), now
                )
            self._connecting = False
            self._watch.read_too(True)
            self._dialler.answered()
        return super()._shake(now)

    def _opened(self, identity: Identity, now: float) -> News:
        try:
            mine, theirs = (plain_address(name[0]) for name in (self._sock.getsockname(), self._sock.getpeername()))
        except OSError as error:
            return self._over(ChannelEnd(why=ChannelEndKind.BROKEN, words=error.strerror or "it broke at once"), now)
        return self._dialler.opened(mine, theirs, now)

    def _on_message(self, message: Any, now: float) -> News:
        return self._dialler.received(message, now)

    def _ended(self, end: ChannelEnd, now: float) -> News:
        return self._dialler.dropped(self, end, now)


class Dialler:
    """Keeps one connection to the owner, and reconnects until `close` is called."""

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        credentials: Credentials,
        hello: Hello,
        heard: Heard,
        lost: Lost,
    ) -> None:
        """Start to connect.

        host: name or address of the owner. A name is resolved again in each round of tries.
        port: port of the owner.
        hello: makes the first message of each connection.
        heard: called as `heard(message, now)` with each message from the owner.
        lost: called as `lost(end, now)` after each lost connection and each failed round. It may call `close`.
        """
        self.credentials = credentials
        #: The gang's lease, in seconds. A new value applies from the next connection.
        self.lease_s = LEASE_S
        #: Why there is no connection; None: there is one, or no try has failed yet.
        self.trouble: ChannelEnd | None = None
        self._reactor = reactor
        self._host = host
        self._port = port
        self._hello = hello
        self._heard = heard
        self._lost = lost
        self._line: _Line | None = None
        self._resolving: Resolving | None = None
        #: The owner's addresses that are still to be tried in this round.
        self._addresses: list[Address] = []
        self._late: DueCall | None = None
        self._again: DueCall | None = None
        #: The longest delay between two rounds of tries, in seconds. An agent with a lease lowers it.
        self.longest_s = LONGEST_S
        self._delay_s = FIRST_S
        self._closed = False
        self._again = reactor.at(reactor.now(), self._begin)

    @property
    def connected(self) -> bool:
        """Whether the handshake is complete, so that messages can be sent."""
        return self._line is not None and self._line.open

    @property
    def fd(self) -> int:
        """The file descriptor of the connection; -1 if there is none."""
        return -1 if self._line is None else self._line.fd

    def send(self, message: Sent) -> bool:
        """Send a message. If there is no connection, drop the message and return False. Raises `TooLong`."""
        line = self._line
        return line is not None and line.open and line.put(frame(message, self._reactor.now()))

    def close(self) -> None:
        """Close the connection at once, and do not reconnect."""
        self._closed = True
        for moment in (self._late, self._again):
            if moment is not None:
                moment.close()
        if self._resolving is not None:
            self._resolving.close()
        if self._line is not None:
            self._line.close()
            self._line = None

    def _begin(self, now: float) -> News:
        """Start a round of tries: try the host's addresses one after another until one answers."""
        self._again = None
        if found := literal(self._host):
            return self._found(found, "", now)
        try:
            self._resolving = Resolving(self._reactor, self._host, self._found)
        except OSError as error:
            return self._found([], error.strerror or "no process could be started", now)
        return None

    def _found(self, addresses: list[Address], why: str, now: float) -> News:
        self._resolving = None
        if not addresses:
            return self._failed(
                ChannelEnd(why=ChannelEndKind.UNRESOLVED, words=f"{self._host} has no address: {why}"), now
            )
        self._addresses = list(addresses)
        return self._next(now)

    def _next(self, now: float) -> News:
        family, address = self._addresses.pop(0)
        where = written(address, self._port)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            set_up(sock, self.lease_s)
            code = sock.connect_ex((address, self._port))
            if code and code not in _UNDER_WAY:
                raise OSError(code, os.strerror(code))
            self._line = _Line(self, self._reactor, sock, where)
        except OSError as error:
            sock.close()
            return self._failed(ChannelEnd(why=ChannelEndKind.UNREACHED, words=f"{where}: {error.strerror}"), now)
        self._wait(
            CONNECT_S, ChannelEnd(why=ChannelEndKind.UNREACHED, words=f"{where}: no answer within {CONNECT_S:g} s")
        )
        return None

    def answered(self) -> None:
        """The peer has accepted the connection, so start the time limit of the handshake."""
        words = f"it answered, and finished no handshake within {SHAKE_S:g} s"
        self._wait(SHAKE_S, ChannelEnd(why=ChannelEndKind.LATE, words=words))

    def opened(self, mine: str, theirs: str, now: float) -> News:
        self._wait(None)
        self.trouble = None
        self.send(self._hello(mine, theirs))
        return None

    def received(self, message: Any, now: float) -> News:
        # Reset the delay after a first message, not after a handshake. Otherwise an owner that refuses every agent
        # would get ten connections a second.
        self._delay_s = FIRST_S
        return self._heard(message, now)

    def dropped(self, line: _Line, end: ChannelEnd, now: float) -> News:
        self._line = None
        return self._failed(end, now)

    def _wait(self, given_s: float | None, end: ChannelEnd | None = None) -> None:
        """Start the time limit of the next connection step.

        `given_s`: the limit in seconds; None: only stop the present limit. `end`: the reported reason if the time runs
        out.
        """
        if self._late is not None:
            self._late.close()
            self._late = None
        if given_s is not None and end is not None:
            self._late = self._reactor.at(self._reactor.now() + given_s, partial(self._too_late, end))

    def _too_late(self, end: ChannelEnd, now: float) -> News:
        self._late = None
        if self._line is not None:
            self._line.close()
            self._line = None
        return self._failed(end, now)

    def _failed(self, end: ChannelEnd, now: float) -> News:
        """Try the owner's next address. If there is none, start a new round of tries after a delay."""
        self._wait(None)
        if self._addresses and end.why is ChannelEndKind.UNREACHED:
            return self._next(now)
        self._addresses = []
        self.trouble = end
        news = self._lost(end, now)
        if not self._closed:
            self._again = self._reactor.at(now + self._delay_s * random.uniform(0.5, 1.0), self._begin)
            self._delay_s = min(2 * self._delay_s, self.longest_s)
        return news
