"""What follows a failed attempt: the ladder, the budgets, the pauses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from conftest import Holdfast
from holdfast.decide.attempt_ending import MOST_LINE, decision_line
from holdfast.decide.recovery.progress_signs import signs_of
from holdfast.decide.recovery.recovery import as_before, recover
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Blame, Culprit, ExitReport, Rerun, Trigger
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.progress_facts import Count, Sign, SignKind

STEP_TOLD = Sign(kind=SignKind.STEP, text="holdfast.progress told step 5 (3 in attempt 1)")
COUNT = Sign(kind=SignKind.COUNT, text="the output counts step 5 (step 3 in attempt 1)")
CHECKPOINT = Sign(kind=SignKind.CHECKPOINT, text="checkpoint last.pt was finished")
LONGER = Sign(kind=SignKind.LONGER, text="it ran for 300 s (the longest run before: 20 s in attempt 1)")
HEALTHY = Sign(kind=SignKind.HEALTHY, text="it ran for 700 s, which counts as healthy")

WIDE = RestartPolicy(
    max_restarts=99, platform_max_restarts=99, max_in_a_row=99, window_restarts=99, max_isolations=2, backoff_cap_s=20.0
)


def report_with(rerun: Rerun = Rerun.UNKNOWN, blame: Blame = Blame.UNKNOWN, **changes: Any) -> ExitReport:
    fields: dict[str, Any] = {
        "code": 255,
        "phrase": "Thing",
        "blame": blame,
        "rerun": rerun,
        "reason": "r",
        "solution": "s",
        "first": Culprit(role="worker", rank=1, node="b"),
        "attempt": 9,
    }
    return ExitReport(**(fields | changes))


def past_attempts(count: int, *, at: float = 0.0, **changes: Any) -> list[AttemptRecord]:
    """So many failed attempts before this one, each restarted."""
    fields: dict[str, Any] = {
        "started_at": at,
        "ended_at": at,
        "report": report_with(),
        "decision": Decision(kind=DecisionKind.RESTART, reason="again", charged=True),
    }
    return [AttemptRecord(**(fields | {"attempt": index + 1} | changes)) for index in range(count)]


def decide(said: ExitReport, history: list[AttemptRecord] | None = None, **changes: Any) -> Decision:
    fields: dict[str, Any] = {
        "now": 1000.0,
        "jitter": 0.5,
        "spare": False,
    }
    policy = changes.pop("policy", WIDE)
    return recover(said, policy, history or [], **(fields | changes))


@pytest.mark.parametrize(
    ("rerun", "spare", "kind", "avoid"),
    [
        (Rerun.NOW, False, DecisionKind.RESTART, ()),
        (Rerun.LATER, False, DecisionKind.RESTART, ()),
        (Rerun.UNKNOWN, False, DecisionKind.RESTART, ()),
        (Rerun.UNKNOWN, True, DecisionKind.RESTART, ()),
        (Rerun.NEVER, True, DecisionKind.FAIL, ()),
        (Rerun.ELSEWHERE, True, DecisionKind.REPLACE, ("b",)),
        (Rerun.ELSEWHERE, False, DecisionKind.FAIL, ()),
    ],
)
def test_the_first_failure(rerun: Rerun, spare: bool, kind: DecisionKind, avoid: tuple[str, ...]) -> None:
    decision = decide(report_with(rerun), spare=spare)
    assert (decision.kind, decision.avoid) == (kind, avoid)
    assert decision.reason


@pytest.mark.parametrize("blame", list(Blame))
def test_only_what_is_the_users_is_charged_to_the_user(blame: Blame) -> None:
    assert decide(report_with(blame=blame)).charged is (blame in (Blame.WORKLOAD, Blame.UNKNOWN))


@pytest.mark.parametrize(
    ("rerun", "before", "delays"),
    [
        (Rerun.UNKNOWN, 0, (0.0, 0.0)),
        (Rerun.UNKNOWN, 1, (0.5, 1.0)),
        (Rerun.UNKNOWN, 2, (1.0, 2.0)),
        (Rerun.UNKNOWN, 5, (8.0, 16.0)),
        (Rerun.UNKNOWN, 6, (10.0, 20.0)),
        (Rerun.UNKNOWN, 90, (10.0, 20.0)),
        (Rerun.LATER, 0, (0.5, 1.0)),
        (Rerun.LATER, 1, (1.0, 2.0)),
    ],
)
def test_the_pause_doubles_up_to_its_cap(rerun: Rerun, before: int, delays: tuple[float, float]) -> None:
    said, history = report_with(rerun, Blame.NETWORK), past_attempts(before)
    assert decide(said, history, jitter=0.0).delay_s == pytest.approx(delays[0])
    assert decide(said, history, jitter=1.0).delay_s == pytest.approx(delays[1])


@pytest.mark.parametrize("what", [{"signs": (STEP_TOLD,)}, {"signs": (COUNT,)}, {"signs": (HEALTHY,)}])
def test_progress_and_health_begin_the_row_anew(what: dict[str, Any]) -> None:
    assert decide(report_with(), past_attempts(4), **what).delay_s == 0.0
    assert decide(report_with(), [*past_attempts(4), *past_attempts(1, progressed=True)]).delay_s == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("policy", "count", "words"),
    [
        ({"max_restarts": 2}, 2, "both restarts are used"),
        ({"max_restarts": 0}, 0, "switched off"),
        ({"max_in_a_row": 3}, 3, "4 failures in a row without progress"),
        ({"window_restarts": 3, "window_s": 3600.0}, 3, "3 restarts within 1 h"),
    ],
)
def test_every_budget_ends(policy: dict[str, Any], count: int, words: str) -> None:
    wide = {"max_restarts": 99, "platform_max_restarts": 99, "max_in_a_row": 99, "window_restarts": 99}
    decision = decide(report_with(), past_attempts(count), policy=RestartPolicy(**(wide | policy)))
    assert decision.kind is DecisionKind.FAIL
    assert words in decision.reason
    if count:
        fewer = decide(report_with(), past_attempts(count - 1), policy=RestartPolicy(**(wide | policy)))
        assert fewer.kind is DecisionKind.RESTART


def test_what_is_not_the_users_spends_a_budget_of_its_own() -> None:
    policy = RestartPolicy(max_restarts=1, platform_max_restarts=2, max_in_a_row=99)
    hardware = report_with(blame=Blame.HARDWARE)
    assert decide(hardware, past_attempts(1), policy=policy).kind is DecisionKind.RESTART
    uncharged = past_attempts(2, decision=Decision(kind=DecisionKind.RESTART, reason="again", charged=False))
    assert decide(hardware, uncharged, policy=policy).kind is DecisionKind.FAIL
    assert decide(report_with(), uncharged, policy=policy).kind is DecisionKind.RESTART


def test_restarts_long_ago_do_not_count_in_the_window() -> None:
    policy = RestartPolicy(max_restarts=99, max_in_a_row=99, window_restarts=2, window_s=100.0)
    assert decide(report_with(), past_attempts(5, at=0.0), policy=policy, now=1000.0).kind is DecisionKind.RESTART
    assert decide(report_with(), past_attempts(5, at=950.0), policy=policy, now=1000.0).kind is DecisionKind.FAIL


@pytest.mark.parametrize("sign", [STEP_TOLD, COUNT])
def test_a_higher_step_restores_the_users_budget(sign: Sign) -> None:
    policy = RestartPolicy(max_restarts=2)
    assert decide(report_with(), past_attempts(2), policy=policy).kind is DecisionKind.FAIL
    again = decide(report_with(), past_attempts(2), policy=policy, signs=(sign,))
    assert "restart 1 of 2" in again.reason
    assert sign.text in again.reason
    # The restart after an attempt that got further is the first of its new budget.
    history = [*past_attempts(2), *past_attempts(1, signs=(sign,)), *past_attempts(1)]
    assert decide(report_with(), history[:3], policy=policy).kind is DecisionKind.RESTART
    assert decide(report_with(), history, policy=policy).kind is DecisionKind.FAIL


@pytest.mark.parametrize("sign", [CHECKPOINT, LONGER, HEALTHY])
def test_other_signs_restore_no_budget(sign: Sign) -> None:
    policy = RestartPolicy(max_restarts=2)
    assert decide(report_with(), past_attempts(2), policy=policy, signs=(sign,)).kind is DecisionKind.FAIL
    assert decide(report_with(), past_attempts(2, signs=(sign,)), policy=policy).kind is DecisionKind.FAIL


def test_progress_restores_only_the_users_budget() -> None:
    policy = RestartPolicy(platform_max_restarts=2)
    uncharged = past_attempts(
        2, decision=Decision(kind=DecisionKind.RESTART, reason="again", charged=False), signs=(STEP_TOLD,)
    )
    hardware = report_with(blame=Blame.HARDWARE)
    assert decide(hardware, uncharged, policy=policy, signs=(STEP_TOLD,)).kind is DecisionKind.FAIL


def test_the_window_holds_whatever_the_progress() -> None:
    policy = RestartPolicy(max_restarts=2, window_restarts=4, window_s=3600.0)
    history = past_attempts(4, at=900.0, signs=(STEP_TOLD,), progressed=True)
    assert decide(report_with(), history[:3], policy=policy, signs=(STEP_TOLD,)).kind is DecisionKind.RESTART
    decision = decide(report_with(), history, policy=policy, signs=(STEP_TOLD,))
    assert decision.kind is DecisionKind.FAIL
    assert "4 restarts within 1 h" in decision.reason


SAME = "Thing|SIGSEGV|||||"


@pytest.mark.parametrize(
    ("said", "judged"),
    [
        (report_with(blame=Blame.WORKLOAD, exception="ValueError", fingerprint=SAME), True),
        (report_with(blame=Blame.WORKLOAD, fingerprint=SAME), True),
        (report_with(blame=Blame.UNKNOWN, fingerprint=SAME), True),
        (report_with(blame=Blame.UNKNOWN), False),
        (report_with(Rerun.LATER, Blame.WORKLOAD, fingerprint=SAME), False),
        (report_with(Rerun.NOW, Blame.WORKLOAD, fingerprint=SAME), False),
        (report_with(Rerun.UNKNOWN, Blame.HARDWARE, fingerprint=SAME), False),
        (report_with(Rerun.UNKNOWN, Blame.WORKLOAD, fingerprint=SAME, trigger=Trigger.FAULT), False),
        (report_with(Rerun.LATER, Blame.PLATFORM, fingerprint=SAME), False),
        (report_with(Rerun.LATER, Blame.PLATFORM, fingerprint=SAME, phrase="AddressInUse"), True),
    ],
)
def test_the_same_failure_twice_without_progress_would_come_again(said: ExitReport, judged: bool) -> None:
    kind = DecisionKind.FAIL if judged else DecisionKind.RESTART
    decision = decide(said, past_attempts(1, report=said))
    assert decision.kind is kind
    if judged:
        assert "attempts 1 and 9 ended with the same" in decision.reason
        assert "no sign of progress" in decision.reason


@pytest.mark.parametrize("sign", [STEP_TOLD, COUNT, CHECKPOINT, LONGER, HEALTHY])
def test_any_sign_of_progress_makes_it_another_failure(sign: Sign) -> None:
    said = report_with(fingerprint=SAME)
    assert decide(said, past_attempts(1, report=said), signs=(sign,)).kind is DecisionKind.RESTART
    # What the attempt before had gained was gained before its failure: this one gained nothing.
    assert decide(said, past_attempts(1, report=said, signs=(sign,))).kind is DecisionKind.FAIL


@pytest.mark.parametrize("phrase", ["CollectiveTimeout", "HungWorker"])
def test_an_attempt_that_only_waited_long_was_not_healthy(phrase: str) -> None:
    said = report_with(phrase=phrase, fingerprint=SAME)
    assert decide(said, past_attempts(1, report=said), signs=(HEALTHY,)).kind is DecisionKind.FAIL
    assert decide(said, past_attempts(1, report=said), signs=(HEALTHY, COUNT)).kind is DecisionKind.RESTART


@pytest.mark.parametrize(
    ("reached", "seen"), [(500, []), (499, [SignKind.HEALTHY]), (501, [SignKind.COUNT, SignKind.HEALTHY])]
)
def test_a_long_run_to_the_very_same_step_is_no_sign_of_progress(reached: int, seen: list[SignKind]) -> None:
    def counts(step: int) -> tuple[Count, ...]:
        return (Count(name="step", value=step),)

    history = past_attempts(1, counts=counts(500), parts={"running": 900.0})
    evidence = AttemptEvidence(attempt=2, workers=())
    signs = signs_of(evidence, counts(reached), None, history, ran_s=900.0, healthy_s=600.0)
    assert [sign.kind for sign in signs] == seen


@pytest.mark.parametrize("name", ["iteration", "epoch", "step"])
def test_a_count_that_stands_alone_in_its_attempt_is_no_sign_of_progress(name: str) -> None:
    def signs(count: Count, *before: Count) -> list[SignKind]:
        history = past_attempts(1, counts=before, parts={"running": 9.0})
        evidence = AttemptEvidence(attempt=2, workers=())
        return [sign.kind for sign in signs_of(evidence, (count,), None, history, ran_s=9.0, healthy_s=600.0)]

    first, second = (Count(name=name, value=value, alone=True) for value in (1.0, 2.0))
    assert signs(second, first) == []
    assert signs(second) == []
    assert signs(structs.replace(second, alone=False), first) == [SignKind.COUNT]
    assert signs(structs.replace(second, alone=False)) == [SignKind.COUNT]
    assert signs(Count(name="batch", value=5.0), first) == [SignKind.COUNT]
    assert signs(Count(name=name, value=0.0), first) == []


def test_where_there_is_another_node_the_same_failure_is_tried_there_first() -> None:
    said = report_with(fingerprint=SAME)
    assert decide(said, past_attempts(1, report=said), spare=True).kind is DecisionKind.REPLACE
    there = report_with(fingerprint=SAME, first=Culprit(role="worker", rank=1, node="c"))
    assert decide(there, past_attempts(2, report=said), spare=True).kind is DecisionKind.FAIL


def test_another_failure_between_two_equal_ones_makes_them_two() -> None:
    said, other = report_with(fingerprint=SAME), report_with(fingerprint="Other||||||")
    assert decide(said, [*past_attempts(1, report=said), *past_attempts(1, report=other)]).kind is DecisionKind.RESTART


@pytest.mark.parametrize(("limit", "before", "kind"), [
    (3, 1, DecisionKind.RESTART), (3, 2, DecisionKind.FAIL), (0, 9, DecisionKind.RESTART),
])  # fmt: skip
def test_how_many_equal_failures_end_a_job_is_the_users(limit: int, before: int, kind: DecisionKind) -> None:
    said = report_with(fingerprint=SAME)
    policy = RestartPolicy(max_restarts=99, max_in_a_row=99, same_failure=limit)
    assert decide(said, past_attempts(before, report=said), policy=policy).kind is kind


def test_a_sign_within_a_row_of_equal_failures_begins_it_anew() -> None:
    said = report_with(fingerprint=SAME)
    policy = RestartPolicy(max_restarts=99, max_in_a_row=99, same_failure=3)
    history = [*past_attempts(1, report=said), *past_attempts(1, report=said, signs=(CHECKPOINT,))]
    assert decide(said, history, policy=policy).kind is DecisionKind.RESTART
    assert decide(said, [*history, *past_attempts(1, report=said)], policy=policy).kind is DecisionKind.FAIL


def test_a_decision_says_which_progress_was_seen_or_that_there_was_none() -> None:
    assert "progress" not in decide(report_with()).reason
    assert "no sign of progress since attempt 1" in decide(report_with(), past_attempts(2)).reason
    assert CHECKPOINT.text in decide(report_with(), past_attempts(2), signs=(CHECKPOINT,)).reason
    assert decide(report_with()).reason == "restart 1 of 99 now: Thing has no known cause, so another attempt may work"


@pytest.mark.parametrize("reason", ["rank 1: short", "rank 1 on a-node: " + "HTTPSConnectionPool(host=…) " * 40])
@pytest.mark.parametrize("decision", ["restart 1 of 20 in 0.9 s: it passes with time", "word " * 90, "a: " + "b" * 300])
def test_the_line_of_a_decision_fits_in_a_terminal(reason: str, decision: str) -> None:
    [record] = past_attempts(
        1, report=report_with(reason=reason), decision=Decision(kind=DecisionKind.RESTART, reason=decision)
    )
    line = decision_line(record)
    assert len(f"holdfast: {line}") <= MOST_LINE
    assert line.startswith("attempt 1: Thing: rank 1")
    assert f"; decision: {decision[0]}" in line


def test_the_second_blame_of_one_node_moves_the_job_where_there_is_room() -> None:
    assert decide(report_with(), past_attempts(1), spare=True).kind is DecisionKind.REPLACE
    assert decide(report_with(), past_attempts(1), spare=False).kind is DecisionKind.RESTART
    assert decide(report_with(), past_attempts(1, progressed=True), spare=True).kind is DecisionKind.RESTART
    elsewhere = past_attempts(1, report=report_with(first=Culprit(role="worker", rank=0, node="a")))
    assert decide(report_with(), elsewhere, spare=True).kind is DecisionKind.RESTART
    bug = report_with(blame=Blame.WORKLOAD)
    assert decide(bug, past_attempts(1, report=bug), spare=True).kind is DecisionKind.RESTART


def test_a_bad_job_cannot_drain_a_cluster() -> None:
    taken = [
        *past_attempts(1, decision=Decision(kind=DecisionKind.REPLACE, reason="x", avoid=("c",))),
        *past_attempts(1, decision=Decision(kind=DecisionKind.REPLACE, reason="x", avoid=("d",))),
    ]
    decision = decide(report_with(Rerun.ELSEWHERE, Blame.HARDWARE), taken, spare=True)
    assert decision.kind is DecisionKind.FAIL
    assert "c, d" in decision.reason


@given(
    st.sampled_from(Rerun),
    st.sampled_from(Blame),
    st.booleans(),
    st.floats(0.0, 1.0),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_no_job_restarts_without_end(
    rerun: Rerun, blame: Blame, spare: bool, jitter: float, mine: int, others: int
) -> None:
    """Decided again and again upon its own history, every job comes to an end within its budgets."""
    policy = RestartPolicy(max_restarts=mine, platform_max_restarts=others)
    history: list[AttemptRecord] = []
    while len(history) < 20:
        said = report_with(rerun, blame, attempt=len(history) + 1)
        decision = decide(said, history, policy=policy, spare=spare, jitter=jitter)
        if decision.kind is DecisionKind.FAIL:
            break
        history += past_attempts(1, attempt=len(history) + 1, report=said, decision=decision)
    charged = sum(record.decision.charged for record in history)
    assert charged <= mine
    assert len(history) - charged <= others
    assert len(history) <= policy.max_in_a_row


@pytest.mark.parametrize(
    ("most", "avoided", "reason"),
    [
        (0, (), "avoiding b is more than this job may: at most 0 (max_isolations in a job file)"),
        (1, ("a",), "this job has had a avoided already and may take no more than 1: the job itself may be what"),
    ],
)
def test_a_job_that_may_avoid_no_more_says_what_it_has_avoided(
    most: int, avoided: tuple[str, ...], reason: str
) -> None:
    replaced = Decision(kind=DecisionKind.REPLACE, reason="again", avoid=avoided)
    policy = structs.replace(WIDE, max_isolations=most)
    decision = decide(
        report_with(Rerun.ELSEWHERE), past_attempts(len(avoided), decision=replaced), spare=True, policy=policy
    )
    assert decision.kind is DecisionKind.FAIL
    assert decision.reason.startswith(reason)


@pytest.mark.parametrize("phrase", ["AddressInUse", "UserException"])
@pytest.mark.parametrize("same_failure", [2, 3])
def test_a_decision_promises_no_more_than_the_next_one_keeps(phrase: str, same_failure: int) -> None:
    policy = RestartPolicy(max_restarts=99, max_in_a_row=99, same_failure=same_failure)
    rerun = Rerun.LATER if phrase == "AddressInUse" else Rerun.UNKNOWN
    said = report_with(phrase=phrase, rerun=rerun, blame=Blame.WORKLOAD, fingerprint=SAME)
    for before in range(same_failure):
        now = decide(said, past_attempts(before, report=said), policy=policy)
        after = decide(said, past_attempts(before + 1, report=said), policy=policy)
        if now.kind is DecisionKind.RESTART:
            promised = "the same failure again ends the job" in now.reason
            assert promised == (after.kind is DecisionKind.FAIL)
            assert promised != ("may work" in now.reason)


def test_a_failure_that_only_its_budget_ends_is_promised_another_attempt() -> None:
    said = report_with(phrase="HubUnreachable", rerun=Rerun.LATER, blame=Blame.NETWORK, fingerprint=SAME)
    for before in range(5):
        decision = decide(said, past_attempts(before, report=said))
        assert decision.kind is DecisionKind.RESTART and "may work" in decision.reason


def raised_by_rank(rank: int | None, **changes: Any) -> ExitReport:
    fields: dict[str, Any] = {
        "blame": Blame.WORKLOAD,
        "exception": "ValueError",
        "fingerprint": SAME,
        "reason": f"rank {rank}",
        "first": None if rank is None else Culprit(role="worker", rank=rank, node="a"),
    }
    return report_with(**(fields | changes))


def test_what_all_ranks_raised_once_has_no_culprit_when_one_raises_it_first() -> None:
    history = past_attempts(1, report=raised_by_rank(None, alike=(0, 1, 2, 3)), workers=4)
    again = as_before(raised_by_rank(2, collateral=(0, 1, 3)), history)
    assert (again.first, again.alike, again.collateral) == (None, (0, 1, 2, 3), ())
    assert again.reason == "rank 2; all 4 ranks failed in the same way in attempt 1, so no single rank is the cause"
    some = past_attempts(1, report=raised_by_rank(None, alike=(0, 1, 3)), workers=4)
    assert "3 of 4 ranks failed in the same way" in as_before(raised_by_rank(2), some).reason


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (raised_by_rank(2), raised_by_rank(2)),
        # the drills kill one rank after the other in the same way: each is the cause
        (raised_by_rank(2), raised_by_rank(0)),
        (raised_by_rank(2, fingerprint="another"), raised_by_rank(0)),
        (raised_by_rank(2, exception=""), raised_by_rank(0, exception="")),
        (raised_by_rank(2), raised_by_rank(0, blame=Blame.HARDWARE)),
        (raised_by_rank(2), raised_by_rank(0, rerun=Rerun.ELSEWHERE)),
    ],
    ids=["same rank", "another rank alone", "other failure", "no exception", "hardware", "elsewhere"],
)
def test_a_culprit_stays_if_nothing_speaks_for_the_other_ranks(before: ExitReport, now: ExitReport) -> None:
    assert as_before(now, past_attempts(1, report=before)) == now


RAISE_ALL_THEN_ONE = """
import os, pathlib, time
if pathlib.Path("second").exists():
    if os.environ["RANK"] != "1":
        time.sleep(600)
else:
    pathlib.Path("there-" + os.environ["RANK"]).touch()
    while len(list(pathlib.Path().glob("there-*"))) < 3:
        time.sleep(0.01)
    if os.environ["RANK"] == "0":
        pathlib.Path("second").touch()
raise ValueError("num_heads (12) must divide hidden_size (770)")
"""


@pytest.mark.real
def test_the_report_of_a_job_remembers_that_all_ranks_failed(holdfast: Holdfast) -> None:
    ran = holdfast("run", "--nproc-per-node", "3", holdfast.script(RAISE_ALL_THEN_ONE))
    first, last = (record["report"] for record in ran.report["attempts"])
    assert ran.report["first"] is last["first"] is None
    assert "in attempt 1, so no single rank is the cause" in ran.report["reason"]
    assert (first["phrase"], first["fingerprint"]) == (last["phrase"], last["fingerprint"])
    assert "the same failure again ends the job" in ran.report["attempts"][0]["decision"]["reason"]
    assert "ended with the same ValueError" in ran.report["attempts"][1]["decision"]["reason"]
