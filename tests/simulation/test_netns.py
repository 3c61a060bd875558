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
def net(tmp_path: Path) -> Iterator[Net]:
    if why := missing():
        pytest.skip(why)
    with Net(tmp_path, 2) as net:
        yield net


def python(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", text


def said(peer: socket.socket, word: bytes) -> bytes:
    """What comes back within half a second."""
    peer.settimeout(0.5)
    try:
        peer.sendall(word)
        return peer.recv(100)
    except TimeoutError:
        return b""


def test_a_node_sees_itself_alone(net: Net) -> None:
    assert [node("hostname").strip() for node in net] == ["node1", "node2"]
    net[1].start("sleep", "60")
    assert "sleep" not in net[2]("ps", "ax")
    first, second = (float(node(*python("import time; print(time.monotonic())"))) for node in net)
    assert second - first > 10_000, "clocks that no one may compare"


def test_a_power_cut_says_no_goodbye_and_the_node_comes_back_with_its_disk(net: Net) -> None:
    net[2].start(*python(ECHO))
    (net[2].place / "kept").write_text("1")
    with dial(net[1], (net[2].address, 7000)) as peer:
        assert said(peer, b"hello") == b"hello"
        net[2].power_cut()
        assert said(peer, b"hello") == b"", "neither an answer nor an end"
    net[2].boot()
    assert net[2]("cat", "kept") == "1"
    net[2].start(*python(ECHO))
    with dial(net[1], (net[2].address, 7000)) as peer:
        assert said(peer, b"again") == b"again"


def test_a_link_that_comes_up_again_delivers_what_was_sent(net: Net) -> None:
    net[2].start(*python(ECHO))
    with dial(net[1], (net[2].address, 7000)) as peer:
        net[2].link_down()
        assert said(peer, b"hello") == b""
        net[2].link_up()
        peer.settimeout(30)
        assert peer.recv(100) == b"hello"


def test_the_status_of_a_command_is_its_own_and_signals_reach_it(net: Net) -> None:
    assert net[1].start("sh", "-c", "exit 7").wait() == 7
    sleeper = net[1].start("sleep", "60")
    while not list(net[1].processes()):
        time.sleep(0.01)
    kill(sleeper.pid)
    assert sleeper.wait() == -9


def test_a_node_may_have_a_small_disk(net: Net) -> None:
    disk = net[1].place / "disk"
    net[1].mount(disk, "64k")
    assert net[1].start("dd", "if=/dev/zero", f"of={disk}/a", "bs=100k", "count=1").wait() == 1
    assert (net[1].inside(disk) / "a").stat().st_size == 65536
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("word", ["delay 0.1", "halve", "stall", "cut", "refuse"])
def test_the_proxy_does_what_it_is_asked(net: Net, word: str) -> None:
    net[1].start(*python(ECHO))
    dial(net[2], (net[1].address, 7000)).close()
    proxy = net.proxy(7000, net[1])
    with dial(net[2], (SWITCH_ADDRESS, 7000)) as peer:
        assert said(peer, b"hello") == b"hello"
        proxy.tell(word)
        match word:
            case "delay 0.1":
                begun = time.monotonic()
                assert said(peer, b"hello") == b"hello"
                assert time.monotonic() - begun >= 0.2, "a tenth of a second each way"
            case "halve":
                assert said(peer, b"hello") != b"hello", "the first piece is not the whole"
            case "stall":
                assert said(peer, b"hello") == b""
                proxy.tell("pass")
                assert peer.recv(100) == b"hello"
            case _:
                with pytest.raises(ConnectionResetError):
                    said(peer, b"hello")
    if word == "refuse":
        with pytest.raises(ConnectionResetError), dial(net[2], (SWITCH_ADDRESS, 7000)) as peer:
            said(peer, b"hello")
    else:
        with dial(net[2], (SWITCH_ADDRESS, 7000)) as peer:
            peer.settimeout(10)
            peer.sendall(b"hello")
            assert peer.recv(1) == b"h"


def test_a_test_is_back_in_its_own_network(net: Net) -> None:
    mine = Path("/proc/thread-self/ns/net")
    before = mine.readlink()
    with within(net[1]):
        assert mine.readlink() != before
    assert mine.readlink() == before


def test_nothing_stays_of_a_test_that_was_killed(net: Net, tmp_path: Path) -> None:
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
