"""Bad input of a job over nodes, with real processes: one message, once, on each node that must know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Holdfast, Ran, free_port
from netns import Net, Started, missing

pytestmark = pytest.mark.real

PRINTS_NEVER = "print('never')"


class TwoRuns:
    """Two runs on one machine, which are two nodes: the first hosts the owner."""

    def __init__(self, tool: Holdfast) -> None:
        self.tool = tool
        self.endpoint = f"127.0.0.1:{free_port()}"
        self.script = tool.script(PRINTS_NEVER)

    def start(self, *words: str, script: Path | None = None) -> subprocess.Popen[str]:
        common = ("run", "--no-checks", "--rdzv-endpoint", self.endpoint)
        return self.tool.start(*common, *words, *([] if "--job" in words else [script or self.script]))

    def owner(self, *words: str) -> subprocess.Popen[str]:
        """A run whose own node has joined: others meet it."""
        process = self.start(*words)
        assert process.stderr is not None
        for line in process.stderr:
            if "has joined" in line:
                return process
        raise AssertionError(f"it has ended with {process.wait()}")

    def end(self, process: subprocess.Popen[str]) -> Ran:
        return self.tool.finish(process, 60)


@pytest.fixture
def two_runs(holdfast: Holdfast) -> TwoRuns:
    return TwoRuns(holdfast)


@pytest.mark.parametrize(
    ("first", "second", "words", "typed"),
    [
        (["--nnodes", "3"], ["--nnodes", "2"], ["--nnodes 2", "--nnodes 3"], "--nnodes 3"),
        (["--nnodes", "2:3"], ["--nnodes", "3"], ["--nnodes 3", "--nnodes 2:3"], "--nnodes 2:3"),
        (["--nnodes", "2", "--rdzv-id", "a"], ["--nnodes", "2", "--rdzv-id", "b"], ["--rdzv-id a"], "--rdzv-id"),
        (["--nnodes", "2"], ["--nnodes", "2", "--name", "other"], ["other (job.py)", "job (job.py)"], "--rdzv-id"),
        (
            ["--nnodes", "2", "--node-rank", "1"],
            ["--nnodes", "2", "--node-rank", "1"],
            ["--node-rank 1 is taken by node"],
            "--node-rank",
        ),
    ],
)
def test_what_differs_between_nodes_ends_the_newcomer_and_never_the_owner(
    two_runs: TwoRuns, first: list[str], second: list[str], words: list[str], typed: str
) -> None:
    owner = two_runs.owner(*first)
    ran = two_runs.end(two_runs.start(*second))
    assert owner.poll() is None, "the owner goes on"
    assert ran.status == 2, ran.err
    assert [word for word in words if word not in ran.err] == []
    assert (ran.err.count("try: "), typed in ran.err.partition("try: ")[2]) == (1, True)
    assert "Traceback" not in ran.err
    owner.terminate()
    assert two_runs.end(owner).status == 250


def test_a_node_with_fewer_devices_than_its_workers_need_is_refused(two_runs: TwoRuns) -> None:
    job = two_runs.tool.dir / "job.yaml"
    job.write_text("name: j\nroles: {worker: {count: 2, command: [python, -c, pass], resources: {devices: 2}}}\n")
    ran = two_runs.end(two_runs.start("--nnodes", "2", "--join-timeout", "6", "--job", str(job)))
    assert ran.status == 252, ran.err
    assert "this node has 0 devices, and its worker needs 2" in ran.err


@pytest.mark.parametrize("words", [["--rdzv-conf", "is_host=0,join_timeout=1"]])
def test_an_endpoint_where_no_owner_answers_in_time_is_told(two_runs: TwoRuns, words: list[str]) -> None:
    ran = two_runs.end(two_runs.start("--nnodes", "2", *words))
    assert ran.status == 251
    assert f"no owner of this job has answered at {two_runs.endpoint} within 1 s" in ran.err
    assert ran.err.count("GangStartTimeout (exit code") == 1


def test_a_port_that_something_else_holds_is_told(two_runs: TwoRuns) -> None:
    """It dials whoever holds the port, which speaks something else."""
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); c = s.accept()[0]; "
    code += "print(c.recv(9), flush=True); c.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n'); c.recv(99)"
    port = two_runs.endpoint.rpartition(":")[2]
    with subprocess.Popen([sys.executable, "-c", code, port]) as other:
        ran = two_runs.end(two_runs.start("--nnodes", "2", "--join-timeout", "4"))
        other.kill()
    assert ran.status in (2, 251)
    assert two_runs.endpoint in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nnodes", "3"], "--nnodes 3: there is neither --rdzv-endpoint HOST:PORT nor --master-addr HOST"),
        (["--nnodes", "2", "--rdzv-endpoint", "nowhere.invalid:7"], "the host name nowhere.invalid cannot be resolved"),
        (["--nnodes", "2", "--rdzv-endpoint", "a:7", "--rdzv-backend", "etcd"], "--rdzv-backend etcd: expected one of"),
        (["--nnodes", "2", "--master-addr", "127.0.0.1", "--node-rank", "5"], "--node-rank 5 with --nnodes 2"),
        (["--nnodes", "2", "--rdzv-endpoint", "localhost:7", "--job-key", "/nowhere"], "there is no key file /nowhere"),
    ],
)
def test_what_one_node_can_see_by_itself_is_told_before_anything_starts(
    holdfast: Holdfast, words: list[str], message: str
) -> None:
    ran = holdfast.run(*words, holdfast.script(PRINTS_NEVER))
    assert ran.status == 2
    assert message in ran.err
    assert ran.err.count("holdfast: ") == 1
    assert not (holdfast.home / "jobs").exists()


# ---------------------------------------------------------------------------------------------- two machines


def test_a_job_file_that_can_be_read_once_is_refused(two_runs: TwoRuns) -> None:
    """The second reader of a pipe would find it empty."""
    os.mkfifo(fifo := two_runs.tool.dir / "job.fifo")
    refused = two_runs.end(two_runs.start("--nnodes", "2", "--job", str(fifo)))
    assert refused.status == 2
    assert refused.err.count("holdfast:") == 1
    assert "a named pipe" in refused.err and "expected a file" in refused.err


def test_one_machine_and_a_list_of_hosts_exclude_each_other(holdfast: Holdfast) -> None:
    refused = holdfast("run", "--standalone", "--hosts", "a,b", holdfast.script(PRINTS_NEVER))
    assert refused.status == 2
    assert "--standalone means one machine" in refused.err and "--hosts" in refused.err


@pytest.fixture
def net_of_two(tmp_path: Path) -> Iterator[Net]:
    if why := missing():
        pytest.skip(why)
    with Net(tmp_path, 2) as net:
        for node in net:
            node.home.mkdir(mode=0o700)
            (node.home / "key").write_bytes(b"k" * 32)
            (node.home / "key").chmod(0o600)
            (node.place / "job.py").write_text(PRINTS_NEVER)
        yield net


def start_on(net: Net, number: int, *words: str) -> Started:
    return net[number].start(sys.executable, "-m", "holdfast", "run", "--no-checks", "--nnodes", "2", *words, "job.py")


def wait_until_joined(started: Started) -> None:
    """Its owner is up."""
    deadline = time.monotonic() + 40
    while "has joined" not in started.err:
        assert started.outside.poll() is None and time.monotonic() < deadline, started.err
        time.sleep(0.02)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize(
    "claim",
    [["--rdzv-conf", "is_host=1", "--rdzv-endpoint"], ["--node-rank", "0", "--master-addr"]],
    ids=["is_host", "master_addr"],
)
def test_two_machines_that_are_both_to_host_the_owner_are_told_on_both(
    net_of_two: Net, first: int, claim: list[str]
) -> None:
    """Node 1 has the endpoint's address."""
    words = [*claim, net_of_two[1].address]
    runs = {}
    for number in (first, 3 - first):
        runs[number] = start_on(net_of_two, number, *words)
        wait_until_joined(runs[number]) if number == first else None
    assert runs[2].wait(40) == 2, runs[2].err
    assert "two nodes are to host the owner: node2 (" in runs[2].err
    assert "Traceback" not in runs[2].err
    assert runs[1].outside.poll() is None, "the owner at the endpoint goes on"
    runs[1].send(signal.SIGTERM)
    assert runs[1].wait(40) == 250
    assert "two nodes are to host the owner: node2 (" in runs[1].err


def test_a_rank_0_behind_another_address_reaches_itself_and_is_not_its_own_rival(net_of_two: Net) -> None:
    """The endpoint is an address that only the network leads to node 1, as a Service's is."""
    net_of_two[1]("ip", "addr", "add", "10.77.9.9/32", "dev", "lo")
    net_of_two[2]("ip", "route", "add", "10.77.9.9/32", "via", net_of_two[1].address)
    owner = start_on(net_of_two, 1, "--rdzv-endpoint", "10.77.9.9:29500", "--node-rank", "0", "--join-timeout", "30")
    other = start_on(net_of_two, 2, "--rdzv-endpoint", "10.77.9.9:29500", "--node-rank", "1")
    assert (owner.wait(60), other.wait(60)) == (0, 0), owner.err + other.err
