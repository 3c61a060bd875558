"""The owner's end of the connections: a listening socket, and a connection for each peer that has the job's key.

A peer has 10 s for the handshake and its hello. At most `WAITING` connections may be in this state. One more closes the
connection that has been silent longest, so that idle connections cannot keep an agent out. Refused connections are
counted by address, because the user may ask why a node is missing.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.wire.message_frames import FromAgent, FromOperator, frame
from holdfast.wire.node_messages import Asked, Foreign, Hello
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.receive_limits import ReceiveLimits
from holdfast.wire.socket_options import plain_address, set_up
from holdfast.wire.tls_channel import Channel, ChannelEnd, ChannelEndKind

if TYPE_CHECKING:
    from holdfast.reactor import News, Reactor
    from holdfast.wire.job_key import Key
    from holdfast.wire.message_frames import Sent

HELLO_S = 10.0
#: Seconds for a peer to read its last message and close the connection.
LEAVE_S = 2.0
WAITING = 1000
#: Maximum number of connections that the kernel queues until they are accepted. The system's own limit may be lower.
BACKLOG = 4096
#: At most this many connections are accepted in one turn of the reactor, because messages from peers wait meanwhile.
ACCEPTS = 16
STRANGERS = 64
NO_DESCRIPTORS_S = 1.0
_HEARS = {Identity.AGENT: FromAgent, Identity.OPERATOR: FromOperator}

Heard = Callable[["Peer", Any, float], "News"]
Gone = Callable[["Peer", ChannelEnd, float], "News"]
Strange = Callable[[str, ChannelEnd], None]


class Stranger(msgspec.Struct):
    """Counts the refused connections from one address."""

    #: Why the latest connection from this address was refused.
    end: ChannelEnd
    times: int = 0


class Peer(Channel):
    """One connection to the owner. `identity` is set after the handshake."""

    __slots__ = ("_listener", "accepted_at", "address", "greeted", "heard_at", "holds", "identity", "name", "port")

    def __init__(self, listener: OwnerListener, reactor: Reactor, sock: socket.socket, where: Any, now: float) -> None:
        super().__init__(reactor, sock, listener.credentials, _HEARS)
        self._listener = listener
        self.address = plain_address(where[0])
        self.port: int = where[1]
        self.identity: Identity | None = None
        #: Whether the peer has sent its hello (its first message).
        self.greeted = False
        self.accepted_at = self.heard_at = now
        #: The bytes of an incomplete message, as in the last call of the listener's `holding`.
        self.holds = 0
        #: The name of this peer's node in the job, which the owner sets.
        self.name = ""

    def send(self, message: Sent) -> bool:
        """Send a message. Return False if the connection has ended. Raises `TooLong`."""
        return self.put(frame(message, self._listener.now()))

    def dismiss(self, message: Sent) -> None:
        """Send the last message, and close the connection after the peer has read it. The listener then calls
        `gone`.
        """
        self.send(message)
        self.leave()
        self._listener.leaving(self)

    def close(self) -> None:
        super().close()
        if self.holds:
            self.holds = 0
            self._listener.holding.note(self, 0)

    def _ready(self, fd: int, now: float) -> News:
        self.heard_at = now
        news = super()._ready(fd, now)
        if (held := self.held) != self.holds:
            self.holds = held
            self._listener.holding.note(self, held)
        return news

    def _opened(self, identity: Identity, now: float) -> News:
        self.identity = identity
        return None

    def _on_message(self, message: Any, now: float) -> News:
        if not self.greeted:
            if not isinstance(message, Hello | Foreign | Asked):
                self.doom(ChannelEnd(why=ChannelEndKind.MALFORMED, words="its first word was no hello"))
                return None
            self.greeted = True
            self._listener.greeted(self)
        return self._listener.heard(self, message, now)

    def _ended(self, end: ChannelEnd, now: float) -> News:
        return self._listener.ended(self, end, now)


class OwnerListener:
    """Accepts connections, and passes messages from the peers to the owner."""

    def __init__(
        self,
        reactor: Reactor,
        listening: socket.socket,
        key: Key,
        heard: Heard,
        gone: Gone,
        strange: Strange = lambda address, end: None,
        *,
        lease_s: float = 6.0,
    ) -> None:
        """Start to listen.

        listening: a bound socket. The listener closes it.
        heard: called as `heard(peer, message, now)` with each message.
        gone: called as `gone(peer, end, now)` when a peer that has sent its hello has disconnected.
        strange: called as `strange(address, end)` when an address is refused for the first time, or for another reason
            than before.
        lease_s: the gang's lease, in seconds.
        """
        self.credentials = Credentials(key, Identity.OWNER)
        self.now = reactor.now
        self.heard = heard
        #: Why a connection ended before its hello → the number of such connections.
        self.refused: Counter[ChannelEndKind] = Counter()
        #: Address → its refused connections, the latest last; at most `STRANGERS` addresses.
        self.strangers: dict[str, Stranger] = {}
        self.holding = ReceiveLimits()
        self._reactor = reactor
        self._listening = listening
        self._gone = gone
        self._strange = strange
        self._lease_s = lease_s
        #: Maximum number of connections that have not sent their hello.
        self.most_waiting = WAITING
        #: The peers without a hello (first message) so far, in the order of arrival.
        self._waiting: dict[Peer, None] = {}
        self._peers: dict[Peer, None] = {}
        #: Peer to which the owner has sent its last message → the time by which the peer must have closed the
        #: connection. The earliest comes first.
        self._leaving: dict[Peer, float] = {}
        self._open = True
        listening.setblocking(False)
        listening.listen(BACKLOG)
        reactor.watch(listening.fileno(), self._accept)
        reactor.deadlines(self._next_wake, self._tick)

    @property
    def peers(self) -> Iterator[Peer]:
        """The peers that have sent their hello."""
        return iter(tuple(self._peers))

    def tell(self, peers: list[Peer], message: Sent) -> int:
        """Send one message to many peers, and encode it once. Return how many of them can still get it. Raises
        `TooLong`.
        """
        framed = frame(message, self.now())
        return sum([peer.put(framed) for peer in peers])

    def greeted(self, peer: Peer) -> None:
        del self._waiting[peer]
        self._peers[peer] = None

    def leaving(self, peer: Peer) -> None:
        self._leaving.setdefault(peer, self.now() + LEAVE_S)

    def ended(self, peer: Peer, end: ChannelEnd, now: float) -> News:
        self._leaving.pop(peer, None)
        if peer in self._waiting:
            del self._waiting[peer]
            self._count(peer, end)
            return None
        self._peers.pop(peer, None)
        return self._gone(peer, end, now)

    def close(self) -> None:
        """Close all connections now, without a call of `gone`."""
        self._open = False
        self._reactor.forget(self._listening.fileno())
        self._listening.close()
        for peer in (*self._waiting, *self._peers):
            peer.close()
        self._waiting.clear()
        self._peers.clear()
        self._leaving.clear()

    def _accept(self, fd: int, now: float) -> News:
        for _ in range(ACCEPTS):
            try:
                sock, where = self._listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._out_of_descriptors(now)
                break  # stop: the peer has disconnected before it was accepted
            if len(self._waiting) >= self.most_waiting:
                self._make_room()
            try:
                set_up(sock, self._lease_s)
                self._waiting[Peer(self, self._reactor, sock, where, now)] = None
            except OSError:
                sock.close()  # the peer has disconnected meanwhile
        return None

    def _make_room(self) -> None:
        """Close the connection without a hello that has been silent longest."""
        peer = min(self._waiting, key=_heard_at)
        del self._waiting[peer]
        peer.close()
        self._count(
            peer,
            ChannelEnd(
                why=ChannelEndKind.CROWDED, words=f"{self.most_waiting} others waited, and it was silent longest"
            ),
        )

    def _out_of_descriptors(self, now: float) -> None:
        if self._waiting:
            self._make_room()
            return
        # No connection can be accepted now. The listening socket would stay readable and keep the reactor busy, so do
        # not watch it.
        self._reactor.forget(self._listening.fileno())
        self._reactor.at(now + NO_DESCRIPTORS_S, self._listen_again)

    def _listen_again(self, now: float) -> None:
        if self._open:
            self._reactor.watch(self._listening.fileno(), self._accept)

    def _next_wake(self) -> float | None:
        first = next(iter(self._waiting), None)
        wakes = [] if first is None else [first.accepted_at + HELLO_S]
        wakes += [until for until in [next(iter(self._leaving.values()), None)] if until is not None]
        return min(wakes, default=None)

    def _tick(self, now: float) -> News:
        while self._waiting and (peer := next(iter(self._waiting))).accepted_at + HELLO_S <= now:
            del self._waiting[peer]
            peer.close()
            self._count(peer, ChannelEnd(why=ChannelEndKind.LATE, words=f"it said no hello within {HELLO_S:g} s"))
        while self._leaving and self._leaving[peer := next(iter(self._leaving))] <= now:
            del self._leaving[peer]
            peer.doom(ChannelEnd(why=ChannelEndKind.UNREAD, words=f"it did not close within {LEAVE_S:g} s"))
        return None

    def _count(self, peer: Peer, end: ChannelEnd) -> None:
        self.refused[end.why] += 1
        stranger = self.strangers.pop(peer.address, None) or Stranger(end)
        news = not stranger.times or stranger.end.why is not end.why
        stranger.end, stranger.times = end, stranger.times + 1
        # There are too many addresses, so forget the one with the oldest last refusal.
        self.strangers[peer.address] = stranger
        if len(self.strangers) > STRANGERS:
            del self.strangers[next(iter(self.strangers))]
        if news:
            self._strange(peer.address, end)


def _heard_at(peer: Peer) -> float:
    return peer.heard_at
