"""Agents for `nodes_scale.py`: many protocol clients with real TLS in one process, told by lines on stdin.

    beats EVERY_S     each beats so often from now on, spread over the interval
    evidence BYTES    each says now that its worker has failed, and sends so much evidence, unasked
    fail ONE          agent number ONE says that its worker has failed; `fail all`: each does
    end               close everything

They do what the owner commands: checks pass, workers are prepared, up and stopped as soon as it says so. What they
tell on stdout is one JSON object a line, each once all have got so far: `up`, `go`, `told` (a Stop), `finished`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.model.actions import CollectEvidence, RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.events import ChecksFinished, EvidenceCollected
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import (
    Ack,
    Go,
    MeasurePeer,
    Meeting,
    Member,
    MemberState,
    OpenPort,
    PeerMeasured,
    PortOpen,
    Prepare,
    Report,
    Stop,
)
from holdfast.model.job_spec import NodeInfo, NodePlan
from holdfast.reactor import Reactor
from holdfast.wire.job_key import Key, job_key
from holdfast.wire.message_frames import FromOwner, frame
from holdfast.wire.node_messages import PROTOCOL, Bye, Finished, Hello, Refused, Welcome
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.socket_options import set_up
from holdfast.wire.tls_channel import Channel, ChannelEnd

if TYPE_CHECKING:
    from holdfast.reactor import News

#: Handshakes under way: on the machine that also has the owner, more would only wait for each other.
AT_ONCE = 32


class Agent(Channel):
    __slots__ = ("_crowd", "attempt", "failed", "name", "ranks", "state", "stopped", "term")

    def __init__(self, crowd: Crowd, name: str, sock: socket.socket) -> None:
        super().__init__(crowd.reactor, sock, crowd.credentials, {Identity.OWNER: FromOwner}, writable=True)
        self._crowd, self.name = crowd, name
        self.attempt, self.stopped, self.term, self.failed = 0, 0, 0, False
        self.ranks: tuple[int, ...] = ()
        self.state = MemberState.NONE
        if crowd.every_s is None:
            # No owner says what there is to do.
            self.attempt, self.ranks, self.state = 1, tuple(range(8)), MemberState.UP

    def _shake(self, now: float) -> News:
        self.resume()
        return super()._shake(now)

    def _opened(self, identity: Identity, now: float) -> News:
        node = NodeInfo(name=self.name, slots=1, address="127.0.0.1", cores=64, memory_bytes=1 << 40)
        hello = Hello(
            protocol=PROTOCOL,
            version=__version__,
            job=self._crowd.job,
            agent=self.name,
            boot=1,
            user=self._crowd.user,
            node=node,
            plan=NodePlan(least=self._crowd.nodes, most=self._crowd.nodes),
            dialled="127.0.0.1",
        )
        self.put(frame(hello, now))
        self._crowd.reached("up", now)
        return None

    def _on_message(self, message: Any, now: float) -> News:
        crowd = self._crowd
        match message:
            case Ack():
                crowd.acks += 1
                return None
            case Stop():
                crowd.reached("told", now)
                self.stopped, self.state = message.attempt, MemberState.STOPPED
            case Welcome():
                self.name = message.node
            case RunChecks():
                meeting = Meeting(address="127.0.0.1", port=1) if message.meet_on == self.name else None
                passed = CheckState.PASS
                said = ChecksFinished(attempt=message.attempt, round=message.round, state=passed, meeting=meeting)
                self.put(frame(said, now))
                return None
            case Prepare():
                self.attempt, self.ranks = message.attempt, tuple(seat.rank for seat in message.placements)
                self.state, self.failed = MemberState.PREPARED, False
            case Go():
                crowd.reached("go", now)
                self.state = MemberState.UP
            case CollectEvidence():
                evidence = AttemptEvidence(
                    attempt=message.attempt,
                    workers=tuple(WorkerEvidence(rank=rank, node=self.name) for rank in self.ranks),
                )
                self.put(frame(EvidenceCollected(attempt=message.attempt, evidence=evidence), now))
                return None
            case OpenPort():
                self.put(frame(PortOpen(attempt=message.attempt, round=message.round, port=1), now))
                return None
            case MeasurePeer():
                measured = PeerMeasured(
                    attempt=message.attempt, round=message.round, number=message.number, round_trip_s=1e-4,
                    exchange_s=1e-3,
                )  # fmt: skip
                self.put(frame(measured, now))
                return None
            case Refused() | Finished():
                crowd.reached("finished", now)
                self.put(frame(Bye(), now))
                self.leave()
                return None
            case _:
                return None
        self.term = max(self.term, getattr(message, "term", 0))
        self.report(now)
        return None

    def report(self, now: float) -> None:
        state = MemberState.FAILED if self.failed else self.state
        members = tuple(Member(rank=rank, state=state, exit=self._exit(rank, now)) for rank in self.ranks)
        self.put(
            frame(
                Report(
                    node=self.name,
                    boot=1,
                    attempt=self.attempt,
                    stopped=self.stopped,
                    sent=now,
                    members=members,
                    term=self.term,
                ),
                now,
            )
        )

    def _exit(self, rank: int, now: float) -> WorkerExit | None:
        if not self.failed:
            return None
        return WorkerExit(
            role="worker", rank=rank, node=self.name, attempt=self.attempt, exit_code=1, ended_at=now,
            last_words="ValueError: a bad batch",
        )  # fmt: skip

    def _ended(self, end: ChannelEnd, now: float) -> News:
        self._crowd.lost.append(f"{self.name}: {end.words}")
        return None


class Crowd:
    def __init__(self, options: argparse.Namespace) -> None:
        self.reactor = Reactor(time.monotonic)
        self.credentials = Credentials(options.key, Identity.AGENT)
        self.job, self.nodes, self.user = options.job, options.nodes, options.user
        count = options.count
        self.port, self.first = options.port, options.first
        self.names = deque(f"node-{number}" for number in range(options.first, options.first + count))
        self.agents: list[Agent] = []
        self.count, self.acks = count, 0
        self.steps: Counter[str] = Counter()
        self.every_s: float | None = options.beats
        self.turn = 0
        self.next_at = time.monotonic()
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

    def reached(self, step: str, now: float) -> None:
        """One more agent has got so far."""
        self.steps[step] += 1
        if step == "up" and self.names:
            self._dial()
        if self.steps[step] == self.count:
            self.steps[step] = 0
            self.say(step, at=now, acks=self.acks)

    def _beat(self, now: float) -> None:
        assert self.every_s is not None
        gap = self.every_s / self.count
        while self.next_at <= now:
            if self.turn < len(self.agents):
                self.agents[self.turn].report(now)
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
                case [b"fail", b"all"]:
                    for agent in self.agents:
                        agent.failed = True
                        agent.report(now)
                    self.say("failed", at=now)
                case [b"fail", one] if 0 <= int(one) - self.first < self.count:
                    agent = self.agents[int(one) - self.first]
                    agent.failed = True
                    agent.report(now)
                    self.say("failed", at=now)
                case [b"fail", _]:
                    pass
                case _:
                    self.over = True

    def _fail(self, size: int, now: float) -> None:
        ended = WorkerExit(role="w", rank=0, node="n", attempt=1, exit_code=1, last_words="x" * size)
        evidence = AttemptEvidence(workers=(WorkerEvidence(rank=0, exit=ended),))
        collected = frame(EvidenceCollected(attempt=1, evidence=evidence), now)
        for agent in self.agents:
            agent.failed = True
            agent.report(now)
            agent.put(collected)
        self.say("sent", at=time.monotonic(), each=len(collected))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=2, help="of the whole job")
    parser.add_argument("--beats", type=float, help="seconds between two of one agent, from its hello on")
    parser.add_argument("--job", default="bench")
    parser.add_argument("--user", default="u")
    parser.add_argument("--key", type=lambda path: job_key(path, {}, Path()), default=Key(bytes(32)))
    crowd = Crowd(parser.parse_args())
    while not crowd.over:
        crowd.reactor.wait()
    for agent in crowd.agents:
        agent.close()
    sys.exit(0)


if __name__ == "__main__":
    main()
