"""`python -m holdfast_testing.fuzz_wire`: feeds malformed frames and handshakes, made from a seed, to the real code.

    --cases N      the number of cases (default 100000); the same seed gives the same cases
    --seed S       the seed (default 1)

Two of three cases are frames: messages with parts cut, doubled or replaced, in pieces, for each direction. The others
use sockets: random bytes and damaged handshakes without the key, damaged records and frames with it. In each case a
frame must give a message or `Malformed`, and a connection must go on or end with a reason. Without the key, no message
may be accepted. Neither memory nor open descriptors may grow. Exit status 0: all this holds; 1: the first case that
broke it was printed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import socket
import ssl
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.evidence import AttemptEvidence, StopRequest, StopSource, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import Ack, Go, Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import JobSetting, JobSpec, NodeInfo, NodePlan, Placement, Role
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed
from holdfast.wire.admission import AdmissionContext, KnownAgents, admit
from holdfast.wire.job_key import Key
from holdfast.wire.message_frames import FrameReader, FromAgent, FromOperator, FromOwner, frame
from holdfast.wire.node_messages import PROTOCOL, Asked, Foreign, Hello, Refused, Welcome
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.tls_channel import Channel, ChannelEnd, ChannelEndKind

if TYPE_CHECKING:
    from holdfast.reactor import News
    from holdfast.wire.message_frames import Sent

MOST_GROWTH_BYTES = 64 << 20
#: CPU seconds after which a case counts as stuck: far more than any case needs on a busy machine.
SLOWEST_S = 5.0
_KEY, _OTHER = Key(bytes(range(32))), Key(bytes(32))
_NOW = 1_767_225_600.0
_SPEC = JobSpec(name="j", roles=(Role(name="w", count=2, command=("x",), env={"A": "1"}),), nodes=NodePlan(most=2))
_EXIT = WorkerExit(role="w", rank=0, node="n", attempt=1, pid=7, exit_code=1, ended_at=_NOW, last_words="E: x\n" * 9)
_STOP = StopRequest(reason="r", solution="s", source=StopSource.OPERATOR, at=_NOW)
_HOUSE = AdmissionContext(version="1", job="j", user="u", host="h", job_id="i", spec=_SPEC, term=1)
_HELLO = Hello(
    protocol=PROTOCOL,
    version="1",
    job="j",
    agent="a",
    boot=1,
    user="u",
    node=NodeInfo(name="n", slots=8, devices=("gpu0", "gpu1"), address="10.0.0.7", node_rank=1),
    plan=_SPEC.nodes,
    dialled="10.0.0.1",
)
_SAID: dict[Any, tuple[Sent, ...]] = {
    FromAgent: (
        _HELLO,
        Report(
            node="n", boot=1, attempt=2, stopped=1, sent=_NOW,
            members=(Member(rank=0, state=MemberState.FAILED, exit=_EXIT), Member(rank=1, state=MemberState.UP)),
        ),
        ev.ChecksFinished(attempt=1, round=1, state=CheckState.PASS),
        ev.EvidenceCollected(attempt=1, evidence=AttemptEvidence(workers=(WorkerEvidence(rank=0, exit=_EXIT),))),
        ev.StopRequested(request=_STOP),
    ),
    FromOperator: (Asked(protocol=PROTOCOL, version="1", user="u", host="h", line='{"type":"stop","reason":"r"}'),),
    FromOwner: (
        Welcome(
            job_id="i", node="n", spec=_SPEC, term=1, owner="h",
            settings=(
                JobSetting(name="log-size", value="1M", source=2, origin="config.yaml"),
                JobSetting(name="checks", value=("disk",), source=4, origin="--checks"),
            ),
        ),
        Refused(reason="r", hint="h", code=2),
        Prepare(attempt=1, placements=(Placement(rank=0, role="w", role_rank=0, node="n", local_rank=0),)),
        Go(attempt=1),
        Stop(attempt=1, reason="r", grace_s=1.0),
        Ack(sent=_NOW),
        RunChecks(attempt=1, round=1, nodes=("n",), checks=None, deadline_s=1.0),
    ),
}  # fmt: skip
_BITS = (
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc1",
    b"\x91" * 2000, b"\x81\xa1a" * 500, b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", b"\xc0",
    b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00", b"\xcb\x7f\xef\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", b"\xcf" + b"\xff" * 8, b"\xff",
    b"\xa3\xff\xfe\xfd", b"\xa3\xed\xa0\x80", b"\xc7\x04\x01abcd", b"\xd6\xff\x00\x00\x00\x00", b"\xa4type", b"\x00",
    b"\x80\x10\x00\x00", b"\x00\x10\x00\x01", b"\x7f\xff\xff\xff", b"\xa0", b"\x90", b"\x80", b"\xc3", b"\xa5hello",
)  # fmt: skip


class Wrong(Exception):
    """Raised if the tested code behaved in a forbidden way."""


class _End(Channel):
    """The owner's end of the connection that a case uses."""

    __slots__ = ("ends", "heard")

    def __init__(self, reactor: Reactor, sock: socket.socket, credentials: Credentials) -> None:
        super().__init__(reactor, sock, credentials, {Identity.AGENT: FromAgent, Identity.OPERATOR: FromOperator})
        self.heard = 0
        self.ends: list[ChannelEnd] = []

    def _opened(self, identity: Identity, now: float) -> News:
        return None

    def _on_message(self, message: Any, now: float) -> News:
        self.heard += 1
        _use(message)
        self.put(frame(Ack(sent=1.0), now))
        return None

    def _ended(self, end: ChannelEnd, now: float) -> News:
        self.ends.append(end)
        return None


class Fuzz:
    """Makes cases from one seed, and runs them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self._reactor = Reactor(lambda: _NOW)
        self._owner = Credentials(_KEY, Identity.OWNER)
        self._agents = {
            (key, who): Credentials(key, who) for key in (_KEY, _OTHER) for who in (Identity.AGENT, Identity.OPERATOR)
        }
        for (key, _), credentials in self._agents.items():
            if key is _OTHER:
                # These clients accept any certificate, so that the owner has to refuse them.
                credentials.context.verify_mode = ssl.CERT_NONE
        self._framed = {kind: [frame(each, _NOW) for each in said] for kind, said in _SAID.items()}
        self._kinds: list[tuple[Callable[[], None], int]] = [
            (self.frames, 66),
            (self.noise, 12),
            (self.damaged_hello, 12),
            (self.without_the_key, 4),
            (self.damaged_records, 3),
            (self.damaged_frames, 3),
        ]

    def case(self) -> str:
        """Run one case and return its kind. Raises `Wrong`, or the exception of the tested code."""
        kinds, weights = zip(*self._kinds, strict=True)
        (kind,) = self.rng.choices(kinds, weights)
        kind()
        return str(kind.__name__)

    def close(self) -> None:
        self._reactor.close()

    def mutated(self, data: bytes) -> bytes:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(0, len(data))
            to = min(len(data), at + rng.randint(0, 12))
            match rng.randint(0, 4):
                case 0:
                    piece = rng.choice(_BITS)
                case 1:
                    piece = rng.randbytes(rng.randint(0, 8))
                case 2:
                    piece = data[at:to] * 2
                case 3:
                    piece = bytes([data[at] ^ (1 << rng.randint(0, 7))]) if at < len(data) else b""
                    to = at + 1
                case _:
                    piece = b""
            data = data[:at] + piece + data[to:]
        return data

    def _several(self, kind: Any) -> bytes:
        """Return some frames of one direction, a few of them damaged.

        The length of some damaged frames fits their damaged body.
        """
        rng, data = self.rng, b""
        for _ in range(rng.randint(1, 3)):
            framed = rng.choice(self._framed[kind])
            match rng.randint(0, 3):
                case 0:
                    pass
                case 1:
                    framed = self.mutated(framed)
                case _:
                    body = self.mutated(framed[4:])
                    framed = len(body).to_bytes(4, "big") + body
            data += framed
        return data

    def frames(self) -> None:
        """Give the frames of one direction to a `FrameReader`, cut into pieces at random positions."""
        kind = self.rng.choice(list(_SAID))
        data = self._several(kind)
        inbox = FrameReader(kind)
        try:
            while data:
                piece = self.rng.choice((1, 5, 100, len(data)))
                for message in inbox.take(data[:piece], _NOW):
                    self.seen["messages"] += 1
                    _use(message)
                data = data[piece:]
        except Malformed as error:
            self.seen["refused frames"] += 1
            if not str(error):
                raise Wrong("a frame was refused without a reason") from None

    def noise(self) -> None:
        """Connect and send random bytes, some of them after the beginning of another protocol."""
        first = self.rng.choice(
            (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x80\x2e\x01", b"SSH-2.0-x\r\n")
        )
        self._over_a_socket(lambda sock: sock.sendall(first + self.rng.randbytes(self.rng.randint(0, 600))))

    def damaged_hello(self) -> None:
        """Connect and send a damaged first message of a real handshake."""
        hello = self._flights(_KEY, Identity.AGENT, 1)[0]
        self._over_a_socket(lambda sock: sock.sendall(self.mutated(hello)))

    def without_the_key(self) -> None:
        """Connect with another key, as a client that does not check the owner's certificate, and complete the
        handshake."""
        who = self.rng.choice((Identity.AGENT, Identity.OPERATOR))
        self._with_tls(_OTHER, who, lambda tls: [self._several(FromAgent)], wild=False)

    def damaged_records(self) -> None:
        """Connect with the right key, and damage the bytes of one step below TLS."""
        self._with_tls(_KEY, Identity.AGENT, lambda tls: [self._framed[FromAgent][0]], wild=True)

    def damaged_frames(self) -> None:
        """Connect with the right key, and send damaged messages."""
        who = self.rng.choice((Identity.AGENT, Identity.OPERATOR))
        self._with_tls(_KEY, who, lambda tls: [self._several(FromAgent), self._several(FromOperator)], wild=False)

    def _flights(self, key: Key, who: Identity, count: int) -> list[bytes]:
        out = ssl.MemoryBIO()
        client = self._agents[key, who].context.wrap_bio(ssl.MemoryBIO(), out)
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return [out.read()][:count]

    def _over_a_socket(self, say: Callable[[socket.socket], None]) -> None:
        mine, theirs = socket.socketpair()
        end = self._end(theirs)
        with mine:
            say(mine)
            self._turn()
            if end.heard:
                raise Wrong("something was heard without the key")
        self._finish(end)

    def _with_tls(self, key: Key, who: Identity, words: Callable[[ssl.SSLObject], list[bytes]], *, wild: bool) -> None:
        """Do the TLS handshake as a client with this key, and send `words`.

        `who`: the client's identity. `wild`: one step's bytes are damaged on the way.
        """
        mine, theirs = socket.socketpair()
        end = self._end(theirs)
        mine.setblocking(False)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self._agents[key, who].context.wrap_bio(incoming, outgoing)
        damaged_at = self.rng.randint(0, 3) if wild else -1

        def pass_on(step: int) -> None:
            data = outgoing.read()
            if step == damaged_at:
                data = self.mutated(data)
            try:
                mine.sendall(data)
                self._turn()
                incoming.write(mine.recv(1 << 16))
            except OSError:
                pass  # the owner's end has closed, or has sent nothing

        with mine:
            try:
                for step in range(2):
                    try:
                        client.do_handshake()
                    except ssl.SSLWantReadError:
                        pass
                    pass_on(step)
                for step, word in enumerate(words(client), 2):
                    client.write(word)
                    pass_on(step)
            except ssl.SSLError:
                pass_on(9)  # send the client's TLS alert
            self.seen["shaken"] += end.ends == [] or end.ends[-1].why is ChannelEndKind.MALFORMED
            if key is _OTHER and end.heard:
                raise Wrong("a peer with another key was heard")
        self._finish(end)

    def _end(self, sock: socket.socket) -> _End:
        sock.setblocking(False)
        return _End(self._reactor, sock, self._owner)

    def _turn(self) -> None:
        # A descriptor without further data is not ready, so a connection that stays ready is a bug.
        for _ in range(50):
            if not self._reactor.wait(longest_s=0.0):
                return
        raise Wrong("the connection is ready for ever")

    def _finish(self, end: _End) -> None:
        """Check a connection whose peer has closed: it must end exactly once, with a reason."""
        self._turn()
        if not end.closed or len(end.ends) != 1:
            raise Wrong(f"a connection whose peer has closed has ended {len(end.ends)} times")
        if not end.ends[0].words:
            raise Wrong("a connection ended without a reason")
        self.seen[end.ends[0].why] += 1


def _use(message: Any) -> None:
    """Handle a message as the owner does: encode it again, and decide whether to admit its sender."""
    frame(message, _NOW + 1)
    if isinstance(message, Hello | Foreign):
        admit(message, "10.0.0.7", _HOUSE, KnownAgents(), lambda name: True)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths


def run(cases: int, seed: int) -> int:
    """Run this many cases and print a summary. Return 0, or 1 if a case failed."""
    fuzz, kinds = Fuzz(seed), Counter[str]()
    warmup, before, descriptors, slowest = min(1000, cases // 10), 0, _descriptors(), 0.0
    began = time.process_time()
    for number in range(cases):
        if number == warmup:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        at = time.process_time()
        try:
            kinds[fuzz.case()] += 1
        except Exception:  # an exception of any kind is a finding
            traceback.print_exc()
            print(
                f"case {number} of seed {seed}: python -m holdfast_testing.fuzz_wire --seed {seed} --cases {number + 1}"
            )
            return 1
        slowest = max(slowest, time.process_time() - at)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    left = _descriptors() - descriptors
    fuzz.close()
    print(
        f"{cases} cases of seed {seed} in {time.process_time() - began:.1f} s of CPU; the slowest took {slowest:.3f} s"
    )
    print("  cases: " + ", ".join(f"{name} {count}" for name, count in kinds.most_common()))
    print("  seen:  " + ", ".join(f"{name} {count}" for name, count in fuzz.seen.most_common()))
    print(f"  memory grew by {growth / 1e6:.1f} MB, descriptors by {left}")
    return int(growth > MOST_GROWTH_BYTES or left > 0 or slowest > SLOWEST_S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast_testing.fuzz_wire")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    return run(options.cases, options.seed)


if __name__ == "__main__":
    sys.exit(main())
