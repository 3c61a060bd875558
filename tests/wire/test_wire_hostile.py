"""What else comes to the owner's port, or answers at it: each is closed and counted, and keeps no agent out."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
from collections.abc import Iterator

import psutil
import pytest

from holdfast.reactor import Reactor
from holdfast.wire.connection_troubles import stranger
from holdfast.wire.message_frames import LONGEST_BYTES, frame
from holdfast.wire.node_messages import ReadFaults
from holdfast.wire.owner_dialler import SHAKE_S
from holdfast.wire.owner_listener import HELLO_S
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.tls_channel import ChannelEndKind
from wire_ends import JOB_KEY, OTHER_KEY, AgentsEnd, OwnersEnd, beat, hello, turn_until

MANY_FILES = 4096


@pytest.fixture
def owner_of_20() -> Iterator[OwnersEnd]:
    end = OwnersEnd(waiting=20)
    yield end
    end.close()


def knock(owner: OwnersEnd, said: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", owner.port))
    if said:
        sock.sendall(said)
    return sock


def tls(owner: OwnersEnd, identity: Identity = Identity.AGENT) -> ssl.SSLSocket:
    """A peer that has the key and then does what the test wants."""
    sock = knock(owner)
    sock.setblocking(False)
    wrapped = Credentials(JOB_KEY, identity).wrap(sock)

    def shaken() -> bool:
        try:
            wrapped.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    turn_until(shaken, owner)
    return wrapped


def still_serves(owner: OwnersEnd) -> bool:
    """A real agent gets in."""
    agent = AgentsEnd(owner.port, word=hello("late"))
    try:
        turn_until(lambda: hello("late") in owner.heard, owner, agent)
    finally:
        agent.close()
    return True


HELLO_OF_TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(60))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ChannelEndKind.NO_TLS),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ChannelEndKind.NO_TLS),
        (b"\x00\x00\x00\x01" * 9, ChannelEndKind.NO_TLS),
        (b"\x80" * 4000, ChannelEndKind.NO_TLS),
        (HELLO_OF_TLS[:5] + b"\x00" * 600, ChannelEndKind.NO_TLS),
    ],
)
def test_another_protocol_is_closed_and_counted(owner_of_20: OwnersEnd, said: bytes, why: ChannelEndKind) -> None:
    with knock(owner_of_20, said):
        turn_until(lambda: owner_of_20.listener.refused, owner_of_20)
        assert owner_of_20.listener.refused == {why: 1}
        assert still_serves(owner_of_20)
    stranger = owner_of_20.listener.strangers["127.0.0.1"]
    assert (stranger.end.why, stranger.times) == (why, 1)


def test_a_port_scanner_leaves_no_trace_but_a_count(owner_of_20: OwnersEnd) -> None:
    for _ in range(5):
        knock(owner_of_20).close()
    reset = knock(owner_of_20)
    reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.close()
    turn_until(lambda: owner_of_20.listener.refused.total() == 6, owner_of_20)
    assert set(owner_of_20.listener.refused) <= {ChannelEndKind.LEFT, ChannelEndKind.BROKEN}
    assert still_serves(owner_of_20)


def test_half_a_handshake_is_closed_after_a_while(owner_of_20: OwnersEnd) -> None:
    with knock(owner_of_20, HELLO_OF_TLS), knock(owner_of_20):
        turn_until(lambda: len(owner_of_20.reactor.watching) == 3, owner_of_20)
        owner_of_20.ahead_s = HELLO_S + 1
        turn_until(lambda: owner_of_20.listener.refused == {ChannelEndKind.LATE: 2}, owner_of_20)
        assert still_serves(owner_of_20)


def test_a_peer_with_the_key_that_says_no_hello_is_closed_after_a_while(owner_of_20: OwnersEnd) -> None:
    with tls(owner_of_20):
        owner_of_20.ahead_s = HELLO_S + 1
        turn_until(lambda: owner_of_20.listener.refused == {ChannelEndKind.LATE: 1}, owner_of_20)


def test_of_too_many_silent_connections_the_most_silent_makes_room(owner_of_20: OwnersEnd) -> None:
    silent = [knock(owner_of_20) for _ in range(50)]
    try:
        assert still_serves(owner_of_20)
        assert owner_of_20.listener.refused[ChannelEndKind.CROWDED] == 50 + 1 - 20
        assert len(owner_of_20.reactor.watching) <= 22
    finally:
        for sock in silent:
            sock.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Descriptors for both ends of a thousand connections: a shell often allows 1,024 in all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < MANY_FILES:
        pytest.skip(f"no process may open {MANY_FILES} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY_FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_silent_connections_keep_no_agent_out() -> None:
    owner = OwnersEnd()
    silent = []
    try:
        for _ in range(1000):
            silent.append(knock(owner))
            owner.reactor.wait(longest_s=0.0)
        turn_until(lambda: len(owner.reactor.watching) == 1001, owner)
        assert still_serves(owner)
        assert owner.listener.refused == {ChannelEndKind.CROWDED: 1}, (
            "one made room, and the agent did not have to wait for more"
        )
    finally:
        for sock in silent:
            sock.close()
        owner.close()


def test_one_that_says_something_is_not_the_most_silent(owner_of_20: OwnersEnd) -> None:
    first = tls(owner_of_20)
    rest = [knock(owner_of_20) for _ in range(30)]
    turn_until(lambda: owner_of_20.listener.refused[ChannelEndKind.CROWDED] >= 11, owner_of_20)
    first.close()
    first = tls(owner_of_20)
    more = [knock(owner_of_20) for _ in range(19)]
    turn_until(lambda: owner_of_20.listener.refused[ChannelEndKind.CROWDED] >= 20, owner_of_20)
    first.write(frame(hello(), 0.0))
    turn_until(lambda: owner_of_20.heard, owner_of_20)
    for sock in (first, *rest, *more):
        sock.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        (LONGEST_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\xc1",
        frame(beat(), 0.0),
        frame(ReadFaults(), 0.0),
    ],
    ids=["4 GiB", "too long", "empty", "no message", "no hello first", "an owner's word"],
)
def test_a_malformed_first_word_closes_the_connection(owner_of_20: OwnersEnd, said: bytes) -> None:
    peer = tls(owner_of_20)
    peer.write(said)
    turn_until(lambda: owner_of_20.listener.refused == {ChannelEndKind.MALFORMED: 1}, owner_of_20)
    assert owner_of_20.heard == []
    peer.close()


def test_a_malformed_later_word_closes_the_connection_too(owner_of_20: OwnersEnd) -> None:
    peer = tls(owner_of_20)
    peer.write(frame(hello(), 0.0) + frame(beat(), 0.0) + b"\x00\x00\x00\x02\x00\x00" + frame(beat(), 0.0))
    turn_until(lambda: owner_of_20.gone, owner_of_20)
    assert owner_of_20.heard == [hello(), beat()], "what came before it counts"
    assert owner_of_20.gone[0][1].why is ChannelEndKind.MALFORMED
    peer.close()


def test_an_operator_cannot_speak_as_an_agent(owner_of_20: OwnersEnd) -> None:
    peer = tls(owner_of_20, Identity.OPERATOR)
    peer.write(frame(beat(), 0.0))
    turn_until(lambda: owner_of_20.listener.refused == {ChannelEndKind.MALFORMED: 1}, owner_of_20)
    peer.close()


def test_frames_in_any_pieces_are_put_together(owner_of_20: OwnersEnd) -> None:
    peer = tls(owner_of_20)
    data = frame(hello(), 0.0) + frame(beat(), 0.0)
    for at in range(len(data)):
        peer.write(data[at : at + 1])
    turn_until(lambda: owner_of_20.heard == [hello(), beat()], owner_of_20)
    peer.close()


def test_a_peer_that_reads_nothing_loses_its_connection_and_holds_up_no_other(owner_of_20: OwnersEnd) -> None:
    stalled = tls(owner_of_20)
    stalled.write(frame(hello("stalled"), 0.0))
    agent = AgentsEnd(owner_of_20.port, word=hello("good"))
    turn_until(lambda: len(owner_of_20.heard) == 2, owner_of_20, agent)
    by_agent = dict(zip([word.agent for word in owner_of_20.heard], owner_of_20.peers, strict=True))
    framed = len(b"x" * 900_000).to_bytes(4, "big") + b"x" * 900_000
    turn_until(lambda: not by_agent["stalled"].put(framed), owner_of_20)
    assert by_agent["good"].send(ReadFaults())
    turn_until(lambda: agent.heard == [ReadFaults()] and owner_of_20.gone, owner_of_20, agent)
    (gone, end) = owner_of_20.gone[0]
    assert (gone, end.why) == (by_agent["stalled"], ChannelEndKind.UNREAD)
    agent.close()
    stalled.close()


def test_a_long_frame_arrives_whole_at_a_slow_reader(owner_of_20: OwnersEnd) -> None:
    agent = AgentsEnd(owner_of_20.port)
    turn_until(lambda: owner_of_20.heard, owner_of_20, agent)
    said = frame(hello("x" * 900_000), 0.0)
    assert all(owner_of_20.peers[0].put(said) for _ in range(4))
    # The agent does not expect this word: that it says so shows that all of it came.
    turn_until(lambda: agent.lost, owner_of_20, agent)
    assert agent.lost[0].why is ChannelEndKind.MALFORMED
    agent.close()


def test_a_cut_stream_is_the_end_of_its_connection_only(owner_of_20: OwnersEnd) -> None:
    cut = tls(owner_of_20)
    cut.write(frame(hello("cut"), 0.0) + frame(beat(), 0.0)[:9])
    turn_until(lambda: owner_of_20.heard, owner_of_20)
    cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    cut.close()
    turn_until(lambda: owner_of_20.gone, owner_of_20)
    assert owner_of_20.gone[0][1].why in (ChannelEndKind.BROKEN, ChannelEndKind.LEFT)
    assert owner_of_20.heard == [hello("cut")]
    assert still_serves(owner_of_20)


def test_without_descriptors_the_listener_goes_on_later(
    owner_of_20: OwnersEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = knock(owner_of_20)
    least = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers, not paths
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(owner_of_20.port, least), before[1]))
    try:
        holders = []
        try:
            while True:
                holders.append(os.dup(0))
        except OSError:
            pass
        turns = [owner_of_20.reactor.wait(longest_s=0.01) for _ in range(20)]
        assert sum(turns) <= 1, "it does not look again and again"
    finally:
        for fd in holders:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    owner_of_20.ahead_s = 2.0
    assert still_serves(owner_of_20)
    client.close()


def test_nothing_is_left_open(owner_of_20: OwnersEnd) -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        peer = tls(owner_of_20)
        peer.write(frame(hello(), 0.0))
        knock(owner_of_20, b"GET /").close()
        agent = AgentsEnd(owner_of_20.port)
        turn_until(lambda end=agent: end.dialler.connected, owner_of_20, agent)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        agent.close()
        peer.close()
    turn_until(lambda: len(owner_of_20.gone) == 6 and owner_of_20.listener.refused.total() == 3, owner_of_20)
    assert psutil.Process().num_fds() == before
    assert len(owner_of_20.reactor.watching) == 1


class Answering:
    """A server that is no owner. It answers each connection with `said`, and may close it."""

    def __init__(self, said: bytes, *, closes: bool = False) -> None:
        self.reactor = Reactor(lambda: 0.0)
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.sock.setblocking(False)
        self.port: int = self.sock.getsockname()[1]
        self.said, self.closes = said, closes
        self.held: list[socket.socket] = []
        self.reactor.watch(self.sock.fileno(), self._accept)

    def _accept(self, fd: int, now: float) -> None:
        client, _ = self.sock.accept()
        client.sendall(self.said)
        if self.closes:
            client.close()
        else:
            self.held.append(client)

    def close(self) -> None:
        for sock in (self.sock, *self.held):
            sock.close()
        self.reactor.close()


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (lambda: Answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {ChannelEndKind.NO_TLS}),
        (lambda: Answering(b"", closes=True), {ChannelEndKind.LEFT}),
        (lambda: Answering(b"\x15\x03\x03\x00\x02\x02\x28"), {ChannelEndKind.NO_TLS, ChannelEndKind.NO_KEY}),
    ],
    ids=["HTTP", "closes at once", "a TLS alert"],
)
def test_an_agent_says_what_answers_instead_of_the_owner(server: object, why: set[ChannelEndKind]) -> None:
    assert callable(server)
    other = server()
    agent = AgentsEnd(other.port)
    turn_until(lambda: len(agent.lost) > 1, other, agent)
    assert {end.why for end in agent.lost} <= why
    agent.close()
    other.close()


def test_an_agent_waits_for_no_silent_server_for_ever() -> None:
    silent = Answering(b"")
    agent = AgentsEnd(silent.port)
    turn_until(lambda: silent.held, silent, agent)
    agent.ahead_s = SHAKE_S + 1
    turn_until(lambda: agent.lost, silent, agent)
    assert agent.lost[0].why is ChannelEndKind.LATE
    agent.close()
    silent.close()


def test_an_agent_says_that_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    agent = AgentsEnd(port)
    turn_until(lambda: len(agent.lost) > 2, agent)
    assert {end.why for end in agent.lost} == {ChannelEndKind.UNREACHED}
    assert "Connection refused" in agent.lost[0].words
    agent.close()


def test_an_owner_of_another_key_hears_nothing_from_an_agent(owner_of_20: OwnersEnd) -> None:
    agent = AgentsEnd(owner_of_20.port, OTHER_KEY)
    turn_until(lambda: len(agent.lost) > 1, owner_of_20, agent)
    assert agent.addresses == [], "no hello is made for it"
    assert [(address, end.why) for address, end in owner_of_20.strange] == [("127.0.0.1", ChannelEndKind.OTHER_KEY)], (
        "told once"
    )
    found = stranger(owner_of_20.strange[0][1], "node1", OTHER_KEY)
    assert found is not None and "another job key" in found[0]
    agent.close()
