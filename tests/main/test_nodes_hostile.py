"""The owner's port while a job runs: strangers, half-known peers and silent connections, and then its second node."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from conftest import wait_for
from holdfast.wire.job_key import Key
from holdfast.wire.peer_identity import Credentials, Identity
from pair_of_nodes import Pair, pair

__all__ = ["pair"]  # fixtures
pytestmark = pytest.mark.real

WAITS = 'wait_for("end")\n'
#: More than the owner keeps, where this process may have so many.
SILENT = 1500


@pytest.fixture
def silent_peers() -> Iterator[list[socket.socket]]:
    """Connections that are closed at the end, and files for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * SILENT if hard == resource.RLIM_INFINITY else min(2 * SILENT, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    made: list[socket.socket] = []
    yield made
    for each in made:
        each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def owner_of(pair: Pair) -> psutil.Process:
    """The process that listens at the port of the job."""
    listening = [
        found.pid
        for found in psutil.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port == pair.port and found.pid
    ]
    return psutil.Process(max(listening))


def answer(pair: Pair, said: bytes, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain) -> bytes:
    """What the owner sends until it closes the connection; nothing where the handshake fails."""
    try:
        with wrap(socket.create_connection(("127.0.0.1", pair.port), 60)) as peer:
            peer.sendall(said)
            return peer.recv(4096)
    except OSError:
        return b""


def stranger(version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client without a certificate, which takes any."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode, found.maximum_version = False, ssl.CERT_NONE, version
    return found


def unverifying(key: bytes, identity: Identity) -> ssl.SSLContext:
    found = Credentials(Key(key), identity).context
    found.verify_mode = ssl.CERT_NONE
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


HELLO = msgspec.msgpack.encode({"type": "hello", "agent": "a" * 900_000})
FRAMES = {
    "noise": framed(os.urandom(100)),
    "2 GiB": struct.pack(">I", 1 << 31) + b"x" * 100,
    "empty": framed(b"") * 1000,
    "deep lists": framed(b"\x91" * 100_000),
    "deep maps": framed(b"\x81\xa1a" * 200_000),
    "a map of 4 billion": framed(b"\xdf\xff\xff\xff\xff"),
    "a hello without fields": framed(msgspec.msgpack.encode({"type": "hello"})),
    "a hello that is odd": framed(HELLO),
}
GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\xff\xff" + b"a" * 70_000,
    os.urandom(2000),
    b"\0" * 10,
    b"SSH-2.0-x\r\n",
)


def test_strangers_at_the_port_change_nothing_and_the_second_node_joins(
    pair: Pair, silent_peers: list[socket.socket]
) -> None:
    key = pair.key.read_bytes()
    pair.start_a(WAITS)
    owner = owner_of(pair)
    memory = owner.memory_info().rss
    for context in (
        stranger(ssl.TLSVersion.TLSv1_3),
        stranger(ssl.TLSVersion.TLSv1_2),
        unverifying(os.urandom(32), Identity.AGENT),
        unverifying(os.urandom(32), Identity.OPERATOR),
    ):
        assert answer(pair, b"x" * 10, context.wrap_socket) == b""
    for said in GARBAGE:
        answer(pair, said)
    for name, frames in FRAMES.items():
        for identity in (Identity.AGENT, Identity.OPERATOR):
            assert b"welcome" not in answer(pair, frames, unverifying(key, identity).wrap_socket), name
    slow = unverifying(key, Identity.AGENT).wrap_socket(socket.create_connection(("127.0.0.1", pair.port), 60))
    silent_peers.append(slow)
    slow.sendall(b"\0")
    most = min(SILENT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100)
    silent_peers.extend(socket.create_connection(("127.0.0.1", pair.port), 60) for _ in range(most))
    pair.start_b(WAITS)
    wait_for(pair.holdfast.dir / "up-0-1")
    wait_for(pair.holdfast.dir / "up-1-1")
    assert owner.memory_info().rss < memory + (64 << 20)
    for each in silent_peers:
        each.close()
    silent_peers.clear()
    assert not shown_anywhere(key, pair.holdfast.dir, besides=pair.key)
    pair.go("end")
    runs = pair.finish()
    assert [ran.status for ran in runs] == [0, 0], runs
    assert not [ran for ran in runs if "Traceback" in ran.out + ran.err]


def shown_anywhere(key: bytes, place: Path, *, besides: Path) -> list[str]:
    """Processes and files that show the job's key."""
    found = []
    for name in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ"), *place.rglob("*")):
        try:
            data = name.read_bytes() if name.is_file() and name != besides else b""
        except OSError:
            continue  # a process that has ended, or of another user
        if key in data or key.hex().encode() in data:
            found.append(str(name))
    return found
