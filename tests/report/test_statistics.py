"""Figures over many jobs, each against a history that is worked out by hand."""

from __future__ import annotations

from msgspec.structs import replace

from builders import DAY_S
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, Tally, lost_by_attempt
from holdfast.model.exit_report import Blame, Culprit, ExitReport, Outcome, Rerun
from holdfast.record.job_history import PastJob
from holdfast.record.job_views import JobState, JobView
from holdfast.report.statistics.failure_statistics import by_week, failures, groups, machines, mtbf_s, mttr_s, week_of
from holdfast.report.statistics.goodput import TimeUse, goodput

#: 2026-11-16 00:00 UTC.
MONDAY = 1_794_787_200.0
RESTARTS, FAIL, SUCCEED, STOPS = DecisionKind.RESTART, DecisionKind.FAIL, DecisionKind.SUCCEED, DecisionKind.STOP


def attempt_record(
    number: int,
    ended: float,
    kind: DecisionKind,
    parts: dict[str, float],
    *,
    phrase: str = "UserException",
    text: str = "",
    node: str = "n1",
    device: str = "",
    progressed: bool = False,
    blame: Blame = Blame.WORKLOAD,
) -> AttemptRecord:
    place = "train.py:12:load" if phrase == "UserException" else ""
    report = ExitReport(
        code=0 if kind is SUCCEED else 1,
        phrase="Succeeded" if kind is SUCCEED else phrase,
        blame=blame,
        rerun=Rerun.NOW,
        reason="r",
        solution="s",
        first=None if kind is SUCCEED else Culprit(role="worker", rank=0, node=node),
        fingerprint=f"{phrase}|status 1|ValueError|{place}||{text}|{device}",
        devices=(device,) if device else (),
    )
    decision = Decision(kind=kind, reason="r", charged=True)
    return AttemptRecord(
        attempt=number,
        started_at=ended - sum(parts.values()),
        ended_at=ended,
        report=report,
        decision=decision,
        parts=parts,
        progressed=progressed,
    )


def past_job_of(name: str, *attempts: AttemptRecord, host: str = "n1") -> PastJob:
    view = JobView(id=f"id-{name}", name=name, created=MONDAY, host=host, pid=1, state=JobState.ENDED)
    return PastJob(view=replace(view, outcome=Outcome.FAILED), attempts=attempts)


# Two failures of one place, 40 s and 20 s of running; then a success after 100 s.
ONE_JOB = past_job_of(
    "one",
    attempt_record(
        1,
        MONDAY + 100,
        RESTARTS,
        {"checking": 5, "starting": 10, "running": 40, "detection": 1, "draining": 2, "decision": 1},
        text="no such shard: 17",
        progressed=True,
    ),
    attempt_record(
        2,
        MONDAY + 300,
        RESTARTS,
        {"backoff": 3, "checking": 4, "starting": 10, "running": 20, "detection": 2, "draining": 6, "first_output": 7},
        text="no such shard: 99012",
    ),
    attempt_record(3, MONDAY + 500, SUCCEED, {"backoff": 5, "starting": 8, "running": 100, "first_output": 9}),
)
# A device that is lost on n2 twice and on n1 once, in the week after; and a person's stop, which is no failure.
TWO_JOB = past_job_of(
    "two",
    *(
        attempt_record(
            number,
            MONDAY + 7 * DAY_S + 100 * number,
            RESTARTS,
            {"running": 10, "detection": 4, "draining": 1, **({"backoff": 10, "starting": 5} if number > 1 else {})},
            phrase="AcceleratorLost",
            blame=Blame.HARDWARE,
            text=f"pid {number} lost 0x{number:x}",
            node="n1" if number == 3 else "n2",
            device=f"n{1 if number == 3 else 2}/gpu{number}",
        )
        for number in (1, 2, 3)
    ),
    attempt_record(4, MONDAY + 8 * DAY_S, STOPS, {"backoff": 10, "starting": 5, "running": 10}, blame=Blame.OPERATOR),
    host="n2",
)


def test_failures_of_one_place_are_one_group_whatever_numbers_they_name() -> None:
    lost, shard = groups(failures([ONE_JOB, TWO_JOB]))
    assert (shard.phrase, shard.count, shard.jobs) == ("UserException", 2, ("id-one",))
    assert (shard.first_at, shard.last_at) == (MONDAY + 100, MONDAY + 300)
    assert (shard.retried, shard.helped) == (2, 1), "the first retry got no further, the second succeeded"
    assert (lost.phrase, lost.count, lost.nodes) == ("AcceleratorLost", 3, {"n2": 2, "n1": 1})
    assert lost.devices == {"n1/gpu3": 1, "n2/gpu1": 1, "n2/gpu2": 1}
    assert (lost.retried, lost.helped) == (3, 1), "the stop in good order kept its work"


def test_classes_are_counted_by_the_monday_of_their_week() -> None:
    assert week_of(MONDAY + 6.9 * DAY_S) == MONDAY
    assert by_week(failures([ONE_JOB, TWO_JOB])) == {
        "AcceleratorLost": {MONDAY + 7 * DAY_S: 3},
        "UserException": {MONDAY: 2},
    }


def test_time_between_failures_is_running_time_by_failures() -> None:
    assert mtbf_s([ONE_JOB]) == (40 + 20 + 100) / 2
    assert mtbf_s([ONE_JOB, TWO_JOB]) == (40 + 20 + 100 + 4 * 10) / 5
    assert mtbf_s([past_job_of("good", attempt_record(1, MONDAY, SUCCEED, {"running": 9}))]) is None


def test_time_to_recover_is_from_the_first_sign_of_trouble_to_the_next_first_output() -> None:
    first = (1 + 2 + 1) + (3 + 4) + 7
    second = (2 + 6) + 5 + 9
    assert mttr_s([ONE_JOB]) == {"": (first + second) / 2, "UserException": (first + second) / 2}
    # Those without a first output: to the go.
    lost = (4 + 1) + 10 + 5
    assert mttr_s([ONE_JOB, TWO_JOB]) == {
        "": (first + second + 3 * lost) / 5,
        "UserException": (first + second) / 2,
        "AcceleratorLost": lost,
    }


def test_goodput_takes_each_second_once() -> None:
    found = goodput(ONE_JOB.attempts)
    assert found.seconds == {
        TimeUse.PRODUCTIVE: 40 + 100,
        TimeUse.LOST_WORK: 20,
        TimeUse.START: 10 + 10 + 8,
        TimeUse.CHECKS: 5 + 4,
        TimeUse.DETECTION: 1 + 2,
        TimeUse.DRAIN: 2 + 6,
        TimeUse.DECISION: 1,
        TimeUse.BACKOFF: 3 + 5,
    }
    assert found.wall_s == 140 + 20 + 28 + 9 + 3 + 8 + 1 + 8
    assert found.ratio == 140 / 217


def test_a_time_limit_and_a_dead_owner_are_failures_and_a_persons_stop_is_none() -> None:
    def ended(blame: Blame) -> PastJob:
        return past_job_of("x", attempt_record(1, MONDAY, STOPS, {"running": 60}, blame=blame))

    failed = [blame for blame in Blame if list(failures([ended(blame)]))]
    assert failed == [blame for blame in Blame if blame not in (Blame.OPERATOR, Blame.PLATFORM)]
    assert goodput(ended(Blame.UNKNOWN).attempts).seconds == {TimeUse.LOST_WORK: 60}
    assert goodput(ended(Blame.PLATFORM).attempts).seconds == {TimeUse.PRODUCTIVE: 60}


def test_lost_steps_are_counted_from_the_first_step_of_the_next_attempt_back() -> None:
    def at(number: int, first: int | None, last: int | None) -> AttemptRecord:
        record = attempt_record(number, MONDAY + number, RESTARTS, {})
        return replace(record, step=last, tally=Tally(first_step=first))

    # 21 to 30 are done twice; attempt 3 tells none; 41 is done three times, once by attempt 5.
    attempts = [at(1, 1, 30), at(2, 21, 41), at(3, None, None), at(4, 41, 41), at(5, 41, 60), at(6, 61, 70)]
    assert lost_by_attempt(attempts) == {1: 10, 2: 1, 4: 1}


def test_what_a_failed_job_had_not_saved_is_lost() -> None:
    def at(number: int, first: int, last: int, saved: int | None, kind: DecisionKind) -> AttemptRecord:
        record = attempt_record(number, MONDAY + number, kind, {})
        return replace(record, step=last, tally=Tally(first_step=first, saved_step=saved))

    assert lost_by_attempt([at(1, 1, 35, 30, FAIL)]) == {1: 5}
    assert lost_by_attempt([at(1, 1, 30, 30, FAIL)]) == {}
    assert lost_by_attempt([at(1, 1, 35, 30, RESTARTS), at(2, 31, 34, None, FAIL)]) == {1: 5, 2: 4}
    assert lost_by_attempt([at(1, 1, 35, None, FAIL)]) == {}, "where the program saves is not known"
    for kind in (RESTARTS, STOPS, SUCCEED, DecisionKind.REQUEUE):
        assert lost_by_attempt([at(1, 1, 35, 30, kind)]) == {}


def test_machines_are_those_of_owners_and_of_culprits() -> None:
    assert machines([ONE_JOB]) == {"n1"}
    assert machines([ONE_JOB, TWO_JOB]) == {"n1", "n2"}
