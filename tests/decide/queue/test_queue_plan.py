"""The plan of a queue: who starts where, what is kept, who is preempted, and why the rest waits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from queue_builders import GIB, machine, planned, running, started, victim, waiting

from holdfast.decide.queue.queue_limits import never_fits, refusal
from holdfast.decide.queue.queue_model import (
    DeviceState,
    FairShare,
    Limits,
    Machine,
    Needs,
    Policy,
    Priority,
    Reservation,
    RunningJob,
    WaitingJob,
    share_of,
)
from holdfast.decide.queue.queue_order import aged, charged_until, why_before
from holdfast.decide.queue.queue_plan import Plan, Preemption
from holdfast.decide.queue.wait_reason import Missing

HOUR_S = 3600.0
HELD = "gpu0 is held: fan fails"
NOT_SAID = "its memory is not said, and the machine has no more available than its reserve"
NOT_ITS_TURN = (Missing.RELEASE, Missing.DEPENDENCY, Missing.TIME, Missing.LIMIT, Missing.ARRAY)


def with_device(name: str, state: DeviceState, reason: str = "", *, of: Machine | None = None) -> Machine:
    whole = of or machine()
    devices = [replace(d, state=state, reason=reason) if d.name == name else d for d in whole.devices]
    return replace(whole, devices=tuple(devices))


# Starts and order


def test_jobs_start_while_all_that_they_need_is_free() -> None:
    made = planned([waiting("a", 2), waiting("b", 2), waiting("c", 1)])
    assert started(made) == {"a": ("gpu0", "gpu1"), "b": ("gpu2", "gpu3")}
    assert made.reasons["c"].words() == (
        "needs 1 device, and 0 can be had now: jobs a and b have the others; job a has no --time; "
        "its start is not known, because a job that runs has no time limit"
    )


def test_the_class_decides_then_the_use_of_the_machine_then_the_submission() -> None:
    jobs = [
        waiting("late", submitted_at=2.0),
        waiting("early", submitted_at=1.0),
        waiting("bobs", submitted_at=3.0, user="bob"),
        waiting("high", submitted_at=4.0, priority=Priority.HIGH),
    ]
    shares = FairShare().charged("ada", 1.0, 0.0, 60.0)
    made = planned(jobs, [running("x", "gpu0", "gpu1", "gpu2", "gpu3")], shares=shares)
    assert list(made.reasons) == ["high", "bobs", "early", "late"]
    by_id = {job.id: job for job in jobs}

    def why(first: str, second: str) -> str:
        return why_before(1000.0, by_id[first], by_id[second], Policy(), shares)

    assert why("high", "bobs") == "its class is higher: high; the other's is normal"
    assert why("bobs", "early") == "bob has used less of the machine than ada"
    assert why("early", "late") == "it was submitted earlier"


def test_a_job_rises_by_one_class_for_each_age_of_waiting_for_its_turn() -> None:
    old = waiting("old", priority=Priority.LOW, eligible_s=24 * HOUR_S)
    held = waiting("held", priority=Priority.LOW)
    full = [running("x", "gpu0", "gpu1", "gpu2", "gpu3")]
    made = planned([old, held, waiting("new", submitted_at=9.0)], full)
    assert list(made.reasons) == ["old", "new", "held"]
    text = why_before(1000.0, old, held, Policy(), FairShare())
    assert text == "its class is higher: low and 2 more for 24 h of waiting; the other's is low"


def test_waiting_counts_only_while_nothing_but_its_turn_is_missing() -> None:
    full = [running("x", "gpu0", "gpu1", "gpu2", "gpu3")]
    jobs = [waiting("turn"), waiting("held", held="by ada"), waiting("after", after=("x",))]
    changed = aged(1000.0, jobs, planned(jobs, full).reasons)
    assert [(job.id, job.eligible_since) for job in changed] == [("turn", 1000.0)]
    assert aged(1500.0, changed, planned(changed, full).reasons) == [], "a plan writes only what changes"
    held = [replace(changed[0], held="by bob")]
    (stopped,) = aged(1600.0, held, planned(held, full).reasons)
    assert (stopped.eligible_s, stopped.eligible_since, stopped.eligible(9999.0)) == (600.0, None, 600.0)


@pytest.mark.parametrize(
    ("job", "missing", "words"),
    [
        (waiting("j", held="by ada: look first"), Missing.RELEASE, "held: by ada: look first"),
        (waiting("j", after=("a", "b")), Missing.DEPENDENCY, "waits for the end of jobs a and b"),
        (waiting("j", not_before=1060.0), Missing.TIME, "does not start before 1970-01-01 00:17:40 UTC"),
        (waiting("j", 2, user="bob"), Missing.LIMIT, "bob may have 1 device at once and has 0: the job needs 2"),
        (waiting("j", groups=("lab",)), Missing.LIMIT, "group lab may have 0 jobs at once and has 0: the job needs 1"),
        (waiting("j", array="t", array_limit=1), Missing.ARRAY, "1 task of its array may run at once, and 1 run"),
        (
            waiting("j", on=("gpu0",)),
            Missing.MACHINE,
            f"needs 1 device, and could get 3 of this machine's; {HELD}",
        ),
        (
            waiting("j", 4, avoid=("gpu1",)),
            Missing.MACHINE,
            f"needs 4 devices, and could get 2 of this machine's; {HELD}; it has failed on gpu1 and avoids it",
        ),
        (waiting("j", 0), Missing.AVAILABLE, NOT_SAID),
        (waiting("j", 0, 15, memory=GIB), Missing.CPUS, "needs 15 CPUs, and 14 are free: job x has the others"),
        (
            waiting("j", 0, memory=8 * GIB),
            Missing.MEMORY,
            "needs 8 GiB of memory, and 6 GiB are free: job x has the rest",
        ),
        (waiting("j", on=("gpu3",), memory=GIB), Missing.DEVICES, "needs gpu3: in use by job x"),
        (waiting("j", 3, memory=GIB), Missing.DEVICES, "needs 3 devices, and 2 can be had now: job x has the others"),
    ],
)  # fmt: skip
def test_a_reason_says_what_is_missing(job: WaitingJob, missing: Missing, words: str) -> None:
    where = replace(with_device("gpu0", DeviceState.HELD, "fan fails"), memory=10 * GIB, available=GIB)
    limits = {"bob": Limits(devices=1), "@lab": Limits(running=0)}
    has = [running("x", "gpu3", cpus=2, memory=2 * GIB, ends_at=5000.0, array="t")]
    policy = Policy(reserve_memory=2 * GIB, limits=limits)
    made = planned([job], has, on=where, policy=policy)
    reason = made.reasons["j"]
    assert reason.missing is missing
    assert reason.words().removesuffix("; it starts by 1970-01-01 01:23:20 UTC") == words
    assert reason.its_turn == (
        missing not in (Missing.RELEASE, Missing.DEPENDENCY, Missing.TIME, Missing.LIMIT, Missing.ARRAY)
    )


def test_a_job_without_memory_starts_while_enough_is_available() -> None:
    policy = Policy(reserve_memory=2 * GIB)
    assert started(planned([waiting("j")], on=machine(memory=10 * GIB, available=3 * GIB), policy=policy)) == {
        "j": ("gpu0",)
    }


def test_an_exclusive_job_is_alone() -> None:
    made = planned([waiting("all", 0, exclusive=True), waiting("next", 0)])
    assert [(start.job, start.cpus) for start in made.starts] == [("all", 16)]
    assert "all" not in started(planned([waiting("all", 0, exclusive=True)], [running("x")]))


# Reservations


def test_a_later_job_starts_if_it_is_over_before_the_first_can_start() -> None:
    has = [running("x", "gpu0", "gpu1", "gpu2", ends_at=2000.0)]
    first = waiting("first", 4)
    made = planned([first, waiting("short", time_s=1000.0), waiting("long", time_s=1001.0, submitted_at=1.0)], has)
    assert started(made) == {"short": ("gpu3",)}
    assert made.reservations == (
        Reservation(job="first", devices=("gpu0", "gpu1", "gpu2", "gpu3"), at=2000.0, since=1000.0),
    )
    assert (made.reasons["first"].next, made.reasons["first"].starts_at) == (True, 2000.0)
    assert "long" in made.reasons


def test_long_jobs_share_what_the_reservation_leaves() -> None:
    """Each of two long jobs would leave enough CPUs for the first job; both together would not."""
    has = [running("x", "gpu0", cpus=10, ends_at=2000.0)]
    jobs = [waiting("first", 1, 12), waiting("a", 0, 3, submitted_at=1.0), waiting("b", 0, 3, submitted_at=2.0)]
    made = planned(jobs, has)
    assert started(made) == {"a": ()}
    assert made.reasons["b"].missing is Missing.KEPT
    assert made.reasons["b"].jobs == ("first",)


def test_without_a_known_end_devices_are_kept_as_they_come_free() -> None:
    has = [running("x", "gpu0", "gpu1"), running("y", "gpu2", started_at=500.0)]
    jobs = [
        waiting("first", 3),
        waiting("short", 1, time_s=1.0, submitted_at=1.0),
        waiting("none", 0, submitted_at=2.0),
    ]
    made = planned(jobs, has)
    assert started(made) == {"none": ()}
    (kept,) = made.reservations
    assert (kept.at, kept.devices) == (None, ("gpu0", "gpu1", "gpu3"))
    assert made.reasons["short"].words() == (
        "gpu0, gpu1 and gpu3 are kept for job first since 1970-01-01 00:16:40 UTC; job x has no --time"
    )
    later = planned([replace(jobs[0], reservation=kept), jobs[1]], has, now=2000.0)
    assert later.reservations == (kept,), "it is kept since the first plan"


def test_a_job_that_should_have_left_by_now_is_about_to_leave() -> None:
    has = [running("x", "gpu0", "gpu1", "gpu2", "gpu3", ends_at=900.0)]
    (kept,) = planned([waiting("first")], has).reservations
    assert kept.at == 1000.0


def test_an_assumed_time_counts_until_it_is_over() -> None:
    has = [running("x", "gpu0", "gpu1", "gpu2", "gpu3")]
    policy = Policy(assume_time_s=1500.0)
    assert planned([waiting("first")], has, policy=policy).reservations[0].at == 1500.0
    assert planned([waiting("first")], has, policy=policy, now=1600.0).reservations[0].at is None


def test_the_next_jobs_have_expected_starts_until_an_end_is_not_known() -> None:
    has = [running("x", "gpu0", "gpu1", ends_at=2000.0), running("y", "gpu2", "gpu3", ends_at=3000.0)]
    jobs = [
        waiting("a", 4, time_s=600.0),
        waiting("b", 3, time_s=600.0, submitted_at=1.0),
        waiting("c", 1, submitted_at=2.0),
        waiting("held", 1, submitted_at=3.0, held="by ada"),
        waiting("d", 3, submitted_at=4.0),
        waiting("e", 4, submitted_at=5.0),
    ]
    reasons = planned(jobs, has).reasons
    starts = {name: reason.starts_at for name, reason in reasons.items()}
    assert starts == {"a": 3000.0, "b": 3600.0, "c": 3600.0, "held": None, "d": 4200.0, "e": None}
    assert reasons["b"].words().endswith("; expected to start at 1970-01-01 01:00:00 UTC")


def test_what_waits_for_a_held_device_keeps_nothing() -> None:
    where = with_device("gpu0", DeviceState.FOREIGN, "pid 4711 (python, bob) computes")
    made = planned([waiting("all", 4), waiting("one", 1, submitted_at=1.0)], on=where)
    assert started(made) == {"one": ("gpu1",)}
    assert made.reasons["all"].words() == (
        "needs 4 devices, and could get 3 of this machine's; gpu0 is foreign: pid 4711 (python, bob) computes"
    )


def test_a_user_s_later_job_does_not_bring_the_first_one_over_the_limit() -> None:
    policy = Policy(limits={"ada": Limits(running=1)})
    has = [running("x", "gpu0", "gpu1", "gpu2", "gpu3", user="bob", ends_at=2000.0)]
    made = planned([waiting("first"), waiting("short", 0, time_s=1.0, submitted_at=1.0)], has, policy=policy)
    assert made.starts == ()
    assert made.reasons["short"].words() == (
        "gpu0 is kept for job first since 1970-01-01 00:16:40 UTC; its start would bring job first over a limit; "
        "expected to start at 1970-01-01 00:33:20 UTC"
    )


# Preemption


def preempted(made: Plan) -> set[str]:
    return {each.victim for each in made.preemptions}


def test_the_lowest_class_with_the_least_lost_work_leaves() -> None:
    has = [
        victim("low-long", "gpu0"),
        victim("low-saved", "gpu1", saved_at=990.0),
        victim("normal", "gpu2", priority=Priority.NORMAL, saved_at=999.0),
        running("fixed", "gpu3"),
    ]
    made = planned([waiting("high", priority=Priority.HIGH)], has)
    assert made.preemptions == (Preemption(victim="low-saved", for_job="high"),)
    assert made.reservations == (Reservation(job="high", devices=("gpu1",), at=1060.0, since=1000.0, claim=True),)
    assert made.reasons["high"].words() == (
        "waits until job low-saved has saved and left; it starts by 1970-01-01 00:17:40 UTC"
    )
    assert preempted(planned([waiting("high", 2, priority=Priority.HIGH)], has)) == {"low-long", "low-saved"}


def test_a_lower_class_leaves_first_whatever_it_loses() -> None:
    has = [
        victim("low", "gpu0", "gpu1"),
        victim("normal", "gpu2", priority=Priority.NORMAL, saved_at=1000.0),
        victim("normal-too", "gpu3", priority=Priority.NORMAL, saved_at=1000.0),
    ]
    assert preempted(planned([waiting("high", 2, priority=Priority.HIGH)], has)) == {"low"}


def test_the_fewest_of_those_that_lose_the_same_leave() -> None:
    has = [victim("one", "gpu0", saved_at=1000.0), victim("two", "gpu1", saved_at=1000.0)]
    has += [victim("x-both", "gpu2", "gpu3", saved_at=1000.0)]
    assert preempted(planned([waiting("high", 2, priority=Priority.HIGH)], has)) == {"x-both"}


@pytest.mark.parametrize(
    "has",
    [
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", priority=Priority.HIGH),
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", preemptible=False),
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", started_at=800.0),
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", preempted_at=(1.0, 2.0, 3.0)),
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", draining=True),
        victim("v", "gpu0", "gpu1", "gpu2", "gpu3", ends_at=1050.0),
    ],
    ids=["class", "not-preemptible", "young", "three-times", "leaves", "ends-soon"],
)
def test_nobody_is_preempted_who_may_not_be(has: RunningJob) -> None:
    made = planned([waiting("high", priority=Priority.HIGH)], [has])
    assert made.preemptions == ()
    assert made.reservations[0].claim is False


def test_the_plan_names_the_moment_at_which_a_young_job_may_be_preempted() -> None:
    has = [victim("v", "gpu0", "gpu1", "gpu2", "gpu3", started_at=800.0)]
    made = planned([waiting("high", priority=Priority.HIGH)], has)
    assert made.wake_at == 1100.0
    assert preempted(planned([waiting("high", priority=Priority.HIGH)], has, now=1100.0)) == {"v"}


def test_age_preempts_nobody() -> None:
    has = [victim("v", "gpu0", "gpu1", "gpu2", "gpu3")]
    old = waiting("old", priority=Priority.LOW, eligible_s=100 * HOUR_S)
    assert planned([old], has).preemptions == ()


def test_what_victims_leave_is_for_the_job_alone() -> None:
    has = [victim("v", "gpu0", "gpu1"), running("y", "gpu2", ends_at=9000.0)]
    high = waiting("high", 3, priority=Priority.HIGH)
    made = planned([high], has)
    assert made.reservations[0].devices == ("gpu0", "gpu1", "gpu3")
    high = replace(high, reservation=made.reservations[0])
    leaving = replace(has[0], draining=True, drains_for="high")
    urgent = waiting("urgent", 1, priority=Priority.URGENT, time_s=1.0)
    during = planned([high, urgent], [leaving, has[1]], now=1001.0)
    assert during.starts == ()
    assert during.reasons["urgent"].missing is Missing.KEPT
    again = waiting("v", 2, priority=Priority.LOW, eligible_s=100 * HOUR_S)
    after = planned([high, urgent, again], [has[1]], now=1010.0)
    assert started(after) == {"high": ("gpu0", "gpu1", "gpu3")}


def test_two_claims_do_not_share_victims() -> None:
    has = [victim("v", "gpu0", "gpu1"), victim("w", "gpu2", "gpu3")]
    jobs = [waiting("a", 2, priority=Priority.HIGH), waiting("b", 2, priority=Priority.HIGH)]
    made = planned(jobs, has)
    assert made.preemptions == (Preemption(victim="v", for_job="a"), Preemption(victim="w", for_job="b"))
    assert [made.reasons[name].jobs for name in "ab"] == [("v",), ("w",)]


def test_a_claim_counts_for_its_user_s_limit() -> None:
    policy = Policy(limits={"ada": Limits(running=1)})
    made = planned(
        [waiting("high", 4, priority=Priority.HIGH), waiting("low", 0)],
        [victim("v", "gpu0", "gpu1", "gpu2", "gpu3", user="bob")],
        policy=policy,
    )
    assert preempted(made) == {"v"}
    assert made.starts == ()
    assert made.reasons["low"].missing is Missing.LIMIT


def test_a_job_whose_place_was_taken_in_vain_is_first_again() -> None:
    jobs = [waiting("urgent", 4, priority=Priority.URGENT), waiting("v", 4, priority=Priority.LOW, returns_first=True)]
    assert list(started(planned(jobs))) == ["v"]
    assert "never started" in why_before(0.0, jobs[1], jobs[0], Policy(), FairShare())


# What can never start, and the ledger


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(devices=5), "the job needs 5 devices, and this machine has 4"),
        (Needs(on=("gpu9",)), "this machine has no device gpu9: it has gpu0, gpu1, gpu2, gpu3"),
        (Needs(cpus=15), "the job needs 15 CPUs, and this machine gives 14 (2 are kept for the machine)"),
        (
            Needs(memory=9 * GIB),
            "the job needs 9 GiB of memory, and this machine gives 8 GiB (2 GiB are kept for the machine)",
        ),
        (Needs(devices=4, cpus=14, memory=8 * GIB), None),
        (Needs(exclusive=True, cpus=99), None),
    ],
)
def test_what_can_never_start_is_refused_with_what_the_machine_has(needs: Needs, words: str | None) -> None:
    policy = Policy(reserve_cpus=2, reserve_memory=2 * GIB)
    where = with_device("gpu0", DeviceState.HELD, of=machine(memory=10 * GIB))
    assert never_fits(where, needs, policy) == words


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (waiting("j", 9), "the job needs 9 devices, and this machine has 4"),
        (waiting("j", priority=Priority.HIGH), "the highest class of ada is normal: the job is high"),
        (waiting("j", time_s=7200.0), "the longest time of ada is 1 h: the job takes 2 h"),
        (waiting("j"), "the longest time of ada is 1 h: the job has no --time"),
        (waiting("j", time_s=60.0, groups=("lab",)), "group lab may have 1 waiting job, and has 1"),
        (waiting("j", time_s=60.0, user="bob", priority=Priority.URGENT), None),
        (waiting("j", time_s=60.0), None),
    ],
)
def test_a_limit_that_no_wait_removes_refuses_at_submit(job: WaitingJob, words: str | None) -> None:
    limits = {"ada": Limits(highest=Priority.NORMAL, longest_s=HOUR_S), "@lab": Limits(waiting=1)}
    others = [waiting("other", user="eve", groups=("lab",))]
    assert refusal(machine(), job, others, Policy(limits=limits)) == words


MOMENTS = st.lists(st.floats(0.0, 1e6), min_size=2, max_size=6).map(sorted)


@given(MOMENTS, st.floats(0.01, 1.0))
def test_it_makes_no_difference_in_how_many_parts_a_use_is_charged(moments: list[float], share: float) -> None:
    whole = FairShare().charged("ada", share, moments[0], moments[-1])
    parts = FairShare()
    for since, until in pairwise(moments):
        parts = parts.charged("ada", share, since, until)
    assert parts.use("ada", 2e6) == pytest.approx(whole.use("ada", 2e6), rel=1e-6, abs=1e-9)
    assert whole.use("ada", moments[-1]) <= share * (moments[-1] - moments[0]) * 1.000001 + 1e-6


def test_use_halves_in_a_half_life_and_is_the_larger_share() -> None:
    shares = charged_until(3600.0, 0.0, machine(4, 16), [running("x", "gpu0", cpus=8, started_at=1800.0)], FairShare())
    assert share_of(machine(4, 16), 1, 8) == 0.5
    now = shares.use("ada", 3600.0)
    assert now == pytest.approx(0.5 * 1800.0, rel=0.02)
    assert shares.use("ada", 3600.0 + 24 * HOUR_S) == pytest.approx(now / 2)
    assert shares.use("bob", 3600.0) == 0.0
