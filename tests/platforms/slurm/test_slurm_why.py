"""What a signal of Slurm's meant. The records were printed by Slurm 22.05 at the moment of each signal.

The first line of each says when that was.
"""

from __future__ import annotations

import signal
from datetime import datetime

import pytest
from msgspec.structs import replace

from holdfast.model.phrases import Phrase
from holdfast.platforms.slurm.owner.slurm_signals import SAVE_FRACTION, time_left_words
from holdfast.platforms.slurm.text import scontrol_records
from holdfast.platforms.slurm.text.scontrol_records import Config, JobRecord
from holdfast.platforms.slurm.text.signal_meaning import (
    Meaning,
    SignalFacts,
    SignalMeaning,
    WarningSignal,
    cancelled_for,
    hours,
    left_s,
    notice_at,
    signal_meaning,
    warned_by,
)
from places import DATA

KILL_WAIT = Config(kill_wait_s=30.0)


def recorded(name: str) -> tuple[float, JobRecord]:
    text = (DATA / "slurm" / "why" / f"{name}.txt").read_text()
    (record,) = scontrol_records.jobs(text)
    return float(text.split()[2]), record


def before(record: JobRecord) -> JobRecord:
    """The record of a run of it that has begun as any does."""
    return replace(record, state="RUNNING", reason="", restarts=0, preempted_at=None)


def meaning_of(name: str, number: int = signal.SIGTERM, **more: object) -> tuple[float, SignalMeaning]:
    at, record = recorded(name)
    known = {"job": str(record.job), "number": number, "at": at, "now": record, "config": KILL_WAIT}
    return at, signal_meaning(SignalFacts(**{"before": before(record), **known, **more}))  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(
    ("name", "meaning", "phrase", "says"),
    [
        ("scancel", Meaning.CANCELLED, Phrase.STOPPED_BY_OPERATOR, "scancel of job 8"),
        ("requeue", Meaning.REQUEUED, Phrase.STOPPED_BY_OPERATOR, "scontrol requeue of job 10"),
        ("time_limit", Meaning.TIME_LIMIT, Phrase.TIME_LIMIT_REACHED, "Slurm's time limit of 0:01:00 (job 16) is over"),
        ("preempted_cancel", Meaning.PREEMPTED, Phrase.PREEMPTED, "is not started again"),
    ],
)
def test_what_slurm_does_to_a_job_has_a_phrase_and_a_name_of_its_own(
    name: str, meaning: Meaning, phrase: Phrase, says: str
) -> None:
    at, found = meaning_of(name)
    assert (found.meaning, found.phrase) == (meaning, phrase)
    assert says in found.reason
    assert found.hard
    assert found.ends_at == at + 30.0, "KillWait after the signal Slurm kills what is left"
    assert found.again is (meaning is Meaning.REQUEUED)


def test_a_time_limit_is_one_also_in_a_job_that_had_been_requeued() -> None:
    """The record of this one had Restarts=1 from the beginning of its run."""
    _, record = recorded("time_limit")
    assert record.restarts == 1
    assert meaning_of("time_limit", before=None, restarts=1)[1].meaning is Meaning.TIME_LIMIT


def test_the_grace_of_a_preemption_ends_when_the_record_says() -> None:
    _, record = recorded("preempted_grace")
    _, found = meaning_of("preempted_grace", before=None)
    assert (found.meaning, found.phrase, found.hard) == (Meaning.PREEMPTING, Phrase.PREEMPTED, False)
    assert found.ends_at == record.ends_at
    assert found.may_requeue
    assert not found.again
    assert found.reason.startswith("Slurm preempts job 12: another job gets the nodes at 2026-11-22 ")


def test_the_grace_of_a_job_without_a_time_limit_is_that_of_its_partition() -> None:
    _, record = recorded("preempted_grace")
    endless = replace(record, ends_at=None, limit_s=None)
    assert endless.preempted_at is not None
    for now in (endless, None):
        _, found = meaning_of("preempted_grace", grace_s=120.0, now=now, before=endless)
        assert (found.meaning, found.ends_at) == (Meaning.PREEMPTING, endless.preempted_at + 120.0)
        assert "another job gets the nodes at 2026-11-22 " in found.reason
        _, unknown = meaning_of("preempted_grace", now=now, before=endless)
        assert unknown.ends_at is None and "another job gets the nodes soon" in unknown.reason
    _, limited = meaning_of("preempted_grace", before=None, grace_s=1.0)
    assert limited.ends_at == record.ends_at, "Slurm has moved it"


def test_a_job_of_salloc_has_no_script_to_start_again() -> None:
    at, record = recorded("preempted_grace")
    asked = SignalFacts(job="12", number=signal.SIGTERM, at=at, now=replace(record, batch=False))
    assert not signal_meaning(asked).may_requeue


def test_the_end_of_a_preemption_is_known_by_the_record_of_before() -> None:
    """Slurm has forgotten it: its record is that of a `scontrol requeue`."""
    _, grace = recorded("preempted_grace")
    found = meaning_of("preempted_over", before=grace)[1]
    assert (found.meaning, found.again) == (Meaning.PREEMPTED, True)
    assert meaning_of("preempted_over")[1].meaning is Meaning.REQUEUED


def test_a_preemption_without_a_grace_is_told_by_accounting_or_by_the_partition() -> None:
    assert meaning_of("preempted_at_once", accounted="PREEMPTED")[1].phrase == Phrase.PREEMPTED
    assert meaning_of("preempted_at_once", accounted="REQUEUED", preemptable=True)[1].meaning is Meaning.REQUEUED
    likely = meaning_of("preempted_at_once", preemptable=True)[1]
    assert (likely.phrase, likely.again) == (Phrase.PREEMPTED, True)
    assert "or by `scontrol requeue`" in likely.reason


def test_what_slurmstepd_has_printed_tells_them_apart_where_there_is_no_accounting() -> None:
    told = meaning_of("preempted_at_once", line="PREEMPTION")[1]
    assert (told.phrase, told.again) == (Phrase.PREEMPTED, True)
    assert "no accounting" not in told.reason
    assert meaning_of("preempted_at_once", line="JOB REQUEUE", preemptable=True)[1].meaning is Meaning.REQUEUED
    assert meaning_of("preempted_at_once", line="JOB REQUEUE", accounted="PREEMPTED")[1].meaning is Meaning.PREEMPTED
    assert meaning_of("preempted_at_once", line="PREEMPTION", accounted="REQUEUED")[1].meaning is Meaning.REQUEUED


def test_the_last_line_of_slurmstepds_counts_where_it_is_of_this_job_and_of_now() -> None:
    now = datetime(2026, 11, 23, 1, 16, 29).timestamp()
    line = "slurmstepd-n1: error: *** JOB {} ON n1 CANCELLED AT 2026-11-23T01:16:{:02} DUE TO {} ***\n"
    printed = line.format(42, 12, "JOB REQUEUE") + "step 7\n" + line.format(42, 29, "PREEMPTION") + "bye\n"
    assert cancelled_for(printed, 42, now - 4.0) == "PREEMPTION"
    assert cancelled_for(printed, 4, now) == ""
    assert cancelled_for(printed, 42, now + 10.0) == "", "it was another run's"
    assert cancelled_for(f"[worker-0] {line.format(42, 29, 'PREEMPTION')}", 42, now) == ""
    assert cancelled_for(printed.replace("2026-11-23T", "once "), 42, now) == ""
    assert cancelled_for(printed.replace("DUE TO PREEMPTION ", ""), 42, now - 60.0) == "JOB REQUEUE"


def test_a_signal_to_a_job_that_goes_on_is_a_persons() -> None:
    for number, name in ((signal.SIGTERM, "TERM"), (signal.SIGUSR2, "USR2")):
        found = meaning_of("scancel_signal", number)[1]
        assert (found.meaning, found.hard, found.ends_at) == (Meaning.SIGNALLED, False, None)
        assert found.reason.startswith(f"scancel --signal={name} of job 11")


def test_only_the_configured_signal_near_the_end_is_the_warning() -> None:
    at, record = recorded("warning")
    ordered = WarningSignal(number=signal.SIGUSR1, before_s=20.0)
    found = meaning_of("warning", signal.SIGUSR1, warned=ordered)[1]
    assert (found.meaning, found.phrase, found.hard) == (Meaning.TIME_WARNING, Phrase.TIME_LIMIT_REACHED, False)
    assert found.ends_at == record.ends_at
    assert found.reason.startswith("Slurm's time limit of 0:01:00 (job 16) is over at 2026-11-22 ")
    assert meaning_of("warning", signal.SIGUSR2, warned=ordered)[1].meaning is Meaning.SIGNALLED
    assert meaning_of("warning", signal.SIGUSR1)[1].meaning is Meaning.SIGNALLED
    early = replace(record, ends_at=at + 3600.0)
    assert meaning_of("warning", signal.SIGUSR1, warned=ordered, now=early)[1].meaning is Meaning.SIGNALLED


def test_a_node_that_failed_is_no_cancelled_job() -> None:
    _, record = recorded("requeue")
    found = meaning_of("requeue", accounted="NODE_FAIL")[1]
    assert (found.meaning, found.phrase, found.again) == (Meaning.NODE_FAILED, Phrase.NODE_FAILED, True)
    assert meaning_of("scancel", now=replace(record, state="NODE_FAIL", restarts=0))[1].meaning is Meaning.NODE_FAILED


# ---------------------------------------------------------------------------------------------- no answer


def test_without_an_answer_it_is_a_signal_that_is_not_explained() -> None:
    running = replace(before(recorded("scancel")[1]), ends_at=None)
    found = meaning_of("scancel", now=None, before=running, trouble="slurmctld does not answer")[1]
    assert (found.meaning, found.phrase, found.ends_at) == (Meaning.UNKNOWN, Phrase.STOPPED_BY_OPERATOR, None)
    assert found.reason == "job 8 got SIGTERM, and why is not known: slurmctld does not answer"


def test_without_an_answer_what_was_known_before_counts() -> None:
    at, record = recorded("scancel")
    over = replace(before(record), ends_at=at - 5.0, limit_s=3600.0)
    assert meaning_of("scancel", now=None, before=over)[1].meaning is Meaning.TIME_LIMIT
    to_come = replace(over, ends_at=at + 500.0)
    assert meaning_of("scancel", now=None, before=to_come)[1].meaning is Meaning.UNKNOWN
    grace = recorded("preempted_grace")[1]
    assert meaning_of("scancel", now=None, before=grace)[1].meaning is Meaning.PREEMPTING


def test_without_an_answer_the_ordered_signal_is_still_the_warning() -> None:
    _, record = recorded("warning")
    ordered = WarningSignal(number=signal.SIGUSR1, before_s=20.0)
    found = meaning_of("warning", signal.SIGUSR1, now=None, before=record, warned=ordered)[1]
    assert (found.meaning, found.ends_at) == (Meaning.TIME_WARNING, record.ends_at)


# ---------------------------------------------------------------------------------------------- times


def test_what_is_left_of_time_keeps_some_for_the_report() -> None:
    assert left_s(100.0, 70.0) == 25.0
    assert left_s(100.0, 90.0) == pytest.approx(7.0)
    assert left_s(100.0, 200.0) == 0.0


@pytest.mark.parametrize(
    ("limit_s", "grace_s", "before_s"),
    [(3600.0, 30.0, 30.0), (3600.0, 120.0, 120.0), (3600.0, 5.0, 30.0), (40.0, 30.0, 20.0)],
)
def test_the_notice_comes_a_grace_before_the_end_but_not_in_the_first_half(
    limit_s: float, grace_s: float, before_s: float
) -> None:
    record = JobRecord(job=1, started_at=1000.0, ends_at=1000.0 + limit_s, limit_s=limit_s)
    assert notice_at(record, grace_s) == 1000.0 + limit_s - before_s


def test_a_job_without_a_limit_gets_no_notice() -> None:
    assert notice_at(JobRecord(job=1, started_at=1000.0), 30.0) is None


def test_spans_are_written_as_slurm_writes_them() -> None:
    assert [hours(seconds) for seconds in (60, 3600, 5400, 2 * 86400 + 1800)] == [
        "0:01:00", "1:00:00", "1:30:00", "2-0:30:00",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------- what was ordered


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("#!/bin/sh\n#SBATCH --signal=B:USR1@90\nexec x\n", (signal.SIGUSR1, 90.0)),
        ("#!/bin/sh\n#SBATCH -N 2 --signal SIGUSR2@30 # save\n", (signal.SIGUSR2, 30.0)),
        ("#!/bin/sh\n#SBATCH --signal=R:10\n", (signal.SIGUSR1, 60.0)),
        ("#!/bin/sh\necho\n#SBATCH --signal=USR1@90\n", None),
        ("#!/bin/sh\n#SBATCH --signal=TERM@x\n", None),
        ("#!/bin/sh\nholdfast run train.py\n", None),
        ("sbatch --signal=USR1@120 job.sh", (signal.SIGUSR1, 120.0)),
        ("", None),
    ],
)
def test_the_signal_that_was_ordered_is_read_from_the_script(script: str, found: tuple[int, float] | None) -> None:
    warned = warned_by(script)
    assert (None if warned is None else (warned.number, warned.before_s)) == found


def test_a_partition_says_whether_its_jobs_are_preempted() -> None:
    found = scontrol_records.partition((DATA / "slurm" / "partition.txt").read_text())
    assert found is not None
    assert (found.name, found.grace_s, found.preempt_mode, found.limit_s) == ("low", 15.0, "REQUEUE", None)
    assert scontrol_records.partition("") is None


def test_a_notice_names_the_seconds_that_workers_get() -> None:
    said = time_left_words("preempted", SAVE_FRACTION * 25.0, 25.0)
    assert said == "preempted: the workers have 19 s to save and leave; Slurm ends the job in 25 s"
