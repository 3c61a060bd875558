"""The director of pre-checks, pure: who runs when, who is tried again, and what a failure leads to."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.gate import (
    Answered,
    CheckStep,
    Gate,
    GateEvent,
    GatePlan,
    Instruction,
    Kill,
    Progress,
    Start,
    TimePassed,
)
from holdfast.model.check_results import ActionKind, CheckOutcome, CheckState, FailedAction, Finding, InconclusivePolicy

AVOID = FailedAction(kind=ActionKind.AVOID)
REPLACE = FailedAction(kind=ActionKind.REPLACE)
STOP_ACTION = FailedAction(kind=ActionKind.STOP)
NOTE = FailedAction(kind=ActionKind.NOTE)


def good_finding(name: str = "a") -> Finding:
    return Finding(check=name, answer=CheckOutcome.GOOD, node="n1")


def bad_finding(*actions: FailedAction, nodes: tuple[str, ...] = ("n1",), name: str = "a") -> Finding:
    return Finding(
        check=name,
        answer=CheckOutcome.BAD,
        node="n1",
        result=1,
        message=f"{nodes[0]}: 3 of 9",
        nodes=nodes,
        actions=actions,
    )


def unsure(name: str = "a") -> Finding:
    return Finding(check=name, answer=CheckOutcome.INCONCLUSIVE, node="n1", nodes=("n1",), message="n1: it crashed")


def gate_plan(*steps: CheckStep, nodes: tuple[str, ...] = ("n1", "n2"), **more: object) -> GatePlan:
    return GatePlan(attempt=4, round=2, nodes=nodes, steps=steps, **more)  # type: ignore[arg-type]  # test's shorthand


def started(instructions: list[Instruction]) -> list[int]:
    return [instruction.step for instruction in instructions if isinstance(instruction, Start)]


def test_no_checks_is_disabled() -> None:
    gate = Gate(gate_plan(), 0.0)
    assert gate.state is CheckState.DISABLED
    answer = gate.finished()
    assert answer is not None
    assert (answer.state, answer.attempt, answer.round) == ("DISABLED", 4, 2)
    assert gate.start(0.0) == []
    assert gate.next_wake() is None


def test_all_good_is_pass() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", alone=False), CheckStep(name="b", alone=False)), 0.0)
    assert started(gate.start(0.0)) == [0, 1]
    assert gate.handle(Answered(step=0, tried=1, finding=good_finding()), 1.0) == []
    assert gate.state is CheckState.CHECKING
    assert gate.finished() is None
    gate.handle(Answered(step=1, tried=1, finding=good_finding("b")), 1.0)
    answer = gate.finished()
    assert answer is not None
    assert (answer.state, answer.failure, answer.warnings) == ("PASS", None, ())


def test_independent_ones_run_side_by_side_and_the_others_in_order() -> None:
    steps = (
        CheckStep(name="a", alone=False),
        CheckStep(name="b", alone=False),
        CheckStep(name="c", alone=True),
        CheckStep(name="d", alone=True),
        CheckStep(name="e", alone=False),
    )
    gate = Gate(gate_plan(*steps), 0.0)
    assert started(gate.start(0.0)) == [0, 1]
    assert started(gate.handle(Answered(step=1, tried=1, finding=good_finding()), 1.0)) == []
    assert started(gate.handle(Answered(step=0, tried=1, finding=good_finding()), 1.0)) == [2]
    assert started(gate.handle(Answered(step=2, tried=1, finding=good_finding()), 2.0)) == [3]
    assert started(gate.handle(Answered(step=3, tried=1, finding=good_finding()), 3.0)) == [4]


def test_fail_then_pass_on_retry_passes_and_says_so() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=2, interval_s=5.0)), 0.0)
    gate.start(0.0)
    assert gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 1.0) == []
    assert gate.next_wake() == 6.0
    assert gate.handle(TimePassed(), 5.9) == []
    assert gate.handle(TimePassed(), 6.0) == [Start(step=0, tried=2, deadline=60.0)]
    gate.handle(Answered(step=0, tried=2, finding=good_finding()), 7.0)
    answer = gate.finished()
    assert answer is not None
    assert answer.state == "PASS"
    assert answer.warnings == ("a passed at try 2; before: n1: 3 of 9",)


def test_retries_end_at_the_limit() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=1, interval_s=1.0)), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 0.0)
    assert started(gate.handle(TimePassed(), 1.0)) == [0]
    gate.handle(Answered(step=0, tried=2, finding=bad_finding(AVOID)), 1.5)
    assert gate.state is CheckState.FAIL


def test_retries_end_at_the_time() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=100, interval_s=5.0, limit_s=7.0)), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 0.5)
    gate.handle(TimePassed(), 5.5)
    gate.handle(Answered(step=0, tried=2, finding=bad_finding(AVOID)), 6.0)  # the next try would begin at 11
    assert gate.state is CheckState.FAIL


def test_an_action_may_ask_for_more_retries() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=0, interval_s=1.0)), 0.0)
    gate.start(0.0)
    finding = bad_finding(FailedAction(kind=ActionKind.RETRY, times=1), AVOID)
    gate.handle(Answered(step=0, tried=1, finding=finding), 0.0)
    assert gate.finished() is None
    gate.handle(TimePassed(), 1.0)
    gate.handle(Answered(step=0, tried=2, finding=finding), 1.0)
    assert gate.state is CheckState.FAIL


def finished(gate: Gate, finding: Finding) -> tuple[tuple[str, ...], bool]:
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=finding), 0.0)
    answer = gate.finished()
    assert answer is not None
    assert answer.state == "FAIL"
    assert answer.failure is not None
    return answer.avoid, answer.fatal


@pytest.mark.parametrize(
    ("actions", "nodes", "needed", "expected"),
    [
        ((AVOID,), ("n1",), 1, (("n1",), False)),
        ((STOP_ACTION, REPLACE, AVOID), ("n1",), 1, (("n1",), False)),
        ((AVOID, REPLACE), ("n1",), 2, (("n1",), False)),
        ((AVOID, STOP_ACTION), ("n1",), 2, ((), True)),
        ((AVOID,), ("n1",), 2, (("n1",), False)),
        ((REPLACE,), ("n1", "n2"), 1, (("n1", "n2"), False)),
        ((STOP_ACTION,), ("n1",), 1, ((), True)),
        ((), ("n1",), 1, ((), True)),
        ((AVOID, STOP_ACTION), ("somewhere-else",), 1, ((), True)),
        ((AVOID,), ("somewhere-else",), 1, ((), True)),
    ],
)
def test_the_mildest_action_that_can_help(
    actions: tuple[FailedAction, ...],
    nodes: tuple[str, ...],
    needed: int,
    expected: tuple[tuple[str, ...], bool],
) -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=0), needed=needed), 0.0)
    assert finished(gate, bad_finding(*actions, nodes=nodes)) == expected


def test_a_note_is_a_warning_and_not_a_failure() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=3)), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(NOTE)), 0.0)
    answer = gate.finished()
    assert answer is not None
    assert (answer.state, answer.warnings) == ("PASS", ("a: n1: 3 of 9",))


def test_a_check_may_be_asked_to_only_warn() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=3, only_warn=True)), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(STOP_ACTION)), 0.0)
    answer = gate.finished()
    assert answer is not None
    assert (answer.state, answer.warnings) == ("PASS", ("a: n1: 3 of 9",))
    inconclusive = Gate(
        gate_plan(CheckStep(name="a", retries=0, only_warn=True, inconclusive=InconclusivePolicy.FAIL)), 0.0
    )
    inconclusive.start(0.0)
    inconclusive.handle(Answered(step=0, tried=1, finding=unsure()), 0.0)
    assert inconclusive.state is CheckState.FAIL


def test_fail_avoid_pass_elsewhere() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=0)), 0.0)
    assert finished(gate, bad_finding(AVOID)) == (("n1",), False)
    again = Gate(GatePlan(attempt=4, round=3, nodes=("n2",), steps=(CheckStep(name="a", retries=0),)), 1.0)
    again.start(1.0)
    again.handle(Answered(step=0, tried=1, finding=good_finding()), 2.0)
    answer = again.finished()
    assert answer is not None
    assert (answer.state, answer.round) == ("PASS", 3)


def test_inconclusive_warns_or_fails_and_never_passes_silently() -> None:
    for policy, state in ((InconclusivePolicy.WARN, "PASS"), (InconclusivePolicy.FAIL, "FAIL")):
        gate = Gate(gate_plan(CheckStep(name="a", retries=0, inconclusive=policy)), 0.0)
        gate.start(0.0)
        gate.handle(Answered(step=0, tried=1, finding=unsure()), 0.0)
        answer = gate.finished()
        assert answer is not None
        assert answer.state == state
        if policy is InconclusivePolicy.WARN:
            assert answer.warnings == ("a is inconclusive: n1: it crashed",)
        else:
            assert answer.failure is not None
            assert answer.failure.inconclusive
            assert answer.avoid == ("n1",)


def test_a_failure_is_not_forgotten_when_the_retry_crashes() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", retries=1, interval_s=1.0)), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 0.0)
    gate.handle(TimePassed(), 1.0)
    gate.handle(Answered(step=0, tried=2, finding=unsure()), 1.0)
    answer = gate.finished()
    assert answer is not None
    assert answer.failure is not None
    assert answer.failure.message == "n1: 3 of 9"
    assert not answer.failure.inconclusive


def test_out_of_time_is_killed_and_inconclusive() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", limit_s=3.0), nodes=("n1",)), 10.0)
    gate.start(10.0)
    assert gate.next_wake() == 13.0
    assert gate.handle(TimePassed(), 13.0) == [Kill(step=0, tried=1, why="no answer within 3 s")]
    answer = gate.finished()
    assert answer is not None
    assert answer.state == "PASS"
    assert answer.warnings == ("a is inconclusive: n1: no answer within 3 s; it was stopped",)


def test_a_late_answer_changes_nothing() -> None:
    gate = Gate(gate_plan(CheckStep(name="a", limit_s=3.0, inconclusive=InconclusivePolicy.FAIL)), 0.0)
    gate.start(0.0)
    gate.handle(TimePassed(), 3.0)
    assert gate.handle(Answered(step=0, tried=1, finding=good_finding()), 3.1) == []
    assert gate.state is CheckState.FAIL


def test_the_round_has_an_end_of_its_own() -> None:
    steps = (CheckStep(name="a", limit_s=100.0), CheckStep(name="b", limit_s=100.0))
    gate = Gate(gate_plan(*steps, deadline_s=5.0), 0.0)
    gate.start(0.0)
    assert gate.next_wake() == 5.0
    assert gate.handle(TimePassed(), 5.0) == [Kill(step=0, tried=1, why="no answer within 5 s")]
    answer = gate.finished()
    assert answer is not None
    assert len(answer.warnings) == 2
    assert "not run" in answer.warnings[1]


def test_after_a_failure_nothing_new_starts_but_what_runs_may_finish() -> None:
    steps = (
        CheckStep(name="a", alone=False, retries=0),
        CheckStep(name="b", alone=False, retries=0),
        CheckStep(name="c"),
    )
    gate = Gate(gate_plan(*steps), 0.0)
    gate.start(0.0)
    assert gate.handle(Answered(step=1, tried=1, finding=bad_finding(AVOID, nodes=("n2",), name="b")), 1.0) == []
    assert gate.state is CheckState.CHECKING
    assert gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 2.0) == []
    answer = gate.finished()
    assert answer is not None
    assert answer.failure is not None
    assert answer.failure.check == "a"
    assert answer.avoid == ("n1", "n2")
    assert answer.warnings == ("b failed too: n2: 3 of 9",)
    assert [progress for _, progress, _, _ in gate.progress()] == [Progress.FAILED, Progress.FAILED, Progress.SKIPPED]


def test_a_check_that_stops_the_job_stops_the_others_at_once() -> None:
    steps = (CheckStep(name="a", alone=False), CheckStep(name="b", alone=False, retries=0))
    gate = Gate(gate_plan(*steps), 0.0)
    gate.start(0.0)
    out = gate.handle(Answered(step=1, tried=1, finding=bad_finding(STOP_ACTION, name="b")), 1.0)
    assert out == [Kill(step=0, tried=1, why="b stops the job")]
    answer = gate.finished()
    assert answer is not None
    assert answer.fatal


def test_the_hardest_failure_is_the_one_that_is_told() -> None:
    steps = (CheckStep(name="a", alone=False, retries=0), CheckStep(name="b", alone=False, retries=0))
    gate = Gate(gate_plan(*steps, keep_going=True), 0.0)
    gate.start(0.0)
    gate.handle(Answered(step=0, tried=1, finding=bad_finding(AVOID)), 1.0)
    gate.handle(Answered(step=1, tried=1, finding=bad_finding(STOP_ACTION, name="b")), 1.0)
    answer = gate.finished()
    assert answer is not None
    assert answer.failure is not None
    assert answer.failure.check == "b"


def test_keep_going_runs_everything() -> None:
    steps = (CheckStep(name="a", retries=0), CheckStep(name="b", retries=0))
    gate = Gate(gate_plan(*steps, keep_going=True), 0.0)
    gate.start(0.0)
    assert started(gate.handle(Answered(step=0, tried=1, finding=bad_finding(STOP_ACTION)), 1.0)) == [1]


FINDINGS = st.sampled_from(
    [
        good_finding(),
        unsure(),
        bad_finding(AVOID),
        bad_finding(STOP_ACTION),
        bad_finding(NOTE),
        bad_finding(REPLACE, AVOID),
        bad_finding(),
        bad_finding(FailedAction(kind=ActionKind.RETRY, times=2)),
    ]
)
STEP_LISTS = st.lists(
    st.builds(
        CheckStep,
        name=st.just("a"),
        retries=st.integers(0, 3),
        interval_s=st.floats(0.0, 6.0),
        limit_s=st.floats(0.5, 20.0),
        alone=st.booleans(),
        inconclusive=st.sampled_from(InconclusivePolicy),
    ),
    max_size=6,
)


@given(
    steps=STEP_LISTS,
    script=st.lists(st.tuples(st.floats(0.0, 30.0), FINDINGS), min_size=1, max_size=30),
    deadline_s=st.none() | st.floats(1.0, 40.0),
    keep_going=st.booleans(),
)
def test_the_gate_always_closes_in_time_and_a_replay_says_the_same(
    steps: list[CheckStep], script: list[tuple[float, Finding]], deadline_s: float | None, keep_going: bool
) -> None:
    """A crash of the director loses nothing that a replay of its events does not bring back."""
    the_plan = gate_plan(*steps, deadline_s=deadline_s, keep_going=keep_going)
    gate = Gate(the_plan, 0.0)
    pending: list[tuple[float, int, Answered]] = []
    history: list[tuple[GateEvent, float]] = []
    said: list[list[Instruction]] = []
    now, runs = 0.0, 0

    def follow(instructions: list[Instruction]) -> None:
        nonlocal runs
        said.append(instructions)
        for instruction in instructions:
            if isinstance(instruction, Start):
                takes, finding = script[runs % len(script)]
                runs += 1
                answer = Answered(step=instruction.step, tried=instruction.tried, finding=finding)
                heapq.heappush(pending, (now + takes, runs, answer))

    follow(gate.start(0.0))
    while gate.state is CheckState.CHECKING:
        wake = gate.next_wake()
        assert wake is not None, "a gate that is not closed always has a next moment"
        event: GateEvent
        if pending and pending[0][0] <= wake:
            now, _, event = heapq.heappop(pending)
        else:
            now, event = max(now, wake), TimePassed()
        history.append((event, now))
        follow(gate.handle(event, now))
    ends = [step.limit_s for step in steps]
    assert now <= sum(ends) + 1e-9
    assert deadline_s is None or now <= deadline_s + 1e-9

    again = Gate(the_plan, 0.0)
    assert [again.start(0.0), *(again.handle(event, at) for event, at in history)] == said
    assert again.finished() == gate.finished()
    answer = gate.finished()
    assert answer is not None
    if steps and answer.state == "PASS":
        assert all(progress in (Progress.PASSED, Progress.WARNED) for _, progress, _, _ in gate.progress())
    if answer.state == "FAIL":
        assert answer.failure is not None
        assert answer.fatal or answer.avoid
