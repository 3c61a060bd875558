"""A job that the platform starts again: numbers, budgets and history go on; a refusal has its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gang_requeues import ALWAYS_TWO, POSSIBLE, REQUEUE_STORIES, Platform
from msgspec import structs

from builders import PREEMPTED
from gang_play import POLICY, TIMERS
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure, StopRequest, StopSource
from holdfast.model.exit_report import EvidenceKind, Outcome
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.model.gang_protocol import MemberState, Report
from holdfast.model.job_spec import NodeInfo, Requeuing, RestartPolicy
from holdfast.model.phrases import Phrase


@pytest.fixture
def play() -> Iterator[Platform]:
    played = Platform()
    yield played
    played.verify()


@pytest.mark.parametrize("story", REQUEUE_STORIES)
def test_every_story_ends(play: Platform, story: Callable[[Platform], None]) -> None:
    story(play)
    assert play.at(Phase.DONE)
    assert play.final is not None


def test_without_enough_nodes_the_job_goes_on_in_another_run_without_the_lost_one(play: Platform) -> None:
    play.run("a", "b")
    play.fall("b")
    play.wait(31.0)
    (asked,) = play.requeues
    assert (asked.run, asked.without) == (0, ("b",))
    play.resume(run=1)
    assert play.at(Phase.ASSEMBLING)
    play.join("a", "c", boot=2)
    play.to(Phase.RUNNING)
    assert play.gang.attempt == 2
    assert [record.attempt for record in play.records] == [1]


def test_a_run_that_begins_waits_for_all_its_nodes_like_the_first(play: Platform) -> None:
    plan = structs.replace(ALWAYS_TWO, least=1)
    play.run("a", "b", plan=plan)
    play.resume()
    play.join("a", boot=2)
    assert play.at(Phase.ASSEMBLING)
    play.join("c", boot=2)
    assert play.at(Phase.CHECKING)


def test_a_journal_that_ends_in_an_attempt_has_it_explained_by_the_platforms_word(play: Platform) -> None:
    play.run("a", "b")
    play.resume(reason="Slurm: node n3 failed", phrase=Phrase.NODE_FAILED)
    (record,) = play.records
    assert record.report.phrase == Phrase.NODE_FAILED
    assert record.report.reason.startswith("Slurm: node n3 failed")
    assert record.decision.kind is DecisionKind.REQUEUE
    assert not record.decision.charged
    play.join("a", "b", boot=2)
    play.to(Phase.RUNNING)
    assert play.gang.attempt == 2


def test_an_attempt_that_had_failed_before_its_run_ended_keeps_its_cause(play: Platform) -> None:
    play.run("a", "b")
    play.crash()
    assert play.at(Phase.DRAINING)
    play.resume()
    (record,) = play.records
    assert record.report.phrase == Phrase.NATIVE_CRASH
    assert record.decision.kind is DecisionKind.RESTART
    assert record.decision.charged


def test_an_attempt_that_was_done_before_its_run_ended_is_a_success(play: Platform) -> None:
    play.run("a", "b")
    play.all(MemberState.DONE)
    play.resume()
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED


def test_a_stop_that_the_run_did_not_live_to_finish_stays_a_stop(play: Platform) -> None:
    play.run("a", "b")
    play.stop()
    play.resume()
    assert play.final is not None
    assert play.final.outcome is Outcome.STOPPED


def test_the_same_start_told_twice_changes_nothing(play: Platform) -> None:
    play.run("a", "b")
    play.resume(run=1)
    play.join("a", "b", boot=2)
    play.to(Phase.RUNNING)
    play.resume(run=1)
    assert play.at(Phase.RUNNING)


def test_what_an_agent_of_the_run_before_says_late_touches_nothing(play: Platform) -> None:
    play.run("a", "b")
    play.resume()
    play.join("a", "b", boot=5)
    play.to(Phase.RUNNING)
    before = play.gang.stale_reports
    play.tell(ev.AgentReported(report=Report(node="a", boot=1, attempt=2, stopped=2, sent=play.now)))
    play.tell(ev.NodeLeft(node="a", boot=1, reason="its user ended it", fenced=True))
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=6.0))
    assert play.at(Phase.RUNNING)
    assert play.gang.stale_reports == before + 1


def test_an_agent_of_the_run_before_is_no_node_of_the_next(play: Platform) -> None:
    play.run("a", "b")
    play.resume()
    play.join("a", "b", boot=1)
    assert play.at(Phase.ASSEMBLING)
    assert play.gang.here() == ()


def test_agents_of_the_run_before_are_not_waited_for() -> None:
    play = Platform()
    play.run("a", "b")
    owner = Owner(play.gang, Liveness(TIMERS))
    owner.recover([], play.now)
    resumed = ev.JobResumed(platform="Slurm job 7", run=1, reason="", nodes=(NodeInfo(name="c", slots=1),))
    owner.expect(resumed, play.now)
    assert owner.liveness is not None
    silent = owner.liveness.due(play.now + TIMERS.lease_s)
    assert [event.node for event in silent] == ["c"]


def test_a_preemption_is_no_restart_of_the_users(play: Platform) -> None:
    play.run("a", "b", restarts=RestartPolicy(max_restarts=0))
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    (record,) = play.records
    assert play.at(Phase.QUEUED)
    assert record.report.phrase == Phrase.PREEMPTED
    assert record.decision.kind is DecisionKind.REQUEUE
    assert not record.decision.charged
    assert record.decision.reason == "restart 1 of 20 (platform budget, not yours): Slurm preempts the job"


def test_the_platforms_own_setting_is_the_reason_not_to_queue(play: Platform) -> None:
    play.run("a", "b", requeue=Requeuing(why_not="Slurm's Requeue=0 (--no-requeue)"))
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    (record,) = play.records
    assert record.decision.kind is DecisionKind.STOP
    assert record.decision.reason.endswith("not queued again: Slurm's Requeue=0 (--no-requeue)")
    assert play.final is not None
    assert play.final.report.phrase == Phrase.PREEMPTED


@pytest.mark.parametrize("allowed", [True, False])
def test_at_a_time_limit_the_user_says_whether_the_job_goes_on(play: Platform, *, allowed: bool) -> None:
    play.run("a", "b", requeue=Requeuing(possible=True, at_time_limit=allowed))
    limit = structs.replace(PREEMPTED, phrase=Phrase.TIME_LIMIT_REACHED)
    play.tell(ev.StopRequested(request=limit))
    play.drain()
    assert play.at(Phase.QUEUED if allowed else Phase.DONE)


def test_the_budget_that_is_not_the_users_ends_requeues(play: Platform) -> None:
    play.run("a", "b", restarts=structs.replace(POLICY, platform_max_restarts=2))
    for run in (1, 2):
        play.tell(ev.StopRequested(request=PREEMPTED))
        play.drain()
        play.resume(run=run)
        play.join("a", "b", boot=run + 1)
        play.to(Phase.RUNNING)
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    assert play.at(Phase.DONE)
    assert "both restarts for failures that are not yours are used" in play.records[-1].decision.reason
    assert len(play.requeues) == 2


ONE_RESTART = structs.replace(POLICY, platform_max_restarts=1)
LIMIT = structs.replace(PREEMPTED, phrase=Phrase.TIME_LIMIT_REACHED, reason="Slurm's time limit is over")
BOTH = Requeuing(possible=True, at_time_limit=True)
SAVED = ("/ckpt/step-40",)


def goes_on(play: Platform, run: int) -> None:
    assert play.at(Phase.QUEUED), play.records[-1].decision
    play.resume(run=run)
    play.join("a", "b", boot=run + 1)
    play.to(Phase.RUNNING)


@pytest.mark.parametrize(
    ("request_", "checkpoints"), [(LIMIT, ()), (LIMIT, SAVED), (PREEMPTED, SAVED)], ids=["limit", "saved", "preempted"]
)
def test_a_planned_end_and_a_run_that_progressed_spend_no_restart(
    play: Platform, request_: StopRequest, checkpoints: tuple[str, ...]
) -> None:
    play.run("a", "b", restarts=ONE_RESTART, requeue=BOTH)
    for run in range(1, 5):
        play.tell(ev.StopRequested(request=request_))
        play.stopped()
        play.collect(checkpoints=checkpoints)
        goes_on(play, run)
    assert {record.decision.kind for record in play.records} == {DecisionKind.REQUEUE}
    assert play.records[-1].decision.reason == f"another run, no restart spent: {request_.reason}"
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    assert play.records[-1].decision.reason.startswith("restart 1 of 1 (platform budget, not yours): ")
    goes_on(play, 5)
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    assert play.at(Phase.DONE), "a run without progress spends one"


def test_runs_that_slurm_itself_ended_spend_no_restart_where_they_progressed(play: Platform) -> None:
    play.run("a", "b", restarts=ONE_RESTART)
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    goes_on(play, 1)
    for run in (2, 3):
        play.tell(ev.StopRequested(request=PREEMPTED))
        play.stopped()
        play.collect(checkpoints=SAVED)
        goes_on(play, run)
    assert "the only restart" not in play.records[-1].decision.reason, "a used budget refuses no free run"


def test_a_lost_node_after_progress_moves_the_job_without_a_restart(play: Platform) -> None:
    play.run("a", "b", restarts=structs.replace(POLICY, platform_max_restarts=2))
    for run in range(1, 5):
        play.tell(ev.NodeSilent(node="b", boot=run, silent_s=6.0))
        play.tell(ev.NodeFenced(node="b", boot=run))
        play.report("a", stopped=play.gang.attempt, boot=run)
        if not play.gang.attempt_state.collecting:
            play.wait(1.5)
        play.collect(checkpoints=SAVED)
        play.wait(0.0)
        play.wait(31.0)
        assert play.gang.records[-1].decision.kind is DecisionKind.REQUEUE
        goes_on(play, run)
    assert len(play.requeues) == 4


@pytest.mark.parametrize("most", [0, 1])
def test_a_time_limit_between_two_attempts_spends_no_restart(play: Platform, most: int) -> None:
    play.run("a", "b", restarts=structs.replace(POLICY, platform_max_restarts=most, backoff_s=50.0), requeue=BOTH)
    play.crash()
    play.stopped("a", "b")
    play.collect()
    play.wait(0.0)
    play.join("a", "b")
    play.to(Phase.RUNNING)
    play.crash()
    play.stopped("a", "b")
    play.collect()
    play.wait(0.0)
    assert play.at(Phase.BACKOFF)
    play.tell(ev.StopRequested(request=LIMIT))
    goes_on(play, 1)
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    assert play.at(Phase.QUEUED if most else Phase.DONE), "the budget is whole"


def test_requeues_are_no_failures_in_a_row(play: Platform) -> None:
    play.run("a", "b", restarts=RestartPolicy(max_in_a_row=2))
    for run in range(1, 5):
        play.tell(ev.StopRequested(request=PREEMPTED))
        play.drain()
        play.resume(run=run)
        play.join("a", "b", boot=run + 1)
        play.to(Phase.RUNNING)
    play.crash()
    play.drain()
    assert play.records[-1].decision.kind is DecisionKind.RESTART
    assert play.records[-1].decision.delay_s == 0


def test_a_refusal_ends_the_job_with_what_took_its_nodes(play: Platform) -> None:
    play.run("a", "b")
    play.fall("b")
    play.wait(31.0)
    play.tell(ev.RequeueRefused(run=0, reason="slurmctld did not answer for 30 s"))
    assert play.final is not None
    assert play.final.outcome is Outcome.FAILED
    assert play.final.report.phrase == Phrase.NODE_FAILED
    last = play.final.attempts[-1].decision
    assert (last.kind, last.reason) == (DecisionKind.FAIL, "not queued again: slurmctld did not answer for 30 s")


def test_a_refusal_of_a_run_before_is_none(play: Platform) -> None:
    play.run("a", "b")
    for run in (0, 1):
        play.tell(ev.StopRequested(request=PREEMPTED))
        play.drain()
        assert play.at(Phase.QUEUED)
        if run == 0:
            play.resume()
            play.join("a", "b", boot=2)
            play.to(Phase.RUNNING)
    play.tell(ev.RequeueRefused(run=0, reason="late"))
    assert play.at(Phase.QUEUED)


def test_a_bad_device_without_a_spare_moves_the_job_to_other_nodes(play: Platform) -> None:
    play.start("a", restarts=RestartPolicy(max_restarts=0))
    play.join("b", devices=("b/gpu0",))
    play.to(Phase.RUNNING)
    fault = FaultEvent(device="b", code="79", assertion=Assertion.ONCE, at=play.now, node="b")
    play.tell(ev.FaultSeen(fault=fault, remedy=Remedy.HOLD, stop=True, avoid=("b",), why="gpu0 fell off the bus"))
    play.drain()
    (record,) = play.records
    assert record.decision.kind is DecisionKind.REQUEUE, record
    (asked,) = play.requeues
    assert asked.without == ("b",)
    play.resume()
    play.join("a", "b", boot=2)
    assert play.at(Phase.ASSEMBLING), "b is avoided in every run"


def test_a_check_that_asks_for_other_nodes_gets_them_in_another_run(play: Platform) -> None:
    play.start("a", "b")
    play.check(CheckState.FAIL, avoid=("a",), failure=CheckFailure(check="gpu", message="hot"))
    play.wait(31.0)
    assert play.at(Phase.QUEUED)
    assert [asked.without for asked in play.requeues] == [("a",)]
    play.resume()
    play.join("b", "c", boot=2)
    play.to(Phase.RUNNING)


def test_an_operators_stop_ends_what_a_preemption_had_begun(play: Platform) -> None:
    play.run("a", "b")
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.stop()
    play.drain()
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert play.final.outcome is Outcome.STOPPED
    assert play.requeues == []


def test_an_owner_that_is_back_asks_the_platform_the_same_again(play: Platform) -> None:
    play.run("a", "b")
    play.tell(ev.StopRequested(request=PREEMPTED))
    play.drain()
    play.tell(ev.OwnerRecovered())
    one, two = play.requeues
    assert (one.run, one.reason) == (two.run, two.reason)


def test_what_the_platform_says_stands_beside_what_holdfast_has_seen(play: Platform) -> None:
    play.run("a", "b")
    said = ev.PlatformSaid(attempt=1, subject="b", words="DOWN*, Not responding", command="scontrol show node b")
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=6.0))
    play.tell(said)
    play.tell(structs.replace(said, attempt=7))
    play.fall("b")
    (found,) = [each for each in play.records[0].report.evidence if each.kind is EvidenceKind.PLATFORM]
    assert (found.text, found.source) == ("b: DOWN*, Not responding", "scontrol show node b")


def test_only_the_time_that_it_runs_counts_for_the_jobs_limit(play: Platform) -> None:
    play.run("a", "b", time_limit_s=150.0)
    play.resume()  # a hundred seconds later
    play.join("a", "b", boot=2)
    play.to(Phase.RUNNING)
    play.wait(100.0)
    assert play.at(Phase.RUNNING)
    play.wait(60.0)
    assert play.at(Phase.DRAINING)
    assert play.gang.stop is not None
    assert play.gang.stop.source is StopSource.TIME_LIMIT


def test_a_job_on_one_node_goes_on_on_another(play: Platform) -> None:
    play.submit(nodes=("a", "b"))
    play.to(Phase.RUNNING)
    play.resume(nodes=(NodeInfo(name="c", slots=2),))
    play.to(Phase.RUNNING)
    assert {placement.node for placement in play.gang.attempt_state.roster.placements} == {"c"}


def test_possible_is_not_the_default() -> None:
    assert Requeuing() != POSSIBLE


def test_where_all_others_fell_silent_at_once_the_owners_own_node_is_left_out(play: Platform) -> None:
    plan = structs.replace(ALWAYS_TWO, least=3, most=3)
    play.start("b", "c", plan=plan)
    play.join("a", here=True)
    play.to(Phase.RUNNING)
    for node in ("b", "c"):
        play.tell(ev.NodeSilent(node=node, boot=1, silent_s=6.0))
    for node in ("b", "c"):
        play.tell(ev.NodeFenced(node=node, boot=1))
    play.report("a", stopped=1)
    play.wait(1.5)
    play.collect()
    play.wait(31.0)
    (asked,) = play.requeues
    assert asked.without == ("a",)
