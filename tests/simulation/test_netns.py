"""The nodes of the drills are what they claim to be: apart from each other, reachable, and gone at the end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns import SWITCH_ADDRESS, Net, dial, kill, missing, within
from places import TESTS
from processes import is_gone

pytestmark = pytest.mark.real

ECHO = """
import socket
with socket.create_server(("", 7000)) as server:
    while True:
        peer, _ = server.accept()
        try:
            while word := peer.recv(65536):
                peer.sendall(word)
        except ConnectionResetError:
            pass
"""


@pytest.fixture
def two_node_net(tmp_path: Path) -> Iterator[Net]:
    if why := missing():
        pytest.skip(why)
    with Net(tmp_path, 2) as net:
        yield net


def python_code(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", text


def echo_of(peer: socket.socket, word: bytes) -> bytes:
    """What comes back within half a second."""
    peer.settimeout(0.5)
    try:
        peer.sendall(word)
        return peer.recv(100)
    except TimeoutError:
        return b""


def test_a_node_sees_itself_alone(two_node_net: Net) -> None:
    assert [node("hostname").strip() for node in two_node_net] == ["node1", "node2"]
    two_node_net[1].start("sleep", "60")
    assert "sleep" not in two_node_net[2]("ps", "ax")
    first, second = (float(node(*python_code("import time; print(time.monotonic())"))) for node in two_node_net)
    assert second - first > 10_000, "clocks that no one may compare"


def test_a_power_cut_says_no_goodbye_and_the_node_comes_back_with_its_disk(two_node_net: Net) -> None:
    two_node_net[2].start(*python_code(ECHO))
    (two_node_net[2].place / "kept").write_text("1")
    with dial(two_node_net[1], (two_node_net[2].address, 7000)) as peer:
        assert echo_of(peer, b"hello") == b"hello"
        two_node_net[2].power_cut()
        assert echo_of(peer, b"hello") == b"", "neither an answer nor an end"
    two_node_net[2].boot()
    assert two_node_net[2]("cat", "kept") == "1"
    two_node_net[2].start(*python_code(ECHO))
    with dial(two_node_net[1], (two_node_net[2].address, 7000)) as peer:
        assert echo_of(peer, b"again") == b"again"


def test_a_link_that_comes_up_again_delivers_what_was_sent(two_node_net: Net) -> None:
    two_node_net[2].start(*python_code(ECHO))
    with dial(two_node_net[1], (two_node_net[2].address, 7000)) as peer:
        two_node_net[2].link_down()
        assert echo_of(peer, b"hello") == b""
        two_node_net[2].link_up()
        peer.settimeout(30)
        assert peer.recv(100) == b"hello"


def test_the_status_of_a_command_is_its_own_and_signals_reach_it(two_node_net: Net) -> None:
    assert two_node_net[1].start("sh", "-c", "exit 7").wait() == 7
    sleeper = two_node_net[1].start("sleep", "60")
    while not list(two_node_net[1].processes()):
        time.sleep(0.01)
    kill(sleeper.pid)
    assert sleeper.wait() == -9


def test_a_node_may_have_a_small_disk(two_node_net: Net) -> None:
    disk = two_node_net[1].place / "disk"
    two_node_net[1].mount(disk, "64k")
    assert two_node_net[1].start("dd", "if=/dev/zero", f"of={disk}/a", "bs=100k", "count=1").wait() == 1
    assert (two_node_net[1].inside(disk) / "a").stat().st_size == 65536
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("word", ["delay 0.1", "halve", "stall", "cut", "refuse"])
def test_the_proxy_does_what_it_is_asked(two_node_net: Net, word: str) -> None:
    two_node_net[1].start(*python_code(ECHO))
    dial(two_node_net[2], (two_node_net[1].address, 7000)).close()
    proxy = two_node_net.proxy(7000, two_node_net[1])
    with dial(two_node_net[2], (SWITCH_ADDRESS, 7000)) as peer:
        assert echo_of(peer, b"hello") == b"hello"
        proxy.tell(word)
        match word:
            case "delay 0.1":
                begun = time.monotonic()
                assert echo_of(peer, b"hello") == b"hello"
                assert time.monotonic() - begun >= 0.2, "a tenth of a second each way"
            case "halve":
                assert echo_of(peer, b"hello") != b"hello", "the first piece is not the whole"
            case "stall":
                assert echo_of(peer, b"hello") == b""
                proxy.tell("pass")
                assert peer.recv(100) == b"hello"
            case _:
                with pytest.raises(ConnectionResetError):
                    echo_of(peer, b"hello")
    if word == "refuse":
        with pytest.raises(ConnectionResetError), dial(two_node_net[2], (SWITCH_ADDRESS, 7000)) as peer:
            echo_of(peer, b"hello")
    else:
        with dial(two_node_net[2], (SWITCH_ADDRESS, 7000)) as peer:
            peer.settimeout(10)
            peer.sendall(b"hello")
            assert peer.recv(1) == b"h"


def test_a_test_is_back_in_its_own_network(two_node_net: Net) -> None:
    mine = Path("/proc/thread-self/ns/net")
    before = mine.readlink()
    with within(two_node_net[1]):
        assert mine.readlink() != before
    assert mine.readlink() == before


def test_nothing_stays_of_a_test_that_was_killed(two_node_net: Net, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, sys; from pathlib import Path; from netns import Net\n"
        "net = Net(Path(sys.argv[1]), 1).__enter__(); net[1].start('sleep', '61')\n"
        "while not list(net[1].processes()): pass\n"
        "print(*[p.pid for p in net[1].processes()], net[1]._init, net._switch_pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 3, done.stderr
    assert all(is_gone(pid) for pid in pids)
