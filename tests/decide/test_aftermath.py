"""The hooks after an attempt, as the gang sees them: asked for once its end is explained, and waited for."""

from __future__ import annotations

from typing import Any

from gang_play import Play, spec
from holdfast.decide.after_hooks import ANSWER_S
from holdfast.decide.phases import Phase
from holdfast.decide.queries.answer_collection import AnswerCollection
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunHooks
from holdfast.model.exit_report import Outcome
from holdfast.model.gang_protocol import MemberState
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.runtime_plan import Hook, HookMoment, RuntimePlan
from holdfast.model.sidecar_ends import SideFailure, SideKind

HOOKS = RuntimePlan(
    hooks=(
        Hook(when=HookMoment.BEFORE, command=("a",), limit_s=50.0),
        Hook(when=HookMoment.SUCCEEDED, command=("b",), name="upload", limit_s=40.0),
        Hook(when=HookMoment.ENDED, command=("c",), limit_s=20.0),
    )
)
FAILED = SideFailure(
    kind=SideKind.HOOK, name="upload", node="a", when=HookMoment.SUCCEEDED, exit_code=5, last_words="full\n"
)


def hooked(**changes: Any) -> Play:
    play = Play()
    play.submit(spec(runtime=HOOKS, **changes))
    play.to(Phase.RUNNING)
    return play


def answer_evidence(play: Play) -> None:
    [asked] = [action for action in play.out if isinstance(action, CollectEvidence)]
    play.tell(ev.EvidenceCollected(attempt=asked.attempt, evidence=asked.evidence))


def succeed(play: Play) -> RunHooks:
    for node in "ab":
        play.report(node, MemberState.DONE, exit=ok(play, node))
    play.stopped()
    answer_evidence(play)
    return hooks_asked(play)


def ok(play: Play, node: str) -> Any:
    from gang_play import died

    [known] = play.gang.attempt_state.roster.on(node)
    return died(known.placement.rank, exit_code=0, node=node, attempt=play.gang.attempt)


def hooks_asked(play: Play) -> RunHooks:
    [order] = [action for action in play.out if isinstance(action, RunHooks)]
    return order


def test_a_job_succeeds_only_after_its_hooks() -> None:
    play = hooked()
    order = succeed(play)
    assert (order.nodes, order.end.outcome, order.end.code, order.limit_s) == (("a", "b"), Outcome.SUCCEEDED, 0, 60.0)
    assert play.at(Phase.DRAINING)
    play.tell(ev.HooksFinished(attempt=1))
    play.tell(ev.Tick())
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED
    play.verify()


def test_a_failed_hook_fails_the_attempt_and_another_follows() -> None:
    play = hooked()
    succeed(play)
    play.tell(ev.HooksFinished(attempt=1, failures=(FAILED,)))
    play.tell(ev.Tick())
    [record] = play.records
    assert (record.report.phrase, record.report.code, record.decision.charged) == ("HookFailed", 221, True)
    assert record.report.reason == "hook upload (taskSucceeds) on a ended with exit status 5: full"
    assert play.at(Phase.BACKOFF)
    play.verify()


def test_a_failed_attempt_keeps_its_cause() -> None:
    play = hooked(restarts=RestartPolicy(max_restarts=0))
    play.crash()
    play.stopped()
    answer_evidence(play)
    assert hooks_asked(play).end.outcome is Outcome.FAILED
    play.tell(ev.HooksFinished(attempt=1, failures=(FAILED,)))
    play.tell(ev.Tick())
    assert play.final is not None
    assert play.final.report.phrase != "HookFailed"
    play.verify()


def test_nodes_that_do_not_answer_hold_the_decision_no_longer_than_their_hooks_may_take() -> None:
    play = hooked()
    succeed(play)
    play.wait(60.0 + ANSWER_S - 1)
    assert play.at(Phase.DRAINING)
    play.wait(1.5)
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED
    play.verify()


def test_an_answer_of_another_attempt_decides_nothing() -> None:
    play = hooked()
    succeed(play)
    play.tell(ev.HooksFinished(attempt=2, failures=(FAILED,)))
    assert play.at(Phase.DRAINING)
    assert play.gang.attempt_state.hooks is not None
    play.verify()


def test_a_stop_makes_the_hooks_end() -> None:
    play = hooked()
    succeed(play)
    play.stop(grace_s=3.0)
    order = hooks_asked(play)
    assert (order.stop, order.within_s) == (True, 3.0)
    play.tell(ev.HooksFinished(attempt=1))
    play.tell(ev.Tick())
    assert play.final is not None
    assert play.final.outcome is Outcome.SUCCEEDED
    play.verify()


def test_a_stop_that_leaves_no_time_runs_no_hook() -> None:
    play = hooked()
    play.stop(grace_s=0.0)
    play.stopped()
    answer_evidence(play)
    assert not [action for action in play.out if isinstance(action, RunHooks)]
    play.tell(ev.Tick())
    assert play.at(Phase.DONE)
    play.verify()


def test_an_owner_that_is_back_asks_again() -> None:
    play = hooked()
    order = succeed(play)
    play.tell(ev.OwnerRecovered())
    assert hooks_asked(play).end == order.end
    play.tell(ev.HooksFinished(attempt=1))
    play.tell(ev.Tick())
    assert play.final is not None
    play.verify()


def test_a_node_that_is_fenced_is_not_waited_for() -> None:
    play = hooked()
    succeed(play)
    play.tell(ev.NodeFenced(node="b", boot=1))
    assert hooks_asked(play).nodes == ("a",)
    play.tell(ev.NodeFenced(node="a", boot=1))
    play.tell(ev.Tick())
    assert play.final is not None
    play.verify()


def test_the_hooks_before_lengthen_the_time_for_making_ready() -> None:
    play = Play()
    play.submit(spec(runtime=HOOKS))
    play.to(Phase.PREPARING)
    play.wait(play.gang.spec.timers.prepare_s + 45.0)
    assert play.at(Phase.PREPARING)
    play.wait(6.0)
    assert not play.at(Phase.PREPARING)


def test_the_answers_of_several_nodes_are_one() -> None:
    order = succeed(hooked())
    roundup = AnswerCollection()
    roundup.ask(order, 0.0)
    assert roundup.hear("a", ev.HooksFinished(attempt=1, failures=(FAILED,)), 1.0) is None
    whole = roundup.hear("b", ev.HooksFinished(attempt=1), 2.0)
    assert whole == ev.HooksFinished(attempt=1, failures=(FAILED,), cause=order.cause)
    roundup.ask(order, 3.0)
    assert roundup.hear("a", ev.HooksFinished(attempt=1, failures=(FAILED,)), 4.0) is None
    due = roundup.next_wake()
    assert due is not None
    [late] = roundup.due(due)
    assert late == ev.HooksFinished(attempt=1, failures=(FAILED,), unanswered=("b",), cause=order.cause)
