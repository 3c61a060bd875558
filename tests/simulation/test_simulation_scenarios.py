"""Fifteen troubles of two workers on two nodes, each with the outcome that is right.

The facts (who boots how fast, who crashes when, whether there is a spare) come from a comparison of restart policies:
planners that keyed failures by a runner's unchanging name looped, stuck, or killed healthy peers in most of them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.decide.phases import Phase
from holdfast.model.exit_report import Outcome
from holdfast.model.job_spec import JobSpec, NodeInfo, RestartPolicy, Role, Timers
from holdfast_testing.simulation import Simulation
from holdfast_testing.trouble_plan import Ending, Ill, Outage, Plan, What, When
from places import DATA

SCENARIOS: list[dict[str, Any]] = json.loads((DATA / "gang_scenarios.json").read_text())["scenarios"]
BIND = Ending(exit_code=1, words="bind: address already in use\n")
BAD = Ending(exit_code=1, words="bad device\n")
CRASH = Ending(signal=11)


def plan_of(facts: dict[str, Any]) -> Plan:
    ills: dict[tuple[int, int], Ill] = {}
    for rank, attempts in facts["crash_init"].items():
        ills |= {(index + 1, int(rank)): Ill(When.CONNECT, What.CRASH, 0.3, BIND) for index in attempts}
    for rank, attempts in facts["hang_init"].items():
        ills |= {(index + 1, int(rank)): Ill(When.CONNECT, What.HANG, 0.0) for index in attempts}
    for rank, seconds in facts["crash_run"].items():
        for attempt, after_s in enumerate(seconds, start=1):
            ills[attempt, int(rank)] = Ill(When.RUN, What.CRASH, after_s, CRASH)
    names = "ABC" if facts["spare"] else "AB"
    return Plan(
        seed=4,
        spec=JobSpec(
            name=facts["name"],
            roles=(Role(name="worker", count=2, command=("serve",)),),
            restarts=RestartPolicy(max_restarts=20, healthy_s=60.0, backoff_cap_s=30.0),
            timers=Timers(prepare_s=45.0, start_s=45.0, grace_s=5.0, kill_s=5.0, beat_s=1.0, lease_s=10.0),
            checks=(),
        ),
        nodes=tuple(NodeInfo(name=name, slots=1) for name in names),
        horizon_s=facts["horizon"],
        latency_s=facts["latency"],
        boot_s=dict(enumerate(facts["boot"])),
        connect_timeout_s=facts["connect_timeout"],
        peer_detect_s=facts["peer_detect"],
        outages=tuple(Outage(node, at) for node, at in facts["dead_node"].items()),
        unreachable=frozenset("AB") if facts["pair_cut"] else frozenset(),
        bad_nodes={facts["persistent_node"]: Ill(When.CONNECT, What.CRASH, 0.1, BAD)}
        if facts["persistent_node"]
        else {},
        ills=ills,
        work_s=0.0,
    )


@pytest.mark.parametrize("facts", SCENARIOS, ids=[facts["name"] for facts in SCENARIOS])
def test_the_outcome_is_the_right_one(facts: dict[str, Any]) -> None:
    simulation = Simulation(plan_of(facts))
    ran = simulation.run()
    records = simulation.owner.gang.records
    alike = [record for record in records if "both ranks said the same" in record.report.reason]
    assert bool(alike) is (facts["name"] == "double"), "only there do both ranks die of the same at once"
    # Of two that said the same neither is the cause of the other: the original names the first of them.
    culprits = [
        record.report.first.rank if record.report.first else 0 if record in alike else None for record in records
    ]
    assert all(culprit is not None for culprit in culprits)
    if facts["want"] == "RUNNING":
        assert ran.phase is Phase.RUNNING
        assert ran.attempts <= max(facts["starts"])
        assert culprits == [int(name.removeprefix("r")) for name in facts["culprits"]][: len(culprits)]
        return
    assert ran.report is not None
    assert ran.report.outcome is Outcome.FAILED
    assert ran.attempts <= 1 + simulation.plan.spec.restarts.max_in_a_row
    if facts["want"] == "GAVE_UP(B)":
        assert {record.report.first.node for record in records if record.report.first} == {"B"}
