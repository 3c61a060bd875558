"""Two hosts, two runners, one that fails while starting: once, 694 process starts in 400 s. Never again.

The loop needed a status without an attempt number, read as a command by a later node. Here the news of the first
failure arrives late and twice, and finds nothing that it could stop.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.exit_report import Outcome
from holdfast.model.gang_protocol import MemberState
from holdfast.model.job_spec import JobSpec, NodeInfo, RestartPolicy, Role, Timers
from holdfast_testing.simulation import Simulation
from holdfast_testing.trouble_plan import Ending, Ill, Plan, What, When

BIND_REFUSED = Ending(
    exit_code=1,
    words='Traceback (most recent call last):\n  File "/srv/runner.py", line 195, in main\n    init_process_group()\n'
    "RuntimeError: bind: Address already in use\n",
)
CLOSED_QUEUE = Ending(exit_code=1, words="ValueError: Queue <multiprocessing.queues.Queue object> is closed\n")


def plan_of_failures(failures: int, *, seed: int = 0) -> Plan:
    """Two hosts; runner 1 fails in its first `failures` attempts while it connects; news is slow and comes twice."""
    return Plan(
        seed=seed,
        spec=JobSpec(
            name="tiny-llama",
            roles=(Role(name="runner", count=2, command=("serve",)),),
            restarts=RestartPolicy(max_restarts=3, platform_max_restarts=3),
            timers=Timers(grace_s=5.0, kill_s=5.0),
            checks=(),
        ),
        nodes=(NodeInfo(name="gremlin-1", slots=1), NodeInfo(name="gremlin-3", slots=1)),
        latency_s=0.5,
        jitter=4.0,
        duplicate=1.0,
        very_late_s=60.0,
        boot_s={0: 1.0, 1: 1.2},
        ills={(attempt, 1): Ill(When.CONNECT, What.CRASH, 0.3, BIND_REFUSED) for attempt in range(1, failures + 1)},
        # What the loop fed on: a runner that was told to stop ended with status 1, as if it had failed.
        term_ending=CLOSED_QUEUE,
        peer_detect_s=1.0,
        work_s=0.0,
        horizon_s=400.0,
    )


@pytest.mark.parametrize("seed", range(20))
def test_one_failure_costs_one_restart(seed: int) -> None:
    simulation = Simulation(plan_of_failures(1, seed=seed))
    ran = simulation.run()
    assert ran.phase is Phase.RUNNING
    assert ran.attempts == 2
    first = simulation.owner.gang.records[0].report
    assert first.first is not None
    assert (first.first.rank, first.first.node) == (1, "gremlin-3")
    assert "ddress" in first.reason


@pytest.mark.parametrize("seed", range(5))
def test_a_runner_that_never_starts_ends_the_job_with_its_own_cause(seed: int) -> None:
    simulation = Simulation(plan_of_failures(100, seed=seed))
    ran = simulation.run()
    assert ran.report is not None
    assert ran.report.outcome is Outcome.FAILED
    assert ran.attempts <= 1 + 3
    reports = [record.report for record in ran.report.attempts]
    assert {report.phrase for report in reports} == {reports[0].phrase}
    assert ran.report.report.phrase == reports[0].phrase
    assert all(report.first is not None and report.first.rank == 1 for report in reports)


def test_the_old_failure_told_again_stops_nobody() -> None:
    """Not left to chance: every failure report of the first attempt once more, in the middle of the second."""
    simulation = Simulation(replace(plan_of_failures(1), jitter=0.0, duplicate=0.0, horizon_s=60.0))
    owner, world = simulation.owner, simulation.world
    met: set[Phase] = set()

    def tell_again() -> None:
        if owner.gang.attempt < 2 or owner.gang.phase in met:
            return
        met.add(owner.gang.phase)
        old = [
            event
            for _, event in owner.journal
            if isinstance(event, ev.AgentReported)
            and any(member.state is MemberState.FAILED for member in event.report.members)
        ]
        assert old
        before, stale = owner.gang.phase, owner.gang.stale_reports
        for event in old * 2:
            owner.take(event)
        assert owner.gang.phase is before
        assert owner.gang.stale_reports == stale + 2 * len(old)

    for moment in range(600):
        world.at(moment / 10, tell_again)
    ran = simulation.run()
    assert ran.phase is Phase.RUNNING
    assert ran.attempts == 2
    assert met == {Phase.CHECKING, Phase.PREPARING, Phase.STARTING, Phase.RUNNING}
