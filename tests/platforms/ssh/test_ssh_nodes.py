"""`--hosts` over machines of their own: an sshd in each of three network namespaces."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns import Net, Node, missing
from real_sshd import SSHD, write_config

pytestmark = pytest.mark.real

SSH_PORT = 2222
TELLS_HOST = """
import json, os, socket
host = socket.gethostname()
names = "RANK GROUP_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TOKEN".split()
open(f"told-{os.environ['RANK']}", "w").write(json.dumps({**{n: os.environ.get(n) for n in names}, "host": host}))
if os.environ["RANK"] == "0":
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
        server.accept()[0].sendall(b"hello")
else:
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=90)
            break
        except ConnectionRefusedError:
            pass
    assert peer.recv(5) == b"hello"
"""


@pytest.fixture
def net_with_sshd(tmp_path: Path) -> Iterator[Net]:
    if why := missing():
        pytest.skip(why)
    if SSHD is None:
        pytest.skip("there is no OpenSSH here (apt-get install openssh-server)")
    write_config(tmp_path / "ssh", SSH_PORT, "0.0.0.0")
    with Net(tmp_path, 3) as net:
        for node in net:
            node("mkdir", "-p", "/run/sshd")
            node.start(SSHD, "-D", "-e", "-f", tmp_path / "ssh" / "sshd_config")
            answers(node)
        yield net


def answers(node: Node) -> None:
    code = f"import socket; socket.create_connection(('{node.address}', {SSH_PORT}), timeout=90)"
    deadline = time.monotonic() + 30
    while node.start(sys.executable, "-IS", "-c", code).wait() != 0:
        assert time.monotonic() < deadline, f"{node.name}: sshd does not answer"


@pytest.mark.parametrize("hosts", ["node1,node2,node3", "node3,node2"])
def test_workers_on_other_machines_meet_at_an_address_that_reaches_rank_0(
    net_with_sshd: Net, tmp_path: Path, hosts: str
) -> None:
    """The command is typed on node 1, which may have no worker."""
    (net_with_sshd[1].place / "job.py").write_text(TELLS_HOST)
    run = net_with_sshd[1].start(
        *(sys.executable, "-m", "holdfast", "run", "--no-checks", "--ssh", f"ssh -F {tmp_path}/ssh/ssh_config"),
        *("--hosts", hosts, "job.py"),
        env={"TOKEN": "given", "TORCHELASTIC_USE_AGENT_STORE": "False"},
    )
    assert run.wait(60) == 0, run.err
    count = len(hosts.split(","))
    told = [json.loads((net_with_sshd[1].place / f"told-{rank}").read_text()) for rank in range(count)]
    assert [each["host"] for each in told] == hosts.split(","), "ranks are in the order of the list"
    assert {each["TOKEN"] for each in told} == {"given"}
    [address] = {each["MASTER_ADDR"] for each in told}
    first = net_with_sshd[int(hosts[4])]
    assert socket.inet_aton(address) == socket.inet_aton(first.address)


def test_a_host_without_the_directory_is_named(net_with_sshd: Net, tmp_path: Path) -> None:
    """A tmpfs over the directory of node 2: there the job's directory is missing."""
    (net_with_sshd[1].place / "job.py").write_text("")
    net_with_sshd[2]("mount", "-t", "tmpfs", "tmpfs", net_with_sshd[1].place)
    run = net_with_sshd[1].start(
        *(sys.executable, "-m", "holdfast", "run", "--no-checks", "--ssh", f"ssh -F {tmp_path}/ssh/ssh_config"),
        *("--hosts", "node1,node2,node3", "job.py"),
    )
    assert run.wait(60) == 2, run.err
    assert f"node2: there is no job.py in {net_with_sshd[1].place} there" in run.err
    assert run.err.count("try: ") == 1
