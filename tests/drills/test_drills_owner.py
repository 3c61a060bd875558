"""The parts of holdfast itself are killed: owner, agent, guard, two of them at once, and the owner's whole node."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from drilling import TRAINER, ClusterOf, phrases
from netns import Node, kill

pytestmark = [pytest.mark.real, pytest.mark.drill]

OWNER, AGENT, GUARD = "holdfast-owner", "holdfast-agent", "holdfast-guard"


def the(node: Node, comm: str) -> int:
    [pid] = node.named(comm)
    return pid


def another(node: Node, owner: int) -> bool:
    return bool(set(node.named(OWNER)) - {owner})


def test_an_owner_that_is_killed_ten_times_ends_no_attempt(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    for times in range(1, 11):
        kill(the(job.net[1], OWNER))
        job.wait(partial(job.adopted, times), f"the agents have confirmed the attempt to owner {times + 1}")
        job.common_step(1)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["Succeeded"]
    for rank in range(3):
        assert len({e["pid"] for e in job.events("step", rank)}) == 1, "one process to the end"
        steps = [e["step"] for e in job.events("step", rank)]
        assert steps == list(range(len(steps))), "no step lost, none twice"


def test_owners_that_are_killed_before_they_have_come_up_end_no_attempt_either(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    for _ in range(3):
        owner = the(job.net[1], OWNER)
        kill(owner)
        job.wait(partial(another, job.net[1], owner), "a new owner's process")
    job.common_step(1, more=20)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["Succeeded"]


def test_an_owner_that_is_killed_while_a_gang_starts_or_drains_goes_on_with_it(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--max-restarts", "10")
    job.wait(lambda: job.net[1].named(OWNER), "an owner")
    kill(the(job.net[1], OWNER))
    job.common_step(job.attempts()[-1] if job.attempts() else 1)
    last = job.attempts()[-1]
    job.order(1, "kill")
    job.wait(lambda: job.events("ordered"), "a rank dies")
    kill(*job.net[1].named(OWNER))
    job.wait(lambda: job.attempts()[-1] > last, "a further attempt")
    job.common_step(job.attempts()[-1])
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    report = job.report()
    assert phrases(report)[-1] == "Succeeded"
    charged = [attempt["decision"]["charged"] for attempt in report["attempts"]]
    assert charged.count(True) <= 1, "the owner's deaths are not the user's to pay for"


def test_an_agent_that_is_killed_costs_one_restart_that_is_not_charged(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    placements = job.hosts(1)
    kill(the(job.net[2], AGENT))
    job.common_step(2)
    assert job.hosts(2) == placements
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    [first, _] = job.report()["attempts"]
    assert not first["decision"]["charged"]
    assert "node2" in first["report"]["reason"]


def test_the_agent_beside_the_owner_may_die_too(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    kill(the(job.net[1], AGENT), the(job.net[1], OWNER))
    job.common_step(2)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert not job.report()["attempts"][0]["decision"]["charged"]


def test_all_agents_at_once_cost_restarts_that_are_not_charged(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    kill(*[the(node, AGENT) for node in job.net])
    job.wait(lambda: job.attempts()[-1] > 1, "a further attempt")
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert not any(attempt["decision"]["charged"] for attempt in job.report()["attempts"])


def test_an_owner_that_is_killed_at_the_very_end_still_makes_the_report(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3")
    job.common_step(1)
    job.finish()
    job.wait(lambda: job.events("done"), "a rank has ended well")
    kill(*job.net[1].named(OWNER))
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert phrases(job.report()) == ["Succeeded"]


def test_an_agent_that_stands_still_leaves_no_worker_beside_the_next_attempt(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "2:3", script=[TRAINER, job.out, "0.03", "apart"])
    job.common_step(1, ranks=3)
    os.kill(the(job.net[2], AGENT), signal.SIGSTOP)
    job.common_step(2, ranks=2)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    second = min(event["at"] for event in job.events("start") if event["attempt"] == 2)
    assert max(event["at"] for event in job.events("step") if event["attempt"] == 1) < second


@pytest.mark.parametrize("who", [(GUARD,), (GUARD, AGENT)], ids="-then-".join)
def test_a_node_whose_guard_is_killed_is_lost_and_leaves_nothing_behind(
    cluster: ClusterOf, who: tuple[str, ...]
) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "2:3")
    job.common_step(1, ranks=3)
    kill(*[the(job.net[3], comm) for comm in who])
    assert job.runs[3].wait() == -9
    job.wait(lambda: not list(job.net[3].processes()), "nothing of it lives")
    job.common_step(2, ranks=2)
    job.finish()
    assert job.end(but=[3]) == {1: 0, 2: 0}
    report = job.report()
    assert phrases(report)[-1] == "Succeeded"
    assert "node3" in report["attempts"][0]["report"]["reason"]


def test_when_the_owners_node_is_lost_the_others_end_their_workers_and_say_so(cluster: ClusterOf) -> None:
    job = cluster(3)
    job.run_all("--nnodes", "3", "--owner-wait", "2")
    job.common_step(1)
    job.net[1].power_cut()
    assert job.end(but=[1]) == {2: 251, 3: 251}
    for number in (2, 3):
        report = job.report(number)
        assert (report["phrase"], report["code"]) == ("OwnerLost", 251)
        assert "node1" in report["reason"] or job.net[1].address in report["reason"]
        assert list(job.net[number].processes()) == []
