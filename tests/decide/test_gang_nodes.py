"""A gang over nodes that join, leave, are lost and come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from gang_play import TIMERS, Play, spec
from holdfast.decide.attempt_timers import timers_for
from holdfast.decide.liveness import Liveness
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.actions import RunChecks, Say, Send
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure
from holdfast.model.exit_report import EvidenceKind, Rerun
from holdfast.model.faults import Assertion, DeviceStanding, FaultEvent, Remedy, Standing
from holdfast.model.gang_protocol import Meeting, Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan, RestartPolicy, Role, Timers

TWO_OR_THREE = NodePlan(least=2, most=3, last_call_s=30.0, join_s=600.0, replace_s=30.0)


def node_job(plan: NodePlan = TWO_OR_THREE, slots: int = 1, **changes: Any) -> JobSpec:
    role = Role(name="worker", count=slots, command=("x",), per_node=True)
    return spec(roles=(role,), nodes=plan, **changes)


class NodesPlay(Play):
    """A play whose nodes join one by one."""

    def start(self, plan: NodePlan = TWO_OR_THREE, *joined: str, **changes: Any) -> None:
        self.tell(ev.JobSubmitted(job_id="j", spec=node_job(plan, **changes), nodes=(), seed=7))
        self.join(*joined)

    def join(self, *names: str, boot: int = 1, slots: int = 1, **more: Any) -> None:
        for name in names:
            node = NodeInfo(name=name, slots=slots, address=f"10.0.0.{len(self.gang.nodes)}", **more)
            self.tell(ev.NodeJoined(node=node, boot=boot))

    def run(self, plan: NodePlan, *names: str, **changes: Any) -> None:
        """Running on these."""
        self.start(plan, *names, **changes)
        if self.at(Phase.ASSEMBLING):
            self.wait(plan.last_call_s)
        self.to(Phase.RUNNING)

    def lose(self, *names: str) -> None:
        """Silent, and then surely without a process."""
        for name in names:
            self.tell(ev.NodeSilent(node=name, boot=1, silent_s=6.0))
        for name in names:
            self.tell(ev.NodeFenced(node=name, boot=1))

    def drained(self, *lost: str) -> None:
        for name in self.gang.attempt_state.roster.nodes:
            if name not in lost:
                self.report(name, stopped=self.gang.attempt)
        if not self.gang.attempt_state.collecting:
            self.wait(1.5)
        self.collect()
        self.wait(0.0)

    @property
    def line(self) -> list[str]:
        """The node of each rank."""
        return [placement.node for placement in self.gang.attempt_state.roster.placements]

    def again(self) -> None:
        """A worker dies, and the next attempt is due."""
        self.crash(0)
        self.drained()
        self.wait(max(0.0, self.gang.due - self.now))

    @property
    def said(self) -> list[str]:
        return [action.text for _, _, out in self.history for action in out if isinstance(action, Say)]

    @property
    def asked(self) -> RunChecks:
        return [action for _, _, out in self.history for action in out if isinstance(action, RunChecks)][-1]

    @property
    def prepares(self) -> dict[str, Prepare]:
        return {a.node: a.command for a in self.out if isinstance(a, Send) and isinstance(a.command, Prepare)}


def _word(node: str, now: float) -> Report:
    return Report(node=node, boot=1, attempt=0, stopped=0, sent=now)


@pytest.fixture
def play() -> Iterator[NodesPlay]:
    played = NodesPlay()
    yield played
    played.verify()


# ---------------------------------------------------------------------------------------------- enough nodes


def test_a_gang_begins_when_all_have_joined(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a", "b")
    assert play.at(Phase.ASSEMBLING)
    play.join("c")
    assert play.at(Phase.CHECKING)
    assert play.asked.nodes == ("a", "b", "c")
    assert play.asked.meet_on == "a"


def test_with_the_least_it_begins_when_no_more_came_for_the_last_call(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a")
    play.wait(100.0)
    play.join("b")
    assert play.gang.view().waits_for == (
        "further nodes, up to 3 nodes; it begins without them when none comes for 30 s (a, b)"
    )
    play.wait(29.0)
    assert play.at(Phase.ASSEMBLING)
    play.wait(1.0)
    assert play.at(Phase.CHECKING)
    play.to(Phase.PREPARING)
    assert play.line == ["a", "b"]


def test_each_node_that_comes_gives_the_next_one_a_whole_last_call(play: NodesPlay) -> None:
    play.start(NodePlan(least=1, most=4), "a")
    play.wait(29.0)
    play.join("b")
    play.wait(29.0)
    assert play.at(Phase.ASSEMBLING)
    play.join("c")
    play.wait(30.0)
    assert play.asked.nodes == ("a", "b", "c")


def test_spares_are_waited_for_during_the_last_call_and_have_their_checks(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, spares=1), "a", "b")
    assert play.at(Phase.ASSEMBLING)
    play.join("c")
    assert play.asked.nodes == ("a", "b", "c")
    play.to(Phase.RUNNING)
    assert play.line == ["a", "b"]


def test_a_node_that_leaves_again_does_not_count(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a", "b")
    play.tell(ev.NodeLeft(node="b", boot=1, reason="its user ended it", fenced=True))
    play.wait(60.0)
    assert play.at(Phase.ASSEMBLING)
    assert play.gang.view().waits_for == "1 more node (here: a)"
    play.join("b", "c")
    assert play.at(Phase.CHECKING)


def test_without_the_least_the_start_has_failed(play: NodesPlay) -> None:
    play.start(NodePlan(least=3, most=3, join_s=600.0, endpoint="node1:29500"))
    play.join("gpu-1", node_rank=0)
    play.join("gpu-3", node_rank=2)
    play.wait(600.0)
    assert play.at(Phase.DONE)
    assert play.final is not None
    report = play.final.report
    assert (report.phrase, report.code) == ("GangStartTimeout", 251)
    assert report.reason == (
        "2 of 3 nodes joined within 10 min: gpu-1 (10.0.0.0), gpu-3 (10.0.0.1); no node came with --node-rank 1"
    )
    assert "</dev/tcp/node1/29500" in (report.solution or "")


def test_what_the_platform_says_while_nodes_are_awaited_stands_in_the_report(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, join_s=600.0))
    words = "it has no node (Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.)"
    said = ev.PlatformSaid(attempt=0, subject="pod train-1", words=words, command="kubectl describe pod train-1")
    for each in (said, said, structs.replace(said, attempt=1)):
        play.tell(each)
    play.join("a")
    play.wait(600.0)
    assert play.final is not None
    (found,) = [item for item in play.final.report.evidence if item.kind is EvidenceKind.PLATFORM]
    assert (found.text, found.source) == (f"pod train-1: {words}", "kubectl describe pod train-1")


def test_a_stop_while_nodes_are_awaited_ends_the_job(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a")
    play.stop(reason="the reviewer asked")
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert "the reviewer asked" in play.final.report.reason


def test_an_owner_that_comes_back_still_knows_who_has_joined(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a", "b")
    play.tell(ev.OwnerRecovered())
    assert play.at(Phase.ASSEMBLING)
    play.join("c")
    assert play.asked.nodes == ("a", "b", "c")


# ---------------------------------------------------------------------------------------------- who sits where


def test_the_size_of_the_gang_follows_from_the_nodes(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2))
    play.join("a", slots=3)
    play.join("b", slots=1)
    play.check(meeting=Meeting(address="10.0.0.1", port=4711))
    assert play.line == ["a", "a", "a", "b"]
    shape = play.prepares["b"].shape
    assert (shape.world_size, shape.nodes, shape.index, shape.local, shape.roles) == (4, 2, 1, 1, {"worker": 4})
    assert play.prepares["b"].meeting == Meeting(address="10.0.0.1", port=4711)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"name": "n10"}, {"name": "n9"}, {"name": "n1"}], ["n1", "n9", "n10"]),
        (
            [{"name": "a", "node_rank": 2}, {"name": "b", "node_rank": 0}, {"name": "c", "node_rank": 1}],
            ["b", "c", "a"],
        ),
        (
            [{"name": "a", "labels": ("s2",)}, {"name": "b", "labels": ("s1",)}, {"name": "c", "labels": ("s10",)}],
            ["b", "a", "c"],
        ),
    ],
)
def test_ranks_go_by_what_was_typed_else_by_neighbourhood_else_by_name(
    play: NodesPlay, nodes: list[dict[str, Any]], expected: list[str]
) -> None:
    play.start(NodePlan(least=3, most=3))
    for node in nodes:
        play.join(node.pop("name"), **node)
    play.to(Phase.PREPARING)
    assert play.line == expected


def test_a_spare_takes_the_very_seat_of_a_lost_node(play: NodesPlay) -> None:
    play.run(NodePlan(least=3, most=3, spares=1), "a", "b", "c", "d")
    play.lose("b")
    play.drained("b")
    (record,) = play.records
    assert record.report.phrase == "NodeFailed"
    assert (record.decision.kind, record.decision.charged, record.decision.avoid) == (DecisionKind.RESTART, False, ())
    play.to(Phase.PREPARING)
    assert play.line == ["a", "d", "c"]
    assert {name: p.shape.index for name, p in play.prepares.items()} == {"a": 0, "d": 1, "c": 2}


def test_a_spare_with_as_many_slots_comes_first(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, spares=2))
    play.join("a", "b", slots=2)
    play.join("c", slots=1)
    play.join("d", slots=2)
    play.to(Phase.RUNNING)
    assert play.line == ["a", "a", "b", "b"]
    play.lose("a")
    play.drained("a")
    play.to(Phase.PREPARING)
    assert play.line == ["d", "d", "b", "b"]


def test_without_a_spare_the_gang_goes_on_smaller_and_at_once(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "a", "b", "c")
    play.lose("b")
    play.drained("b")
    assert play.at(Phase.CHECKING)
    assert not play.records[0].decision.charged
    play.to(Phase.PREPARING)
    assert play.line == ["a", "c"]
    assert play.prepares["c"].shape.world_size == 2


def test_a_newcomer_takes_part_from_the_next_restart_on_and_rank_0_stays(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "b", "c")
    play.join("a")
    assert play.at(Phase.RUNNING)
    play.crash(1)
    play.drained()
    play.to(Phase.PREPARING)
    assert play.line == ["b", "a", "c"]


def test_below_the_least_a_newcomer_is_waited_for(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2), "a", "b")
    play.lose("b")
    play.drained("b")
    assert play.at(Phase.ASSEMBLING)
    assert play.gang.view().waits_for == "1 more node (here: a)"
    play.wait(20.0)
    play.join("c")
    assert play.at(Phase.CHECKING)
    play.to(Phase.PREPARING)
    assert play.line == ["a", "c"]


def test_and_when_none_comes_the_job_ends_with_what_took_the_node(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2), "a", "b")
    play.lose("b")
    play.drained("b")
    play.wait(30.0)
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert play.final.report.phrase == "NodeFailed"
    assert "b" in play.final.report.reason
    assert _end(play) == ("fail", "1 of at least 2 nodes is here (a; gone: b), and no other came within 30 s")
    assert [record.decision.kind for record in play.records] == [DecisionKind.RESTART], "as it was decided then"


def _end(play: NodesPlay) -> tuple[str, str]:
    """The last decision of the job's report."""
    assert play.final is not None
    last = play.final.attempts[-1].decision
    assert (last.charged, last.delay_s) == (False, 0.0)
    assert play.gang.records[-1].decision == last, "a replay of the journal shows the same"
    return last.kind.value, last.reason


def test_nodes_that_are_lost_one_after_another_are_named_at_the_end(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=3, last_call_s=1.0), "a", "b", "c")
    play.lose("b")
    play.drained("b")
    play.to(Phase.RUNNING)
    play.lose("c")
    play.drained("c")
    play.wait(60.0)
    assert _end(play) == ("fail", "1 of at least 2 nodes is here (a; gone: b, c), and no other came within 30 s")


def test_a_spare_that_is_lost_too_is_named_at_the_end(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, spares=1, replace_s=5.0), "a", "b", "c")
    play.tell(ev.NodeSilent(node="c", boot=1, silent_s=6.0))
    play.lose("b")
    play.drained("b")
    play.wait(5.0)
    assert _end(play) == ("fail", "1 of at least 2 nodes is here (a; gone: b, c), and no other came within 5 s")


def test_a_node_that_a_fault_takes_out_is_named_at_the_end(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, replace_s=5.0, replaced=True), "a", "b")
    fault = FaultEvent(device="b", code="79", assertion=Assertion.ONCE, at=play.now, node="b")
    play.tell(ev.FaultSeen(fault=fault, remedy=Remedy.HOLD, stop=True, avoid=("b",), why="gpu0 fell off the bus"))
    play.drained()
    play.wait(6.0)
    assert _end(play) == ("fail", "1 of at least 2 nodes is here (a; left out: b), and no other came within 5 s")


def test_a_stop_while_nodes_are_waited_for_is_the_last_decision(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2), "a", "b")
    play.lose("b")
    play.drained("b")
    play.stop(reason="I have seen enough")
    assert _end(play) == ("stop", "I have seen enough")


def test_an_owner_that_was_away_while_nodes_were_waited_for_ends_the_job_in_the_same_way(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2), "a", "b", timers=structs.replace(TIMERS, beat_s=1.0, lease_s=6.0))
    play.lose("b")
    play.drained("b")
    assert play.at(Phase.ASSEMBLING)
    play.tell(ev.OwnerRecovered())
    play.wait(45.0)
    assert _end(play)[0] == "fail"
    assert "(a; gone: b), and no other came within 30 s" in _end(play)[1]


# ---------------------------------------------------------------------------------------------- lost, back, left


def test_a_node_is_avoided_only_after_a_second_loss(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, spares=1), "a", "b", "c")
    play.lose("b")
    play.drained("b")
    play.join("b")
    play.to(Phase.RUNNING)
    assert play.line == ["a", "c"]
    play.lose("c")
    play.drained("c")
    play.wait(1.0)
    play.to(Phase.RUNNING)
    assert play.line == ["a", "b"]
    play.join("c")
    play.lose("b")
    play.drained("b")
    assert [record.decision.avoid for record in play.records] == [(), (), ("b",)]
    assert not any(record.decision.charged for record in play.records)


def test_a_lost_node_that_speaks_again_is_a_spare(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, spares=1), "a", "b", "c")
    play.tell(ev.NodeSilent(node="c", boot=1, silent_s=6.0))
    assert play.at(Phase.RUNNING)
    assert "c" not in play.gang.here()
    play.tell(ev.AgentReported(report=_word("c", play.now)))
    assert "c" in play.gang.here()


def test_a_node_that_has_left_comes_back_only_with_a_new_hello(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "a", "b", "c")
    play.tell(ev.NodeLeft(node="c", boot=1, reason="its user ended it", fenced=True))
    play.tell(ev.AgentReported(report=_word("c", play.now)))
    assert play.gang.here() == ("a", "b")
    play.drained("c")
    play.to(Phase.PREPARING)
    assert play.line == ["a", "b"]


def test_a_node_that_left_and_is_fenced_is_not_waited_for(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "a", "b", "c")
    play.tell(ev.NodeLeft(node="c", boot=1, reason="its user ended it", fenced=True))
    assert play.at(Phase.DRAINING)
    play.drained("c")
    (record,) = play.records
    assert "its user ended it" in record.report.reason
    assert not record.decision.charged


def test_workers_of_a_node_that_is_fenced_hold_no_attempt_up(play: NodesPlay) -> None:
    """The agent's last word was that they live, and no agent is left there to say more."""
    play.run(TWO_OR_THREE, "a", "b", "c")
    play.tell(ev.NodeLeft(node="c", boot=1, reason="its platform has ended it", fenced=True))
    play.drained("c")
    play.to(Phase.PREPARING)
    assert play.gang.attempt_state.sent


def test_an_agent_that_started_anew_keeps_its_seat_and_costs_nothing(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, spares=1), "a", "b", "c")
    play.join("b", boot=2)
    assert play.at(Phase.DRAINING)
    play.report("a", stopped=1)
    play.collect()
    play.wait(0.0)
    (record,) = play.records
    assert (record.report.phrase, record.report.blame) == ("NodeFailed", "platform")
    assert not record.decision.charged
    play.to(Phase.PREPARING)
    assert play.line == ["a", "b"]


# ---------------------------------------------------------------------------------------------- while checks run


def test_a_node_lost_while_checks_run_is_left_out_of_the_next_round(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a", "b", "c")
    play.tell(ev.NodeSilent(node="a", boot=1, silent_s=6.0))
    assert play.at(Phase.CHECKING)
    assert (play.asked.round, play.asked.nodes, play.asked.meet_on) == (2, ("b", "c"), "b")
    play.to(Phase.PREPARING)
    assert play.line == ["b", "c"]


def test_too_few_after_the_checks_wait_for_another_with_the_same_number(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2), "a", "b")
    play.check(CheckState.FAIL, avoid=("b",), failure=CheckFailure(check="gpu", message="b is hot"))
    assert play.at(Phase.ASSEMBLING)
    play.join("c")
    assert (play.asked.attempt, play.asked.round, play.asked.nodes) == (1, 2, ("a", "c"))
    play.to(Phase.RUNNING)


def test_and_when_none_comes_the_check_is_the_cause(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2), "a", "b")
    play.check(CheckState.FAIL, avoid=("b",), failure=CheckFailure(check="gpu", message="b is hot"))
    play.wait(30.0)
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert play.final.report.phrase == "CheckFailed"


def test_who_joins_while_checks_run_is_used_only_after_checks_of_its_own(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=3), "a", "c")
    play.wait(30.0)
    play.join("b")
    play.to(Phase.PREPARING)
    assert play.line == ["a", "c"]


def test_checks_are_asked_again_where_another_node_has_to_hold_the_port(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, spares=1), "a", "b", "c")
    fault = FaultEvent(at=play.now, device="a", code="1", node="a", assertion=Assertion.OCCUR)
    play.tell(ev.FaultSeen(fault=fault, avoid=("a",), why="a fault"))
    play.check(meeting=Meeting(address="10.0.0.0", port=1))
    assert play.at(Phase.CHECKING)
    assert (play.asked.round, play.asked.meet_on) == (2, "b")


def test_a_second_device_fewer_takes_the_whole_node_out(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE)
    play.join("a", slots=2, devices=("a/gpu0", "a/gpu1"))
    play.join("b", slots=2, devices=("b/gpu0", "b/gpu1"))
    play.join("c", slots=2, devices=("c/gpu0", "c/gpu1"))
    play.check(CheckState.FAIL, avoid=("b/gpu1",), failure=CheckFailure(check="gpu", message="hot"))
    play.to(Phase.PREPARING)
    assert play.line == ["a", "a", "c", "c"]


def test_a_node_whose_lease_ended_while_the_owner_stood_still_is_not_blamed(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "a", "b", "c")
    play.report("c", MemberState.STOPPED, stopped=1)
    assert play.at(Phase.DRAINING)
    play.stopped("a", "b")
    play.collect()
    report = play.records[0].report
    assert "c with rank 2 lost its workers: no word of the owner reached it for" in report.reason
    assert "The owner stood still" in report.solution
    assert (report.devices, report.rerun) == ((), Rerun.NOW)


# ---------------------------------------------------------------------------------------------- growing


GROWS = NodePlan(least=2, most=3, grow=True, save_s=20.0)


def test_with_grow_a_newcomer_has_the_attempt_saved_and_takes_part_at_once(play: NodesPlay) -> None:
    play.run(GROWS, "a", "b")
    play.join("c")
    assert play.at(Phase.DRAINING)
    (stop,) = {a.command.save_s for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)}
    assert stop == 20.0
    play.drained()
    (record,) = play.records
    assert (record.report.phrase, record.decision.charged, record.decision.delay_s) == ("Resized", False, 0.0)
    assert record.report.reason == "the gang grows from 2 to 3 nodes"
    play.to(Phase.RUNNING)
    assert play.line == ["a", "b", "c"]


def test_who_joins_before_the_attempt_runs_is_taken_in_once_it_does(play: NodesPlay) -> None:
    play.start(GROWS, "a", "b")
    play.wait(30.0)
    play.to(Phase.STARTING)
    play.join("c")
    assert play.at(Phase.STARTING)
    play.all(MemberState.UP)
    assert play.at(Phase.DRAINING)
    play.drained()


def test_a_spare_is_no_reason_to_grow(play: NodesPlay) -> None:
    play.run(GROWS, "a", "b", "c")
    play.join("d")
    assert play.at(Phase.RUNNING)


def test_to_grow_is_no_failure_in_the_row_of_them(play: NodesPlay) -> None:
    play.run(GROWS, "a", "b", restarts=RestartPolicy(max_restarts=1, same_failure=0))
    play.join("c")
    play.drained()
    play.to(Phase.RUNNING)
    play.crash()
    play.drained()
    assert play.at(Phase.CHECKING), "the first failure is followed at once"
    assert [record.decision.charged for record in play.records] == [False, True]


# ---------------------------------------------------------------------------------------------- silence


def test_where_all_others_fall_silent_at_once_the_owners_own_link_is_named(play: NodesPlay) -> None:
    play.start(NodePlan(least=3, most=3))
    play.join("a", here=True)
    play.join("b", "c")
    play.to(Phase.RUNNING)
    for name in ("b", "c"):
        play.tell(ev.NodeSilent(node=name, boot=1, silent_s=6.0))
        play.now += 0.5
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.tell(ev.NodeFenced(node="c", boot=1))
    play.drained("b", "c")
    (record,) = play.records
    assert (record.report.phrase, record.report.devices, record.decision.charged) == ("NetworkLost", (), False)
    assert "the link of a failed" in record.report.reason
    play.join("b", "c")
    play.to(Phase.RUNNING)
    play.lose("b")
    play.drained("b")
    assert [each.decision.avoid for each in play.records] == [(), ()], "the first silence was no loss of b"


def test_one_silent_node_of_two_others_is_lost_by_itself(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=3))
    play.join("a", here=True)
    play.join("b", "c")
    play.to(Phase.RUNNING)
    play.lose("b")
    play.drained("b")
    assert play.records[0].report.phrase == "NodeFailed"


def test_the_report_of_a_lost_node_tells_its_last_words(play: NodesPlay) -> None:
    play.run(TWO_OR_THREE, "a", "b", "c")
    watch = Liveness(Timers(beat_s=1.0, lease_s=6.0))
    for moment in (0.0, 1.0, 2.1, 3.0):
        watch.heard("b", 1, moment)
    assert not watch.due(6.0)
    (silent,) = watch.due(9.0)
    play.tell(silent)
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.drained("b")
    assert play.records[0].report.reason == (
        "b with rank 1 has not answered for 6.0 s (its last words came 6, 6.9, 8, 9 s before)"
    )


@pytest.mark.parametrize(("most", "beat_s"), [(2, 1.0), (1000, 1.0), (3000, 3.0), (10_000, 5.0)])
def test_the_beat_follows_from_the_number_of_nodes(most: int, beat_s: float) -> None:
    timers = timers_for(node_job(NodePlan(least=2, most=most), timers=Timers()))
    assert (timers.beat_s, timers.lease_s) == (beat_s, 6 * beat_s)


def test_one_machine_keeps_its_timers() -> None:
    assert timers_for(spec(timers=Timers())) == Timers()


# ---------------------------------------------------------------------------------------------- a journal that forgot


def test_an_owner_that_is_back_waits_a_lease_for_nodes_that_it_may_have_forgotten(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a", "b", timers=structs.replace(TIMERS, beat_s=1.0, lease_s=6.0))
    play.tell(ev.OwnerRecovered())
    play.join("c")
    play.check()
    assert not play.prepares
    play.wait(play.gang.lease_s())
    assert set(play.commands(Prepare)) <= {"a", "b", "c"}
    assert play.gang.attempt_state.sent


def test_a_node_that_joins_while_a_forgotten_attempt_drains_is_stopped_too(play: NodesPlay) -> None:
    play.start(TWO_OR_THREE, "a")
    play.report("a", MemberState.UP, attempt=1, stopped=0)
    assert play.at(Phase.DRAINING)
    play.join("b")
    assert "b" in play.commands(Stop)
    play.stopped("a")
    assert play.at(Phase.DRAINING)
    play.stopped("b")
    play.collect()


def test_no_attempt_is_prepared_while_an_agent_has_workers_of_an_older_one(play: NodesPlay) -> None:
    play.run(NodePlan(least=2, most=2, spares=1), "a", "b", "c")
    play.crash()
    play.drained()
    alive = (Member(rank=0, state=MemberState.UP),)
    play.tell(ev.AgentReported(report=structs.replace(_word("c", play.now), attempt=1, members=alive)))
    play.check()
    assert not play.prepares
    assert play.gang.view().waits_for == "the last process of an older attempt on c"
    play.tell(ev.AgentReported(report=structs.replace(_word("c", play.now + 1), attempt=1, stopped=1)))
    play.wait(1.0)
    assert set(play.commands(Prepare)) == {"a", "b"}


# ---------------------------------------------------------------------------------------------- devices


TWO_GPUS = ("gpu0", "gpu1")


def test_a_device_that_is_held_on_one_node_is_used_on_the_others(play: NodesPlay) -> None:
    held = DeviceStanding(device="gpu0", node="b", standing=Standing.HELD, reason="it broke")
    play.start(NodePlan(least=2, most=3, last_call_s=1.0), slots=2)
    play.join("a", "c", slots=2, devices=TWO_GPUS)
    play.tell(ev.NodeJoined(node=NodeInfo(name="b", slots=2, devices=TWO_GPUS), boot=1, kept_out=(held,)))
    play.wait(1.0)
    play.to(Phase.PREPARING)
    assert play.line == ["a", "a", "c", "c"]
    assert play.gang.avoid == {"b/gpu0"}


def test_a_fault_takes_out_the_device_of_its_own_node(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, spares=1), slots=2)
    play.join("a", "b", "c", slots=2, devices=TWO_GPUS)
    play.to(Phase.RUNNING)
    fault = FaultEvent(at=play.now, device="gpu1", code="79", node="b", assertion=Assertion.OCCUR)
    play.tell(ev.FaultSeen(fault=fault, remedy=Remedy.ISOLATE, stop=True, avoid=("gpu1",), why="it fell off the bus"))
    play.drained()
    play.to(Phase.PREPARING)
    assert play.line == ["a", "a", "c", "c"]
    assert play.gang.avoid == {"b/gpu1"}


def test_a_node_with_more_devices_than_workers_may_lose_one(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2), slots=1)
    play.join("a", "b", slots=1, devices=TWO_GPUS)
    play.check(CheckState.FAIL, avoid=("b/gpu0",), failure=CheckFailure(check="gpu", message="hot"))
    play.to(Phase.PREPARING)
    assert play.line == ["a", "b"]
    assert [placement.device for placement in play.gang.attempt_state.roster.placements] == ["gpu0", "gpu1"]


def test_an_owner_that_was_away_gives_the_nodes_a_lease_to_say_hello(play: NodesPlay) -> None:
    play.start(NodePlan(least=2, most=2, join_s=30.0), "a", timers=structs.replace(TIMERS, beat_s=1.0, lease_s=6.0))
    play.now += 100.0
    play.tell(ev.OwnerRecovered())
    play.wait(7.0)
    assert play.at(Phase.ASSEMBLING)
    play.join("b")
    assert play.at(Phase.CHECKING)


# --------------------------------------------------------------------- a replacement is waited for, or goes on smaller

REPLACED = NodePlan(least=2, most=3, last_call_s=30.0, join_s=600.0, replace_s=600.0, refill_s=30.0, replaced=True)


def _no_room(play: NodesPlay, place: int, words: str = "0/3 nodes are available") -> None:
    play.tell(ev.RoomChanged(place=place, words=words))


def _one_lost(play: NodesPlay, plan: NodePlan = REPLACED, *names: str) -> None:
    play.run(plan, *(names or ("a", "b", "c")))
    play.lose("b")
    play.drained("b")


def test_a_gang_waits_for_a_replacement_no_longer_than_it_may_and_then_goes_on_smaller(play: NodesPlay) -> None:
    _one_lost(play)
    assert play.at(Phase.ASSEMBLING)
    assert play.gang.view().waits_for == "another node; it goes on without it after 30 s (a, c)"
    play.wait(29.0)
    assert play.at(Phase.ASSEMBLING)
    play.wait(1.0)
    play.to(Phase.PREPARING)
    assert play.line == ["a", "c"]
    assert play.prepares["c"].shape.world_size == 2


def test_a_replacement_that_comes_is_used_at_once(play: NodesPlay) -> None:
    _one_lost(play)
    play.wait(20.0)
    play.join("d")
    play.to(Phase.PREPARING)
    assert play.line == ["a", "d", "c"]


def test_a_platform_without_room_ends_the_wait_at_once(play: NodesPlay) -> None:
    _one_lost(play)
    _no_room(play, 1)
    assert play.at(Phase.CHECKING)
    assert "the platform has no further node now; the job goes on with 2 of 3 nodes" in play.said
    play.to(Phase.RUNNING)
    play.join("d")
    assert play.at(Phase.RUNNING), "it grows at the next restart"
    play.again()
    play.to(Phase.PREPARING)
    assert play.line == ["a", "c", "d"]


@pytest.mark.parametrize("when", ["while it runs", "while it stops"])
def test_what_the_platform_has_said_before_counts_until_it_has_room_again(play: NodesPlay, when: str) -> None:
    play.run(REPLACED, "a", "b", "c")
    if when == "while it runs":
        _no_room(play, 1)
    play.lose("b")
    if when == "while it stops":
        _no_room(play, 1)
    play.drained("b")
    play.to(Phase.RUNNING)
    assert play.line == ["a", "c"]
    play.again()
    play.to(Phase.RUNNING)
    assert play.line == ["a", "c"], "a restart does not wait for what has no room"
    _no_room(play, 1, "")
    play.again()
    assert play.at(Phase.ASSEMBLING)


def test_room_for_one_of_two_lost_nodes_is_waited_for(play: NodesPlay) -> None:
    play.run(structs.replace(REPLACED, most=4), "a", "b", "c", "d")
    play.lose("b", "c")
    play.drained("b", "c")
    _no_room(play, 1)
    assert play.at(Phase.ASSEMBLING), "the other one may come"
    play.join("e")
    play.to(Phase.PREPARING)
    assert play.line == ["a", "e", "d"]


def test_a_spare_takes_the_place_without_a_wait(play: NodesPlay) -> None:
    _one_lost(play, structs.replace(REPLACED, spares=1), "a", "b", "c", "d")
    play.to(Phase.PREPARING)
    assert play.line == ["a", "d", "c"]


def test_below_the_least_no_room_ends_no_wait_and_with_the_least_it_is_short(play: NodesPlay) -> None:
    play.run(structs.replace(REPLACED, replace_s=100.0), "a", "b", "c")
    play.lose("b", "c")
    play.drained("b", "c")
    _no_room(play, 1)
    _no_room(play, 2)
    assert play.at(Phase.ASSEMBLING)
    play.wait(60.0)
    _no_room(play, 1, "")
    play.join("d")
    assert play.at(Phase.CHECKING), "the third has no room"
    play.to(Phase.PREPARING)
    assert play.line == ["a", "d"]


@pytest.mark.parametrize(("after_s", "left_s"), [(60.0, 30.0), (90.0, 10.0)])
def test_who_comes_late_is_followed_by_a_short_wait_within_the_long_one(
    play: NodesPlay, after_s: float, left_s: float
) -> None:
    play.run(structs.replace(REPLACED, replace_s=100.0), "a", "b", "c")
    play.lose("b", "c")
    play.drained("b", "c")
    play.wait(after_s)
    play.join("d")
    play.wait(left_s - 1.0)
    assert play.at(Phase.ASSEMBLING)
    play.wait(1.0)
    assert play.at(Phase.CHECKING)


def test_another_loss_in_the_short_wait_makes_it_the_long_one(play: NodesPlay) -> None:
    _one_lost(play)
    play.wait(10.0)
    play.tell(ev.NodeSilent(node="c", boot=1, silent_s=6.0))
    play.wait(60.0)
    assert play.at(Phase.ASSEMBLING)
    play.join("d")
    play.wait(30.0)
    play.to(Phase.PREPARING)
    assert play.line == ["a", "d"]


def test_an_owner_that_is_back_hears_anew_where_there_is_room(play: NodesPlay) -> None:
    timers = structs.replace(TIMERS, beat_s=1.0, lease_s=6.0)
    play.run(REPLACED, "a", "b", "c", timers=timers)
    _no_room(play, 1)
    play.tell(ev.OwnerRecovered())
    assert not play.gang.no_room
    play.tell(ev.AgentReported(report=structs.replace(_word("a", play.now), attempt=1)))
    _no_room(play, 1)
    assert [*play.gang.no_room] == [1]


def test_a_node_that_fails_its_check_is_replaced_if_the_platform_has_another(play: NodesPlay) -> None:
    play.start(REPLACED, "a", "b", "c")
    bad = CheckFailure(check="disk", message="b has no room on its disk", nodes=("b",))
    play.check(CheckState.FAIL, failure=bad, avoid=("b",))
    assert play.at(Phase.ASSEMBLING)
    _no_room(play, 1)
    assert play.at(Phase.CHECKING)
    assert play.asked.nodes == ("a", "c")


@pytest.mark.parametrize("plan", [structs.replace(REPLACED, refill_s=0.0), TWO_OR_THREE])
def test_without_such_a_wait_the_gang_goes_on_at_once(play: NodesPlay, plan: NodePlan) -> None:
    _one_lost(play, plan)
    assert play.at(Phase.CHECKING)


def test_a_first_attempt_has_its_last_call_whatever_the_platform_says(play: NodesPlay) -> None:
    play.start(REPLACED, "a", "b")
    _no_room(play, 2)
    assert play.at(Phase.ASSEMBLING)
    play.wait(30.0)
    assert play.at(Phase.CHECKING)
