"""How a gang over nodes comes together, whom it does not let in, and what reaches its port meanwhile."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drilling import PORT, TRAINER, ClusterOf, culprits, phrases
from netns import dial
from places import ROOT

pytestmark = [pytest.mark.real, pytest.mark.drill]

OTHER_VERSION = """
import sys
import holdfast.wire.node_messages as messages
messages.PROTOCOL += 1
from holdfast.cli import main
main(sys.argv[1:])
"""


def test_every_rank_knows_its_place_and_every_node_has_the_report(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--nproc-per-node", "2")
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    places = [
        (e["rank"], e["host"], e["ranks"], e["LOCAL_RANK"], e["GROUP_RANK"], e["GROUP_WORLD_SIZE"], e["MASTER_ADDR"])
        for e in sorted(job.events("start"), key=lambda e: int(e["rank"]))
    ]
    assert places == [
        (rank, f"node{rank // 2 + 1}", 6, str(rank % 2), str(rank // 2), "3", job.net[1].address) for rank in range(6)
    ]
    reports = [job.report(number) for number in (1, 2, 3)]
    assert reports[0] == reports[1] == reports[2]


def test_nodes_that_come_late_and_the_owner_last_of_all(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (3, 2, 1):
        job.run(number, "--nnodes", "3", endpoint=f"node1:{PORT}")
        time.sleep(1)
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}


def test_one_host_name_everywhere(cluster: ClusterOf) -> None:
    job = cluster(3, hosts=["box", "box", "box"])
    job.run_all("--nnodes", "3")
    job.common_step(1)
    job.order(1, "kill")
    job.common_step(2)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["KilledBySignal", "Succeeded"]
    [culprit, _] = culprits(job.report())
    assert culprit is not None
    rank, node = culprit
    [joined, *_] = re.findall(rf"{re.escape(node)} \((\S+)\) has joined", job.runs[1].err)
    assert rank == 1 and joined in {node.address for node in job.net}
    assert len(set(re.findall(r"(\S+) \(\S+\) has joined", job.runs[1].err))) == 3, "three names"


def test_the_peers_address_may_be_ipv6(cluster: ClusterOf) -> None:
    job = cluster(2)
    for number in (1, 2):
        job.run(number, "--nnodes", "2", endpoint=f"[{job.net[1].address_6}]:{PORT}")
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0}
    assert {e["MASTER_ADDR"] for e in job.events("start")} == {job.net[1].address_6}


@pytest.mark.parametrize("what", ["wrong key", "no key", "other job", "other version", "other nnodes"])
def test_who_is_no_part_of_the_job_is_refused_and_the_job_goes_on(cluster: ClusterOf, what: str) -> None:
    job = cluster(3)
    stranger = job.net[3]
    options: list[str] = []
    match what:
        case "wrong key":
            job.give_key(stranger, 8)
        case "no key":
            (stranger.home / "key").unlink()
        case "other job":
            options = ["--rdzv-id", "another"]
    for number in (1, 2):
        job.run(number, "--nnodes", "2")
    job.common_step(1)
    if what == "other version":
        refused = stranger.start(
            *(sys.executable, "-c", OTHER_VERSION, "run", "--no-checks", "--nnodes", "2"),
            *("--rdzv-endpoint", job.endpoint, Path(__file__).parent.parent / "drill_trainer.py", job.out),
        )
    else:
        refused = job.run(3, "--nnodes", "3" if what == "other nnodes" else "2", *options)
    status = refused.wait()
    assert status not in (0, 1), refused.err
    words = {
        "wrong key": "key",
        "no key": "key",
        "other job": "another",
        "other version": "protocol",
        "other nnodes": "--nnodes",
    }
    assert words[what] in refused.err and "Traceback" not in refused.err, refused.err
    job.common_step(1)
    job.finish()
    assert job.end(but=[3]) == {1: 0, 2: 0}
    assert phrases(job.report()) == ["Succeeded"]


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that another user reaches."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-drill-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_another_user_is_refused(open_to_all: Path, cluster: ClusterOf) -> None:
    job = cluster(2)
    stranger, user = job.net[2], 4242
    stranger.place = open_to_all / "node2"
    stranger.place.mkdir()
    key = job.give_key(stranger)
    for path in (key, stranger.home, stranger.place):
        shutil.chown(path, user, user)
    # This Python may lie in a home that is closed to others; the system's own can run the same modules.
    modules = [str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))]
    stranger.env["PYTHONPATH"] = os.pathsep.join(modules)
    pythons = [sys.executable, "/usr/bin/python3"]
    imports = "import holdfast.node.agent.agent_process"
    quiet = ("sh", "-c", 'exec "$0" "$@" 2>/dev/null')
    usable = [each for each in pythons if not stranger.start(*quiet, each, "-c", imports, user=user).wait()]
    if not usable:
        pytest.skip("no Python that another user may run has what holdfast needs")
    script = Path(shutil.copy(TRAINER, open_to_all))
    job.run(1, "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=1", script=[script, job.out])
    job.common_step(1)
    job.python = usable[0]
    refused = job.run(2, "--nnodes", "1:2", script=[script, job.out], user=user)
    assert refused.wait() not in (0, 1), refused.err
    assert "user" in refused.err and "Traceback" not in refused.err, refused.err
    job.finish()
    assert job.end(but=[2]) == {1: 0}


def test_a_thousand_connections_that_say_nothing_keep_no_node_out(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run(1, "--nnodes", "3")
    silent = [dial(job.net[2], (job.net[1].address, PORT))]
    silent += [dial(job.net[2], (job.net[1].address, PORT)) for _ in range(1000)]
    try:
        for number in (2, 3):
            job.run(number, "--nnodes", "3")
        job.common_step(1)
        job.finish()
        assert job.end() == {1: 0, 2: 0, 3: 0}
    finally:
        for peer in silent:
            peer.close()


def test_bytes_of_any_kind_on_the_port_disturb_no_one(cluster: ClusterOf) -> None:
    dice = random.Random(20261122)
    job = cluster(2)
    for number in (1, 2):
        job.run(number, "--nnodes", "2")
    job.common_step(1)
    tls = bytes([22, 3, 1])
    for turn in range(200):
        with dial(job.net[2], (job.net[1].address, PORT)) as peer:
            body = dice.randbytes(dice.choice([1, 3, 5, 100, 5000, 200_000]))
            length = dice.choice([min(len(body), 65535), 0, 65535, 512])
            begin = [b"", tls + length.to_bytes(2, "big"), length.to_bytes(4, "big"), b"GET / HTTP/1.1\r\n"][turn % 4]
            try:
                peer.sendall(begin + body)
                if turn % 2:
                    peer.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # it has closed the connection already, as it may
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0}
    assert phrases(job.report()) == ["Succeeded"]
    assert "Traceback" not in job.runs[1].err


def test_a_gang_that_does_not_come_up_says_who_came_and_how_many_are_missing(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2):
        job.run(number, "--nnodes", "10", "--join-timeout", "15")
    statuses = job.end()
    report = job.report()
    assert report["phrase"] == "GangStartTimeout" and set(statuses.values()) == {report["code"]}
    assert "node1" in report["reason"] and "node2" in report["reason"] and "1" in report["reason"]


def test_an_endpoint_where_no_owner_answers_ends_each_run(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2):
        job.run(number, "--nnodes", "2", "--join-timeout", "2", endpoint=f"{job.net[3].address}:{PORT}")
    assert job.end() == {1: 251, 2: 251}
    for run in job.runs.values():
        assert f"{job.net[3].address}:{PORT}" in run.err and "Traceback" not in run.err


def test_two_machines_that_both_host_are_told_so(cluster: ClusterOf) -> None:
    job = cluster(2)
    for number in (1, 2):
        job.run(number, "--nnodes", "2", "--rdzv-conf", "is_host=1", "--join-timeout", "5")
    statuses = job.end()
    assert 2 in statuses.values()
    assert any("is_host" in run.err for run in job.runs.values())


def test_the_checks_run_on_every_node_before_the_gang_begins(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2, 3):
        job.run(number, "--nnodes", "3", checks=True)
    job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    [finished, *_] = [event for _, event in job.journal() if event["type"] == "checks_finished"]
    assert finished["state"] == "PASS"
