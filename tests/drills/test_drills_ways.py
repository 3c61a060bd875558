"""What one machine's jobs can, over nodes: warm starts, stops, limits of time; and bad networks between them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from drilling import PORT, TRAINER, ClusterOf, culprits, phrases
from netns import SWITCH_ADDRESS

pytestmark = [pytest.mark.real, pytest.mark.drill]


UNMODIFIED = """
import os, signal
import torch, torch.distributed as dist

dist.init_process_group("gloo")
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
x = torch.ones(4)
for step in range(10):
    if step == 5 and first and dist.get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)
    x /= dist.get_world_size()
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_an_unmodified_script_of_torch_runs_on_three_nodes(cluster: ClusterOf) -> None:
    job = cluster(3)
    script = job.out / "train.py"
    script.write_text(UNMODIFIED)
    job.run_all("--nnodes", "3", script=[script], env={"TORCHELASTIC_USE_AGENT_STORE": ""})
    assert job.end(timeout_s=120) == {1: 0, 2: 0, 3: 0}
    report = job.report()
    assert phrases(report) == ["KilledBySignal", "Succeeded"]
    assert culprits(report)[0] == (2, "node3")


def test_two_jobs_on_the_same_nodes_do_not_meet(cluster: ClusterOf, tmp_path: Path) -> None:
    job = cluster(2)
    job.run_all("--nnodes", "2")
    other = tmp_path / "other"
    other.mkdir()
    where = ("--nnodes", "2", "--rdzv-endpoint", f"{job.net[1].address}:{PORT + 1}", "--name", "other")
    others = [job.holdfast(node, "run", "--no-checks", *where, TRAINER, other) for node in job.net]
    job.common_step(1)
    job.wait((other / "saved").exists, "the other job steps")
    job.order(1, "kill")
    job.common_step(2)
    (other / "finish").touch()
    assert [run.wait() for run in others] == [0, 0]
    job.finish()
    assert job.end() == {1: 0, 2: 0}


@pytest.mark.parametrize("how", [("--warm",), ("--warm", "--standby")], ids=" ".join)
def test_warm_workers_come_back_on_every_node(cluster: ClusterOf, how: tuple[str, ...]) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", *how)
    job.common_step(1)
    for attempt, rank in ((1, 2), (2, 0)):
        job.order(rank, "kill")
        job.common_step(attempt + 1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    report = job.report()
    assert phrases(report) == ["KilledBySignal", "KilledBySignal", "Succeeded"]
    assert [who and who[0] for who in culprits(report)] == [2, 0, None]


@pytest.mark.parametrize("number", [1, 3])
def test_a_sigterm_to_one_nodes_run_stops_the_job_on_every_node(cluster: ClusterOf, number: int) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--grace", "5", script=[TRAINER, job.out, "0.03", "apart"])
    job.common_step(1)
    job.runs[number].send(signal.SIGTERM)
    statuses = job.end()
    assert {e["rank"] for e in job.events("stopped")} == {0, 1, 2}, "each worker got SIGTERM"
    report = job.report()
    assert set(statuses.values()) == {report["code"]}
    assert f"node{number}" in report["reason"] and "SIGTERM" in report["reason"]


def test_a_time_limit_ends_the_job_on_every_node(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--time-limit", "5", "--grace", "5")
    statuses = job.end()
    report = job.report()
    assert set(statuses.values()) == {report["code"]} and report["code"]
    assert "time limit" in report["reason"]


@pytest.mark.parametrize("word", ["delay 0.3", "halve"])
def test_a_slow_network_ends_no_attempt(cluster: ClusterOf, word: str) -> None:
    job = cluster(3)
    job.run(1, "--nnodes", "3")
    job.run(2, "--nnodes", "3")
    proxy = job.net.proxy(PORT, job.net[1])
    proxy.tell(word)
    job.run(3, "--nnodes", "3", endpoint=f"{SWITCH_ADDRESS}:{PORT}")
    job.common_step(1)
    job.order(2, "kill")
    job.common_step(2)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    report = job.report()
    assert phrases(report) == ["KilledBySignal", "Succeeded"]
    assert culprits(report)[0] == (2, "node3")


@pytest.mark.parametrize("word", ["cut", "stall"])
def test_a_connection_that_breaks_or_stalls_for_a_while_means_nothing(cluster: ClusterOf, word: str) -> None:
    job = cluster(3)
    job.run(1, "--nnodes", "3")
    job.run(2, "--nnodes", "3")
    proxy = job.net.proxy(PORT, job.net[1])
    job.run(3, "--nnodes", "3", endpoint=f"{SWITCH_ADDRESS}:{PORT}")
    job.common_step(1)
    for _ in range(3):
        proxy.tell(word)
        time.sleep(1)
        proxy.tell("pass")
        job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["Succeeded"]


def test_a_connection_that_stalls_for_longer_than_the_lease_is_a_lost_node(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2):
        job.run(number, "--nnodes", "2:3")
    proxy = job.net.proxy(PORT, job.net[1])
    job.run(3, "--nnodes", "2:3", endpoint=f"{SWITCH_ADDRESS}:{PORT}")
    job.common_step(1, ranks=3)
    proxy.tell("stall")
    job.common_step(2, ranks=2)
    proxy.tell("cut")
    job.wait(lambda: "has joined again" in job.runs[1].err, "the node is back")
    job.order(1, "kill")
    job.common_step(3, ranks=3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report())[0] == "NodeFailed"


def test_a_person_on_any_node_sees_reads_and_stops_the_job(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--name", "asked")
    job.common_step(1)
    third = job.net[3]

    def said(*words: str) -> str:
        asking = job.holdfast(third, *words)
        asking.wait(30)
        return asking.out + asking.err

    assert "ranks 0 to 2 up" in said("show", "asked")
    assert "step" in said("logs", "asked", "--rank", "0", "--tail", "3"), "the rank that prints is on node1"
    assert "SIGTERM now" in said("stop", "asked", "--reason", "seen enough from afar")
    assert job.end() == {1: 250, 2: 250, 3: 250}
    assert "seen enough from afar" in job.report()["reason"]
