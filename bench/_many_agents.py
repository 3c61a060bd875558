"""Agents for `nodes_scale.py`: many protocol clients with real TLS in one process, told by lines on stdin.

    beats EVERY_S     each beats so often from now on, spread over the interval
    evidence BYTES    each says now that its worker has failed, with so much evidence
    end               close everything

It answers with one JSON object a line on stdout: `up` when all have said hello, `told` when all have got a Stop.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.model.commands import Ack, Member, MemberState, Report, Stop
from holdfast.model.events import EvidenceCollected
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exits import WorkerExit
from holdfast.model.jobs import NodeInfo, NodePlan
from holdfast.reactor import Reactor
from holdfast.wire.channel import Channel, End
from holdfast.wire.frames import FromOwner, frame
from holdfast.wire.identity import Credentials, Identity
from holdfast.wire.key import Key
from holdfast.wire.messages import PROTOCOL, Hello
from holdfast.wire.sockets import set_up

if TYPE_CHECKING:
    from holdfast.reactor import News

AT_ONCE = 32
"""Handshakes under way: on the machine that also has the owner, more would only wait for each other."""


class Agent(Channel):
    __slots__ = ("_crowd", "name")

    def __init__(self, crowd: Crowd, name: str, sock: socket.socket) -> None:
        super().__init__(crowd.reactor, sock, crowd.credentials, {Identity.OWNER: FromOwner}, writable=True)
        self._crowd, self.name = crowd, name

    def _shake(self, now: float) -> News:
        self.resume()
        return super()._shake(now)

    def _opened(self, identity: Identity, now: float) -> News:
        node = NodeInfo(name=self.name, slots=8, address="127.0.0.1", cores=64, memory_bytes=1 << 40)
        hello = Hello(
            protocol=PROTOCOL,
            version="1",
            job="bench",
            agent=self.name,
            boot=1,
            user="u",
            node=node,
            plan=NodePlan(least=2, most=2),
            dialled="127.0.0.1",
        )
        self.put(frame(hello, now))
        self._crowd.up(now)
        return None

    def _heard(self, message: Any, now: float) -> News:
        if isinstance(message, Stop):
            self._crowd.told(now)
        elif isinstance(message, Ack):
            self._crowd.acks += 1
        return None

    def _ended(self, end: End, now: float) -> News:
        self._crowd.lost.append(f"{self.name}: {end.words}")
        return None


class Crowd:
    def __init__(self, port: int, first: int, count: int) -> None:
        self.reactor = Reactor(time.monotonic)
        self.credentials = Credentials(Key(bytes(32)), Identity.AGENT)
        self.port, self.names = port, deque(f"node-{number}" for number in range(first, first + count))
        self.agents: list[Agent] = []
        self.count, self.ups, self.tolds, self.acks = count, 0, 0, 0
        self.every_s: float | None = None
        self.turn = 0
        self.next_at = 0.0
        self.lost: list[str] = []
        self.over = False
        self.lines = b""
        os.set_blocking(0, False)
        self.reactor.watch(0, self._line)
        self.reactor.deadlines(lambda: self.next_at if self.every_s else None, self._beat)
        for _ in range(min(AT_ONCE, count)):
            self._dial()

    def _dial(self) -> None:
        sock = socket.socket()
        set_up(sock, 30.0)
        sock.connect_ex(("127.0.0.1", self.port))
        self.agents.append(Agent(self, self.names.popleft(), sock))

    def say(self, what: str, **more: object) -> None:
        print(json.dumps({"what": what, "lost": self.lost[:3], **more}), flush=True)

    def up(self, now: float) -> None:
        self.ups += 1
        if self.names:
            self._dial()
        if self.ups == self.count:
            self.say("up", at=now)

    def told(self, now: float) -> None:
        self.tolds += 1
        if self.tolds == self.count:
            self.say("told", at=now, acks=self.acks)
            self.tolds = 0

    def report(self, agent: Agent, state: MemberState, now: float) -> None:
        members = tuple(Member(rank=rank, state=state) for rank in range(8))
        agent.put(frame(Report(node=agent.name, boot=1, attempt=1, stopped=0, sent=now, members=members, term=1), now))

    def _beat(self, now: float) -> None:
        assert self.every_s is not None
        gap = self.every_s / self.count
        while self.next_at <= now:
            self.report(self.agents[self.turn], MemberState.UP, now)
            self.turn = (self.turn + 1) % self.count
            self.next_at += gap

    def _line(self, fd: int, now: float) -> None:
        data = os.read(fd, 4096)
        self.over = self.over or not data
        *lines, self.lines = (self.lines + data).split(b"\n")
        for words in (line.split() for line in lines):
            match words:
                case [b"beats", every]:
                    self.every_s, self.next_at = float(every), now
                case [b"evidence", size]:
                    self._fail(int(size), now)
                case _:
                    self.over = True

    def _fail(self, size: int, now: float) -> None:
        ended = WorkerExit(role="w", rank=0, node="n", attempt=1, exit_code=1, last_words="x" * size)
        evidence = AttemptEvidence(workers=(WorkerEvidence(rank=0, exit=ended),))
        collected = frame(EvidenceCollected(attempt=1, evidence=evidence), now)
        for agent in self.agents:
            self.report(agent, MemberState.FAILED, now)
            agent.put(collected)
        self.say("sent", at=time.monotonic(), each=len(collected))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    crowd = Crowd(options.port, options.first, options.count)
    while not crowd.over:
        crowd.reactor.wait()
    for agent in crowd.agents:
        agent.close()
    sys.exit(0)


if __name__ == "__main__":
    main()
