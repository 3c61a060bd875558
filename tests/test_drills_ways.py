"""What one machine's jobs can, over nodes: warm starts, stops, limits of time; and bad networks between them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from drilling import PORT, TRAINER, Cluster, culprits, phrases
from netns import SWITCH_ADDRESS

pytestmark = [pytest.mark.real, pytest.mark.drill]

ClusterOf = Callable[..., Cluster]


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
    time.sleep(1)
    job.order(1, "kill")
    job.common_step(3, ranks=3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report())[0] == "NodeFailed"
