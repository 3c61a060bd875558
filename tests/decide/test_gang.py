"""The gang's transitions, one by one: what it does, what it ignores, and that no move is missing or invented."""

from __future__ import annotations

from collections.abc import Callable

import gang_requeues
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gang_play import TIMERS, Play, Recorded, died, play, spec
from holdfast.decide.phases import LIVE, MEANING, TABLE, Phase, PhaseTrigger, diagram
from holdfast.model import events as ev
from holdfast.model.actions import Avoid, CollectEvidence, FinishJob, RunChecks, Say, Send
from holdfast.model.check_results import CheckState
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.evidence import CheckFailure, HangEvidence, StopRequest, StopSource
from holdfast.model.exit_report import Outcome
from holdfast.model.gang_protocol import Go, Member, MemberState, Prepare, Report, Stop
from holdfast.model.job_spec import Completion, NodeInfo, NodePlan, RestartPolicy, Role

__all__ = ["play"]  # fixtures

CLOSED_BY_RANK = "RuntimeError: recv failed: Connection closed by rank {}\n"


# ---------------------------------------------------------------------------------------------- the table


def complete(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.all(MemberState.DONE)
    play.drain()


def restart_and_stop_in_the_pause(play: Play) -> None:
    play.submit()
    for _ in range(2):
        play.to(Phase.RUNNING)
        play.crash()
        play.drain()
        play.wait(0.0)
    assert play.at(Phase.BACKOFF)
    play.stop()


def fail_while_preparing(play: Play) -> None:
    play.submit(spec(restarts=RestartPolicy(max_restarts=0)))
    play.to(Phase.PREPARING)
    play.report("a", MemberState.FAILED, start_failed="no memory")
    play.drain()


def fail_while_starting(play: Play) -> None:
    play.submit(spec(restarts=RestartPolicy(max_restarts=0)))
    play.to(Phase.STARTING)
    play.crash()
    play.drain()


def look_elsewhere_and_find_nobody(play: Play) -> None:
    play.submit(nodes=("a", "b", "c"))
    play.check(CheckState.FAIL, avoid=("a",), failure=CheckFailure(check="gpu", message="hot"))
    play.check(CheckState.FAIL, avoid=("b",), failure=CheckFailure(check="gpu", message="hot"))


def stop_while_checking(play: Play) -> None:
    play.submit()
    play.stop()


def no_places(play: Play) -> None:
    play.submit(spec(count=3))


def an_attempt_is_remembered_by_an_agent_only(play: Play) -> None:
    """The journal has lost its tail: an agent is at an attempt that the owner is only about to place, or beyond it."""
    play.submit()
    play.report("a", MemberState.UP, attempt=1, stopped=0)
    play.stopped("a", "b")
    play.collect()
    assert play.at(Phase.BACKOFF)
    play.report("b", MemberState.UP, attempt=2, stopped=1)
    assert play.at(Phase.DRAINING)
    play.stopped("a", "b")
    play.collect()
    play.stop()


def too_few_nodes_come(play: Play) -> None:
    play.submit(spec(nodes=NodePlan(least=2, most=2)), nodes=("a",))
    play.wait(600.0)


def stop_while_nodes_are_awaited(play: Play) -> None:
    play.submit(spec(nodes=NodePlan(least=2, most=2)), nodes=("a",))
    play.stop()


def a_node_is_lost_and_back_while_checks_run(play: Play) -> None:
    play.submit()
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=30.0))
    assert play.at(Phase.ASSEMBLING)
    play.report("b", attempt=0, stopped=0)
    assert play.at(Phase.CHECKING)
    play.stop()


def an_attempt_is_remembered_while_nodes_are_awaited(play: Play) -> None:
    play.submit(spec(nodes=NodePlan(least=2, most=2)), nodes=("a",))
    play.report("a", MemberState.UP, attempt=1, stopped=0)
    play.stopped("a")
    play.collect()
    play.stop()


GANG_STORIES = (
    too_few_nodes_come,
    stop_while_nodes_are_awaited,
    a_node_is_lost_and_back_while_checks_run,
    an_attempt_is_remembered_while_nodes_are_awaited,
    an_attempt_is_remembered_by_an_agent_only,
    complete,
    restart_and_stop_in_the_pause,
    fail_while_preparing,
    fail_while_starting,
    look_elsewhere_and_find_nobody,
    stop_while_checking,
    no_places,
)


@pytest.mark.parametrize("story", GANG_STORIES)
def test_every_story_ends(play: Play, story: Callable[[Play], None]) -> None:
    story(play)
    assert play.at(Phase.DONE)
    assert play.final is not None


def test_every_move_of_the_table_is_made() -> None:
    made: set[tuple[Phase, PhaseTrigger]] = set()
    for story in GANG_STORIES:
        play = Play()
        story(play)
        play.verify()
        made.update(play.gang.moves)
    for requeued in gang_requeues.REQUEUE_STORIES:
        again = gang_requeues.Platform()
        requeued(again)
        again.verify()
        made.update(again.gang.moves)
    assert made == set(TABLE)


def test_the_table_is_whole() -> None:
    assert set(MEANING) == set(Phase)
    assert {source for source, _ in TABLE} == set(Phase) - {Phase.DONE}
    assert all(TABLE[phase, PhaseTrigger.TROUBLE] is Phase.DRAINING for phase in LIVE)
    assert {trigger for _, trigger in TABLE} == set(PhaseTrigger)
    assert diagram().count("-->") == len(TABLE) + 2


# ---------------------------------------------------------------------------------------------- the good way


def test_prepare_then_go_then_running(play: Play) -> None:
    play.submit()
    assert [type(action) for action in play.out] == [RunChecks]
    play.check()
    assert play.commands(Prepare) == ["a", "b"]
    play.report("a", MemberState.PREPARED)
    assert not play.commands(Go)
    play.report("b", MemberState.PREPARED)
    assert play.commands(Go) == ["a", "b"]
    play.report("b", MemberState.UP)
    assert play.at(Phase.STARTING)
    play.report("a", MemberState.UP)
    assert play.at(Phase.RUNNING)
    play.all(MemberState.DONE)
    assert play.commands(Stop) == ["a", "b"]
    play.drain()
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED
    assert play.gang.attempt == 1


def test_commands_are_said_again_to_those_who_have_not_obeyed(play: Play) -> None:
    play.submit()
    play.check()
    play.report("a", MemberState.PREPARED)
    play.wait(TIMERS.resend_s)
    assert play.commands(Prepare) == ["b"]
    play.report("b", MemberState.PREPARED)
    play.report("a", MemberState.UP)
    play.wait(TIMERS.resend_s)
    assert play.commands(Go) == ["b"]
    play.report("b", MemberState.UP)
    play.crash(0)
    play.stopped("a")
    play.wait(TIMERS.resend_s)
    assert play.commands(Stop) == ["b"]


def test_a_rank_that_is_done_before_the_others_are_up(play: Play) -> None:
    play.submit()
    play.to(Phase.STARTING)
    play.report("a", MemberState.DONE, exit=died(0, exit_code=0))
    assert play.at(Phase.STARTING)
    play.report("b", MemberState.UP)
    assert play.at(Phase.RUNNING)
    play.report("b", MemberState.DONE, exit=died(1, exit_code=0, node="b"))
    play.drain()
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED


# ---------------------------------------------------------------------------------------------- old news


@pytest.mark.parametrize("phase", [Phase.CHECKING, Phase.PREPARING, Phase.STARTING, Phase.RUNNING])
def test_the_failure_of_an_older_attempt_stops_nobody(play: Play, phase: Phase) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash()
    old = play.history[-1][1]
    play.drain()
    play.wait(0.0)
    play.to(phase)
    for _ in range(3):
        play.tell(old)
        assert play.at(phase)
        assert not play.out
    assert play.gang.stale_reports == 3


def test_a_report_overtaken_by_a_later_one_teaches_nothing(play: Play) -> None:
    play.submit()
    play.to(Phase.STARTING)
    play.report("a", MemberState.UP)
    play.report("a", MemberState.PREPARED, sent=50.0)
    play.report("b", MemberState.UP)
    assert play.at(Phase.RUNNING)


def test_answers_of_another_round_or_attempt_are_ignored(play: Play) -> None:
    play.submit()
    play.tell(ev.ChecksFinished(attempt=1, round=2, state=CheckState.PASS))
    play.tell(ev.ChecksFinished(attempt=0, round=1, state=CheckState.FAIL, fatal=True))
    assert play.at(Phase.CHECKING)
    play.check()
    play.check(CheckState.FAIL, fatal=True)
    assert play.at(Phase.PREPARING)


def test_a_timer_does_not_outlive_its_phase(play: Play) -> None:
    play.submit()
    play.to(Phase.PREPARING)
    play.now += TIMERS.prepare_s - 1.0
    play.all(MemberState.PREPARED)
    play.wait(5.0)
    assert play.at(Phase.STARTING)


# ---------------------------------------------------------------------------------------------- failures


def test_evidence_of_its_own_stops_the_gang_at_once(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash()
    assert play.at(Phase.DRAINING)
    assert play.commands(Stop) == ["a", "b"]
    play.drain()
    (record,) = play.records
    assert record.report.first is not None
    assert record.report.first.rank == 1
    assert record.decision.kind is DecisionKind.RESTART
    assert record.decision.charged


def test_who_only_blames_a_peer_leaves_it_a_moment_to_die_of_its_own_cause(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(1, exit_code=1, last_words=CLOSED_BY_RANK.format(0))
    assert play.at(Phase.RUNNING)
    play.crash(0)
    assert play.at(Phase.DRAINING)
    play.drain()
    assert play.records[0].report.first is not None
    assert play.records[0].report.first.rank == 0


def test_and_no_longer(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(1, exit_code=1, last_words=CLOSED_BY_RANK.format(0))
    play.wait(TIMERS.peer_wait_s)
    assert play.at(Phase.DRAINING)
    play.drain()


def test_the_wait_for_a_peer_does_not_get_lost_when_all_others_are_up(play: Play) -> None:
    play.submit()
    play.to(Phase.STARTING)
    play.crash(1, exit_code=1, last_words=CLOSED_BY_RANK.format(0))
    play.report("a", MemberState.UP)
    assert play.at(Phase.STARTING)
    play.wait(TIMERS.peer_wait_s)
    assert play.at(Phase.DRAINING)
    play.drain()


def test_a_stopped_rank_completes_nothing(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.report("a", MemberState.DONE, exit=died(0, exit_code=0))
    play.report("b", MemberState.STOPPED, exit=died(1, signal=9, node="b", after_stop=True))
    assert play.at(Phase.RUNNING)
    play.report("b", MemberState.STOPPED, stopped=1)
    assert play.at(Phase.DRAINING)
    play.stopped("a")
    play.collect()
    assert play.records[0].decision.kind is not DecisionKind.SUCCEED


@pytest.mark.parametrize(
    ("phase", "limit", "what"),
    [(Phase.PREPARING, TIMERS.prepare_s, "prepare"), (Phase.STARTING, TIMERS.start_s, "start")],
)
def test_deadlines_name_who_was_late(play: Play, phase: Phase, limit: float, what: str) -> None:
    play.submit()
    play.to(phase)
    play.report("a", MemberState.UP if phase is Phase.STARTING else MemberState.PREPARED)
    play.wait(limit)
    assert play.at(Phase.DRAINING)
    assert (play.gang.attempt_state.deadline, play.gang.attempt_state.late) == (what, (1,))
    play.drain()
    assert play.records[0].report.phrase == "GangStartTimeout"


def test_checks_that_never_answer_end_the_job(play: Play) -> None:
    play.submit()
    play.wait(TIMERS.check_s)
    assert play.at(Phase.DONE)
    assert play.final is not None
    assert "20 s" in play.final.report.reason


def test_a_hang_is_believed_only_of_this_attempt_and_while_it_runs(play: Play) -> None:
    hang = HangEvidence(attempt=1, silent_s=30.0, culprits=(1,), why="rank 1 stands")
    play.submit()
    play.to(Phase.STARTING)
    play.tell(ev.HangFound(attempt=1, evidence=hang))
    play.all(MemberState.UP)
    play.tell(ev.HangFound(attempt=2, evidence=hang))
    assert play.at(Phase.RUNNING)
    play.tell(ev.HangFound(attempt=1, evidence=hang))
    assert play.at(Phase.DRAINING)
    play.drain()
    assert play.records[0].report.phrase == "HungWorker"


def test_a_policy_that_can_do_without_a_rank(play: Play) -> None:
    role = Role(name="worker", count=2, command=("x",), completion=Completion(min_failed=2, min_succeeded=1))
    play.submit(spec(roles=(role,)))
    play.to(Phase.RUNNING)
    play.crash(0)
    assert play.at(Phase.RUNNING)
    play.report("b", MemberState.DONE, exit=died(1, exit_code=0, node="b"))
    play.drain()
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED


# ---------------------------------------------------------------------------------------------- nodes and agents


def test_a_silent_node_is_waited_for_until_it_is_fenced(play: Play) -> None:
    play.submit(nodes=("a", "b", "c"))
    play.to(Phase.RUNNING)
    play.tell(ev.NodeSilent(node="c", boot=1, silent_s=40.0))
    assert play.at(Phase.RUNNING), "no rank of this attempt sits there"
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=30.0))
    assert play.at(Phase.DRAINING)
    play.stopped("a")
    assert not any(isinstance(action, CollectEvidence) for action in play.out)
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.wait(TIMERS.settle_s)
    play.collect()
    (record,) = play.records
    assert record.report.phrase == "NodeFailed"
    assert record.decision.kind is DecisionKind.RESTART
    assert record.decision.avoid == ()
    assert not record.decision.charged
    play.wait(0.0)
    assert play.at(Phase.ASSEMBLING), "c was silent too"
    play.report("c", attempt=0, stopped=0)
    play.to(Phase.PREPARING)
    assert play.commands(Prepare) == ["a", "c"]


def test_what_the_others_know_is_waited_for_from_their_last_exit_on_and_not_from_the_fence(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=30.0))
    play.report("a", MemberState.STOPPED, exit=died(0, signal=15), stopped=1)
    play.wait(TIMERS.settle_s)
    assert not any(isinstance(action, CollectEvidence) for action in play.out)
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.collect()
    assert play.records[0].report.phrase == "NodeFailed"


def test_a_node_lost_while_its_gang_drains_is_the_cause(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(0, exit_code=1, last_words=CLOSED_BY_RANK.format(1))
    play.wait(TIMERS.peer_wait_s)
    play.stopped("a")
    play.tell(ev.NodeSilent(node="b", boot=1, silent_s=30.0))
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.wait(TIMERS.settle_s)
    play.collect()
    assert play.records[0].report.phrase == "NodeFailed"


def test_a_new_agent_ends_what_its_node_had_begun(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.report("b", boot=2, attempt=0, stopped=0)
    assert play.at(Phase.DRAINING)
    assert play.gang.floor("b") == 1, "it must not start anything of this attempt again"
    play.report("b", MemberState.UP, boot=1)
    play.stopped("a")
    play.collect()


@pytest.mark.parametrize("phase", [Phase.CHECKING, Phase.PREPARING])
def test_a_new_agent_is_no_loss_where_nothing_had_begun(play: Play, phase: Phase) -> None:
    play.submit()
    play.report("b", attempt=0, stopped=0)
    play.to(phase)
    play.report("b", boot=2, attempt=0, stopped=0)
    play.to(Phase.PREPARING)
    assert play.gang.floor("b") == 0
    for state in (MemberState.PREPARED, MemberState.UP):
        play.report("a", state)
        play.report("b", state, boot=2)
    assert play.at(Phase.RUNNING)
    play.crash(0)
    play.stopped("a")
    assert play.at(Phase.DRAINING), "the new agent's worker still has to be stopped"
    play.report("b", boot=2, stopped=1)
    play.collect()


def test_a_node_that_stopped_by_itself_had_lost_its_lease(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.report("b", MemberState.STOPPED, stopped=1)
    assert play.at(Phase.DRAINING)
    play.stopped("a")
    play.collect()
    assert play.records[0].report.phrase == "NodeFailed"


def test_processes_that_outlive_sigkill_end_the_job(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash()
    play.stopped("b")
    out = play.wait(TIMERS.grace_s + TIMERS.kill_s + TIMERS.lease_s + TIMERS.drift_s + TIMERS.beat_s)
    assert any(isinstance(action, Say) and "outlived SIGKILL" in action.text for action in out)
    play.collect()
    assert play.records[0].decision.kind is DecisionKind.FAIL


# ---------------------------------------------------------------------------------------------- stops


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.STARTING, Phase.RUNNING])
def test_a_stop_has_the_reason_that_was_given(play: Play, phase: Phase) -> None:
    play.submit()
    play.to(phase)
    play.stop(reason="the reviewer asked")
    play.drain()
    assert play.final is not None
    assert play.final.outcome is Outcome.STOPPED
    assert "the reviewer asked" in play.final.report.reason
    assert not play.records[0].decision.charged


def test_a_second_stop_in_a_hurry_shortens_the_grace(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.stop()
    play.stop(grace_s=0.0)
    graces = [a.command.grace_s for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)]
    assert graces == [0.0, 0.0]
    play.drain()


def test_a_signal_to_the_owner_is_what_the_workers_get(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.stop(source=StopSource.SIGNAL, signal=2, hold_s=0.1)
    sent = [a.command for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)]
    assert [(stop.signal, stop.hold_s) for stop in sent] == [(2, 0.1)] * 2
    play.stop(source=StopSource.SIGNAL, signal=2, everywhere=True)
    sent = [a.command for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)]
    assert [(stop.signal, stop.hold_s) for stop in sent] == [(0, 0.0)] * 2, "they have got it from outside"
    play.drain()


@pytest.mark.parametrize("collecting", [False, True])
def test_workers_that_die_of_the_signal_that_asks_for_the_stop_are_stopped(play: Play, collecting: bool) -> None:
    """A scheduler signals every process, and the owner is the last to know."""
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(signal=15)
    if collecting:
        play.stopped()
    asked = play.out
    play.stop(source=StopSource.SIGNAL, signal=15, everywhere=True)
    if collecting:
        play.out = asked
        play.collect()
    else:
        play.drain()
    assert play.final is not None
    assert (play.final.outcome, play.final.report.phrase) == (Outcome.STOPPED, "StoppedByOperator")


def test_several_words_of_a_platform_are_no_hurry(play: Play) -> None:
    """Slurm sends one SIGTERM after another: the time that it leaves is what counts, and workers go on saving."""
    play.submit()
    play.to(Phase.RUNNING)
    play.stop(source=StopSource.PLATFORM, signal=15, save_s=12.0, within_s=16.0)
    play.now += 2.0
    play.stop(source=StopSource.PLATFORM, signal=15, save_s=20.0, within_s=30.0)
    (first, _) = [a.command for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)]
    assert (first.save_s, first.within_s) == (12.0, 14.0)
    play.stop(source=StopSource.PLATFORM, signal=15, save_s=3.0, within_s=4.0)
    (first, _) = [a.command for a in play.out if isinstance(a, Send) and isinstance(a.command, Stop)]
    assert (first.save_s, first.within_s) == (3.0, 4.0)
    play.drain()


def test_a_rank_that_handles_sigterm_and_one_that_lost_it_as_a_peer_fell_of_the_platforms_signal(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(exit_code=143, ended_at=play.now)
    play.crash(rank=0, exit_code=1, ended_at=play.now + 0.1)
    play.stopped()
    asked = play.out
    play.now += 0.2
    play.stop(source=StopSource.PLATFORM, signal=15, everywhere=True, at=play.now, reason="scancel of job 42")
    play.out = asked
    play.collect()
    assert play.records[-1].report.phrase == "StoppedByOperator"


@pytest.mark.parametrize("explained", [False, True])
def test_a_rank_that_fell_of_a_platforms_signal_before_its_meaning_was_known_is_not_to_blame(
    play: Play, explained: bool
) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(signal=15)
    play.stopped()
    asked = play.out
    if explained:
        play.stop(source=StopSource.PLATFORM, signal=15, everywhere=True, reason="scancel of job 42")
    play.out = asked
    play.collect()
    assert play.records[-1].report.phrase == ("StoppedByOperator" if explained else "KilledBySignal")


def test_a_stop_after_a_failure_keeps_the_attempts_cause(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash()
    play.stop()
    play.drain()
    assert play.final is not None
    assert play.final.outcome is Outcome.STOPPED
    assert play.records[0].report.phrase != play.final.report.phrase


def test_the_time_limit_is_a_stop_with_its_own_name(play: Play) -> None:
    play.submit(spec(time_limit_s=60.0))
    play.to(Phase.RUNNING)
    play.wait(60.0)
    assert play.at(Phase.DRAINING)
    play.drain()
    assert play.final is not None
    assert play.final.report.phrase == "TimeLimitReached"
    assert play.final.outcome is Outcome.FAILED


# ---------------------------------------------------------------------------------------------- restarts


def test_the_pause_holds_from_the_second_failure_on(play: Play) -> None:
    play.submit()
    for row in (1, 2, 3):
        play.to(Phase.RUNNING)
        play.crash()
        play.drain()
        assert play.at(Phase.BACKOFF)
        delay = play.records[-1].decision.delay_s
        assert delay == 0.0 if row == 1 else 2.0 ** (row - 2) / 2 <= delay <= 2.0 ** (row - 2)
        if delay:
            play.wait(delay * 0.99)
            assert play.at(Phase.BACKOFF)
        play.wait(delay)
    play.to(Phase.RUNNING)
    play.crash()
    play.drain()
    assert play.final is not None
    assert play.final.report == play.records[-1].report, "running out of restarts does not replace the cause"
    assert "all 3 restarts are used" in play.records[-1].decision.reason


def test_a_record_is_not_changed_by_what_comes_after_it(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash()
    play.drain()
    parts = dict(play.records[0].parts)
    assert parts["draining"] > 0.0
    play.wait(3.0)
    play.stop()
    assert play.records[0].parts == parts


# ---------------------------------------------------------------------------------------------- where the time went


def adds_up(record: AttemptRecord) -> bool:
    """All parts but two follow each other from the attempt's start to its end, without a gap, none told twice."""
    assert all(seconds >= 0.0 for seconds in record.parts.values())
    beside = sum(record.parts.get(name, 0.0) for name in ("backoff", "first_output"))
    return sum(record.parts.values()) - beside == pytest.approx(record.ended_at - record.started_at)


def test_each_part_of_an_attempt_is_told_and_they_add_up(play: Play) -> None:
    play.submit()
    play.wait(2.0)
    play.check()
    play.wait(3.0)
    play.all(MemberState.PREPARED)
    go = play.now
    play.wait(1.0)
    play.all(MemberState.UP)
    play.wait(60.0)
    died_at = play.now
    play.wait(0.3)
    play.crash(age_s=play.now - died_at)
    play.wait(4.0)
    play.stopped()
    drained = play.now
    known = play.gang.attempt_state.evidence(Phase.DRAINING, "j").workers
    workers = (replace(one, first_output_at=go + 9.0 - one.rank) for one in known)
    play.collect(explaining_s=0.5, workers=tuple(workers))
    (record,) = play.records
    assert record.ended_at == drained + 0.5, "what explaining took is in the attempt, and not in the pause after it"
    parts = record.parts
    assert (parts["backoff"], parts["first_output"], parts["decision"]) == pytest.approx((0.0, 8.0, 0.5))
    about = {"checking": 2.0, "preparing": 3.0, "starting": 1.0, "running": 60.0, "detection": 0.3, "draining": 4.0}
    assert {name: parts[name] for name in about} == pytest.approx(about, abs=0.05)
    assert adds_up(record)


def test_the_pause_belongs_to_the_attempt_that_it_led_to(play: Play) -> None:
    play.submit()
    for _ in range(3):
        play.to(Phase.RUNNING)
        play.crash()
        play.drain()
        play.wait(play.records[-1].decision.delay_s)
    first, second, third = play.records
    assert (first.parts["backoff"], second.parts["backoff"]) == (0.0, 0.0)
    assert second.decision.delay_s > 0.0
    assert third.parts["backoff"] == pytest.approx(second.decision.delay_s)
    assert all(map(adds_up, play.records))


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.STARTING, Phase.RUNNING])
def test_detection_is_taken_out_of_the_phase_in_which_somebody_died(play: Play, phase: Phase) -> None:
    play.submit()
    play.wait(1.0)
    play.to(phase)
    play.wait(5.0)
    play.crash(age_s=2.0)
    play.drain()
    (record,) = play.records
    assert record.parts["detection"] == pytest.approx(2.0, abs=0.05)
    assert record.parts[phase.value.lower()] == pytest.approx(3.0, abs=0.05)
    assert adds_up(record)


def test_a_death_in_one_phase_that_is_noticed_in_the_next_is_taken_out_of_both(play: Play) -> None:
    play.submit()
    play.to(Phase.STARTING)
    play.wait(5.0)
    play.to(Phase.RUNNING)
    play.wait(1.0)
    play.crash(age_s=3.0)
    play.drain()
    (record,) = play.records
    assert record.parts["running"] == 0.0
    assert record.parts["detection"] == pytest.approx(3.0, abs=0.05)
    assert adds_up(record)


def test_a_hang_is_detected_from_when_the_last_thing_moved(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.wait(100.0)
    hang = HangEvidence(attempt=1, silent_s=30.0, why="rank 1 is stopped", at=play.now - 0.5)
    play.tell(ev.HangFound(attempt=1, evidence=hang))
    play.drain()
    (record,) = play.records
    assert record.parts["detection"] == pytest.approx(30.5)
    assert record.parts["running"] == pytest.approx(69.5, abs=0.05)
    assert adds_up(record)


def test_an_attempt_that_was_stopped_or_never_began_adds_up_too(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.wait(7.0)
    play.stop()
    play.wait(2.0)
    play.drain()
    (record,) = play.records
    assert record.parts["detection"] == 0.0 and "first_output" not in record.parts
    assert record.parts["draining"] > 1.9
    assert adds_up(record)

    other = Play()
    other.submit()
    other.wait(6.0)
    other.check(CheckState.FAIL, failure=CheckFailure(check="disk", message="full"), fatal=True)
    (record,) = other.records
    assert record.parts == {"backoff": 0.0, "checking": 6.0}
    assert adds_up(record)


def test_a_success_has_no_detection(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.wait(3.0)
    play.all(MemberState.DONE)
    play.drain()
    (record,) = play.records
    assert "detection" not in record.parts
    assert adds_up(record)


# ---------------------------------------------------------------------------------------------- the owner's return


def test_a_healthy_attempt_that_its_agents_confirm_runs_on(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.tell(ev.OwnerRecovered())
    play.all(MemberState.UP)
    play.wait(1000.0)
    assert play.at(Phase.RUNNING)
    play.all(MemberState.DONE)
    play.drain()
    assert play.gang.attempt == 1


def test_an_attempt_that_nobody_confirms_is_stopped_uncharged(play: Play) -> None:
    play.submit(nodes=("a", "b", "c"))
    play.to(Phase.RUNNING)
    play.tell(ev.OwnerRecovered())
    play.report("a", MemberState.UP)
    play.wait(TIMERS.lease_s + TIMERS.drift_s + TIMERS.beat_s)
    assert play.at(Phase.DRAINING)
    play.stopped("a")
    play.tell(ev.NodeFenced(node="b", boot=1))
    play.wait(TIMERS.settle_s)
    play.collect()
    assert not play.records[0].decision.charged


def test_who_speaks_but_has_not_begun_is_no_loss_to_an_owner_that_came_back(play: Play) -> None:
    play.submit(spec(timers=replace(TIMERS, lease_s=10.0)))
    play.to(Phase.PREPARING)
    play.report("a", MemberState.PREPARED)
    play.tell(ev.OwnerRecovered())
    play.report("a", MemberState.PREPARED)
    play.report("b", attempt=0, stopped=0)
    play.wait(TIMERS.prepare_s - 1.0)
    assert play.at(Phase.PREPARING)
    play.report("b", MemberState.PREPARED)
    assert play.at(Phase.STARTING)


@pytest.mark.parametrize(
    ("phase", "kind"), [(Phase.CHECKING, RunChecks), (Phase.PREPARING, Send), (Phase.DRAINING, Send)]
)
def test_what_was_under_way_is_said_again(play: Play, phase: Phase, kind: type) -> None:
    play.submit()
    if phase is Phase.DRAINING:
        play.to(Phase.RUNNING)
        play.crash()
    else:
        play.to(phase)
    play.tell(ev.OwnerRecovered())
    assert {type(action) for action in play.out} == {kind}


def test_evidence_and_the_final_report_are_asked_for_and_given_again(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.all(MemberState.DONE)
    play.stopped()
    play.tell(ev.OwnerRecovered())
    play.collect()
    play.tell(ev.OwnerRecovered())
    assert [type(action) for action in play.out] == [FinishJob]


def test_nodes_that_checks_refuse_are_left_out(play: Play) -> None:
    play.submit(nodes=("a", "b", "c"))
    play.check(CheckState.FAIL, avoid=("a",), failure=CheckFailure(check="gpu", message="hot"))
    assert [type(action) for action in play.out] == [Avoid, RunChecks]
    play.check()
    assert play.commands(Prepare) == ["b", "c"]


def test_a_node_left_out_by_a_check_is_not_the_cause_of_a_later_failure(play: Play) -> None:
    play.submit(nodes=("a", "b", "c"))
    play.check(CheckState.FAIL, avoid=("a",), failure=CheckFailure(check="gpu", message="hot"))
    play.to(Phase.RUNNING)
    play.crash(rank=0)
    play.drain()
    assert play.records[0].report.phrase == "NativeCrash"


# ---------------------------------------------------------------------------------------------- anything at all


def _events() -> st.SearchStrategy[ev.Event]:
    nodes, attempts = st.sampled_from(["a", "b", "c"]), st.integers(0, 3)
    exits = st.sampled_from(
        [None, died(0), died(1, exit_code=1, last_words=CLOSED_BY_RANK.format(0)), died(1, exit_code=0)]
    )
    members = st.tuples(
        st.builds(Member, rank=st.integers(0, 2), state=st.sampled_from(MemberState), exit=exits, age_s=st.just(0.0))
    )
    reports = st.builds(
        Report,
        node=nodes,
        boot=st.integers(1, 2),
        attempt=attempts,
        stopped=attempts,
        sent=st.floats(0, 500),
        members=members,
    )
    states = st.sampled_from([CheckState.PASS, CheckState.FAIL, CheckState.DISABLED])
    return st.one_of(
        st.builds(ev.AgentReported, report=reports),
        st.builds(ev.AgentReported, report=reports),
        st.builds(ev.ChecksFinished, attempt=attempts, round=st.integers(1, 2), state=states, fatal=st.booleans()),
        st.builds(ev.ChecksFinished, attempt=attempts, round=st.just(1), state=st.just(CheckState.PASS)),
        st.builds(ev.NodeSilent, node=nodes, boot=st.integers(1, 2), silent_s=st.just(30.0)),
        st.builds(ev.NodeFenced, node=nodes, boot=st.integers(1, 2)),
        st.builds(
            ev.StopRequested,
            request=st.builds(
                StopRequest, reason=st.just("x"), final=st.booleans(), grace_s=st.sampled_from([None, 0.0])
            ),
        ),
        st.builds(ev.HangFound, attempt=attempts, evidence=st.just(HangEvidence(attempt=1, silent_s=9.0))),
        st.just(ev.OwnerRecovered()),
        st.just(ev.Tick()),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.3, 5.0, 60.0]), _events()), max_size=40))
def test_whatever_comes_it_moves_along_the_table_and_replays(steps: list[tuple[float, ev.Event]]) -> None:
    play = Play()
    play.submit()
    for pause, event in steps:
        play.wait(pause)
        play.tell(event)
        if any(isinstance(action, CollectEvidence) for action in play.out):
            play.collect()
    play.verify()


def test_the_first_event_is_the_job() -> None:
    gang = Recorded()
    assert gang.handle(ev.Tick(), 1.0) == []
    assert gang.next_wake() is None
    with pytest.raises(RuntimeError, match="JobSubmitted"):
        _ = gang.spec
    infos = (NodeInfo(name="a", slots=2),)
    gang.handle(ev.JobSubmitted(job_id="j", spec=spec(), nodes=infos), 1.0)
    assert gang.handle(ev.JobSubmitted(job_id="k", spec=spec(), nodes=infos), 2.0) == []
    assert gang.job_id == "j"
    assert len(gang.story()) == 1


def test_one_death_is_followed_to_the_next_start_by_its_cause(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(signal=9)
    told = len(play.history)
    cause = f"agent-reported:{told}"
    assert isinstance(play.history[told - 1][1], ev.AgentReported)
    play.drain()
    play.wait(1.0)
    play.check()
    follows = [action for _, _, out in play.history[told - 1 :] for action in out]
    assert {action.cause for action in follows} == {cause}
    kinds = dict.fromkeys(type(getattr(action, "command", action)).__name__ for action in follows)
    wanted = ["Stop", "CollectEvidence", "RecordAttempt", "RunChecks", "Prepare"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    assert all(f"({cause})" in line for line in play.gang.story()[-4:])
    play.all(MemberState.PREPARED)
    play.all(MemberState.UP)
    play.crash(signal=11)
    assert {action.cause for action in play.out} == {f"agent-reported:{len(play.history)}"}


def test_a_failure_that_waited_for_a_peers_word_is_the_cause_and_not_the_timer(play: Play) -> None:
    play.submit()
    play.to(Phase.RUNNING)
    play.crash(exit_code=1)
    told = len(play.history)
    out = play.wait(1.0)
    assert {action.cause for action in out} == {f"agent-reported:{told}"}
