"""Nodes that lose their power or their link, and come back: who goes on, with which ranks, and what the report says."""

from __future__ import annotations

import time

import pytest

from drilling import ClusterOf, culprits, phrases

pytestmark = [pytest.mark.real, pytest.mark.drill]

#: How long further nodes are waited for, in seconds: the drills have all that they want at once.
SOON = ("--rdzv-conf", "last_call_timeout=8")


BACK = "node3 (10.77.0.3) has joined again"


def test_a_spare_takes_the_seat_of_a_node_that_lost_its_power(cluster: ClusterOf) -> None:
    job = cluster(4)
    job.run_all("--nnodes", "3", "--spares", "1", *SOON)
    job.common_step(1)
    before = job.hosts(1)
    lost = job.net[2]
    job.wait(lambda: lost.host in before.values(), "node2 has a rank")
    lost.power_cut()
    job.common_step(2)
    after = job.hosts(2)
    [spare] = {node.host for node in job.net} - set(before.values())
    assert after == {rank: spare if host == lost.host else host for rank, host in before.items()}
    job.finish()
    assert set(job.end(but=[lost.number]).values()) == {0}
    report = job.report()
    assert phrases(report) == ["NodeFailed", "Succeeded"]
    assert lost.host in report["attempts"][0]["report"]["reason"]
    assert not report["attempts"][0]["decision"]["charged"]


def test_without_a_spare_the_gang_goes_on_smaller_and_grows_again_at_its_next_restart(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "2:3", *SOON)
    job.common_step(1, ranks=3)
    job.net[3].power_cut()
    job.common_step(2, ranks=2)
    job.net[3].boot()
    job.run(3, "--nnodes", "2:3", *SOON)
    job.wait(lambda: BACK in job.runs[1].err, "the node is back")
    assert job.attempts() == [1, 2], "a newcomer disturbs nobody"
    job.order(1, "kill")
    job.common_step(3, ranks=3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    report = job.report()
    assert phrases(report) == ["NodeFailed", "KilledBySignal", "Succeeded"]
    assert [attempt["decision"]["charged"] for attempt in report["attempts"][:2]] == [False, True]


def test_with_grow_a_newcomer_takes_part_at_once(cluster: ClusterOf) -> None:
    job = cluster(3)
    for number in (1, 2):
        job.run(number, "--nnodes", "2:3", "--grow", *SOON)
    job.common_step(1, ranks=2)
    job.run(3, "--nnodes", "2:3", "--grow", *SOON)
    job.common_step(2, ranks=3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert not job.report()["attempts"][0]["decision"]["charged"]


def test_with_neither_the_job_ends_and_names_the_node(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--replace-wait", "1")
    job.common_step(1)
    job.net[2].power_cut()
    statuses = job.end(but=[2])
    report = job.report()
    assert report["phrase"] == "NodeFailed" and "node2" in report["reason"]
    assert set(statuses.values()) == {report["code"]}
    decided = report["attempts"][-1]["decision"]
    assert decided["kind"] == "fail" and "(node1, node3; gone: node2), and no other came" in decided["reason"], decided
    assert report["blame"] == "network", "nothing says more than that it is silent"
    assert job.report(3)["phrase"] == "NodeFailed"


def test_a_link_that_is_down_for_two_seconds_changes_nothing(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    job.net[3].link_down()
    time.sleep(2)
    job.net[3].link_up()
    job.common_step(1, more=5)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["Succeeded"]


def test_a_node_whose_link_was_down_longer_than_its_lease_is_a_newcomer(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "2:3", *SOON)
    job.common_step(1, ranks=3)
    away = job.net[3]
    away.link_down()
    job.common_step(2, ranks=2)
    job.wait(lambda: all(p.name().startswith("holdfast") for p in away.processes()), "its workers are gone")
    away.link_up()
    job.wait(lambda: BACK in job.runs[1].err, "the node is back")
    job.order(1, "kill")
    job.common_step(3, ranks=3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["NodeFailed", "KilledBySignal", "Succeeded"]


def test_a_second_loss_within_a_moment_is_one_failure(cluster: ClusterOf) -> None:
    job = cluster(4)
    job.run_all("--nnodes", "2:4", *SOON)
    job.common_step(1, ranks=4)
    job.net[2].power_cut()
    job.net[4].power_cut()
    job.common_step(2, ranks=2)
    job.finish()
    assert job.end(but=[2, 4]) == {1: 0, 3: 0}
    report = job.report()
    assert phrases(report) == ["NodeFailed", "Succeeded"]
    decided = report["attempts"][0]["decision"]["reason"]
    assert "node2" in decided and "node4" in decided, decided
    assert culprits(report)[1] is None


def test_where_all_other_nodes_fall_silent_at_once_the_owners_own_link_is_named(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    job.net[1].link_down()
    time.sleep(9)
    job.net[1].link_up()
    job.common_step(2)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    [first, _] = job.report()["attempts"]
    assert first["report"]["phrase"] == "NetworkLost" and "the link of node1" in first["report"]["reason"]
    assert first["report"]["first"] is None and not first["decision"]["charged"]
