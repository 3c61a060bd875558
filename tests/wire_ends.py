"""Both ends of a connection in one test: a reactor each, real sockets on this machine, a hello that says little."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from holdfast.clock import Clock
from holdfast.model.gang_protocol import Report
from holdfast.model.job_spec import NodeInfo, NodePlan
from holdfast.reactor import Reactor
from holdfast.wire.job_key import Key
from holdfast.wire.node_messages import PROTOCOL, Hello
from holdfast.wire.owner_dialler import Dialler
from holdfast.wire.owner_listener import WAITING, OwnerListener, Peer
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.tls_channel import ChannelEnd

JOB_KEY = Key(b"k" * 32)
OTHER_KEY = Key(b"o" * 32)
PATIENCE_S = 90.0


def hello(agent: str = "a1", **more: Any) -> Hello:
    words: dict[str, Any] = {
        "protocol": PROTOCOL,
        "version": "1.0",
        "job": "j",
        "agent": agent,
        "boot": 1,
        "user": "u",
        "node": NodeInfo(name="n", slots=1),
        "plan": NodePlan(),
        "dialled": "127.0.0.1",
    }
    return Hello(**{**words, **more})


def beat(sent: float = 1.0) -> Report:
    return Report(node="n", boot=1, attempt=1, stopped=0, sent=sent)


class Turning(Protocol):
    reactor: Reactor


class OwnersEnd:
    """A listener on a free port, and what it has heard."""

    def __init__(self, key: Key = JOB_KEY, waiting: int = WAITING, host: str = "127.0.0.1") -> None:
        clock = Clock()
        #: The clock of this end can be set forward.
        self.ahead_s = 0.0
        self.reactor = Reactor(lambda: clock.now() + self.ahead_s)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.bind((host, 0))
        self.port: int = listening.getsockname()[1]
        self.heard: list[Any] = []
        self.peers: list[Peer] = []
        self.gone: list[tuple[Peer, ChannelEnd]] = []
        self.strange: list[tuple[str, ChannelEnd]] = []
        self.answer: Callable[[Peer, Any], object] = lambda peer, message: None
        self.listener = OwnerListener(self.reactor, listening, key, self._heard, self._gone, self._strange)
        self.listener.most_waiting = waiting

    def _heard(self, peer: Peer, message: Any, now: float) -> None:
        if peer not in self.peers:
            self.peers.append(peer)
        self.heard.append(message)
        self.answer(peer, message)

    def _gone(self, peer: Peer, end: ChannelEnd, now: float) -> None:
        self.gone.append((peer, end))

    def _strange(self, address: str, end: ChannelEnd) -> None:
        self.strange.append((address, end))

    def close(self) -> None:
        self.listener.close()
        self.reactor.close()


class AgentsEnd:
    """A dialler, and what it has heard."""

    def __init__(
        self,
        port: int,
        key: Key = JOB_KEY,
        identity: Identity = Identity.AGENT,
        host: str = "127.0.0.1",
        word: Any = None,
    ) -> None:
        clock = Clock()
        self.ahead_s = 0.0
        self.reactor = Reactor(lambda: clock.now() + self.ahead_s)
        self.heard: list[Any] = []
        self.lost: list[ChannelEnd] = []
        self.addresses: list[tuple[str, str]] = []
        self.word = word or hello()
        self.dialler = Dialler(
            self.reactor, host, port, Credentials(key, identity), self._hello, self._heard, self._lost
        )

    def _hello(self, mine: str, theirs: str) -> Any:
        self.addresses.append((mine, theirs))
        return self.word

    def _heard(self, message: Any, now: float) -> None:
        self.heard.append(message)

    def _lost(self, end: ChannelEnd, now: float) -> None:
        self.lost.append(end)

    def close(self) -> None:
        self.dialler.close()
        self.reactor.close()


def turn_until(what: Callable[[], object], *ends: Turning) -> None:
    """Turn the reactors of these ends until `what` is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it has not happened"
        for end in ends:
            end.reactor.wait(longest_s=0.001)


@pytest.fixture
def owner() -> Iterator[OwnersEnd]:
    end = OwnersEnd()
    yield end
    end.close()
