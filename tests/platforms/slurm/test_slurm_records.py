"""What `scontrol` prints becomes values. The texts were printed by Slurm 22.05, unless a test says otherwise."""

from __future__ import annotations

import pytest

from holdfast.platforms.slurm.text import scontrol_records
from places import DATA


def recorded_text(name: str) -> str:
    return (DATA / "slurm" / f"{name}.txt").read_text()


def test_a_job_of_an_array_is_found_by_its_own_number_though_its_name_looks_like_a_state() -> None:
    found = scontrol_records.job(recorded_text("array"), 6)
    assert found is not None
    assert (found.job, found.array, found.index) == (6, 6, 4)
    assert (found.name, found.state, found.comment) == ("hi there JobState=FAILED", "RUNNING", "a b JobState=FAILED")
    assert [each.index for each in scontrol_records.jobs(recorded_text("array"))] == [4, 3]
    assert scontrol_records.job(recorded_text("array"), 99) is None


def test_times_of_a_job_are_seconds() -> None:
    found = scontrol_records.job(recorded_text("array"), 6)
    assert found is not None
    assert found.limit_s == 5400.0
    assert found.started_at is not None
    assert found.ends_at == found.started_at + 5400.0
    assert found.preempted_at is None
    assert (found.requeue, found.batch, found.restarts, found.reason) == (True, True, 0, "")


def test_the_reason_of_a_node_is_a_sentence_with_its_author() -> None:
    idle, _, drained = scontrol_records.nodes(recorded_text("nodes"))
    assert drained.name == "n3"
    assert (drained.reason, drained.reason_by) == ("xid 79 [x] a=b State=IDLE", "root")
    assert drained.states == {"IDLE", "DRAIN"}
    assert drained.drained
    assert not drained.down
    assert idle.states == {"IDLE"}
    assert (idle.reason, idle.drained, idle.silent) == ("", False, False)


def test_a_node_that_does_not_answer_says_so_by_an_asterisk() -> None:
    (found,) = scontrol_records.nodes("NodeName=n3 Arch=x86_64\n   State=DOWN*+DRAIN ThreadsPerCore=1\n")
    assert found.states == {"DOWN", "DRAIN", "NOT_RESPONDING"}
    assert found.down
    assert found.silent


def test_the_newer_form_of_a_node_that_does_not_answer() -> None:
    (found,) = scontrol_records.nodes(
        "NodeName=n3 Arch=x86_64\n   State=IDLE+NOT_RESPONDING+PLANNED ThreadsPerCore=1\n"
    )
    assert found.silent


def test_the_configuration() -> None:
    found = scontrol_records.config(recorded_text("config"))
    assert (found.version, found.kill_wait_s, found.slurmd_timeout_s) == ("22.05.8", 5.0, 3.0)
    assert (found.proctrack, found.preempt_mode) == ("linuxproc", "REQUEUE")
    assert (found.accounting, found.job_comment) == (False, False)


def test_a_configuration_that_says_nothing_is_slurms_own_default() -> None:
    assert scontrol_records.config("") == scontrol_records.Config()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:00", 60.0),
        ("1-02:03:04", 93784.0),
        ("30:00", 1800.0),
        ("5", 300.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_spans_of_time(text: str, seconds: float | None) -> None:
    assert scontrol_records.span_s(text) == seconds


def test_a_text_that_is_no_record_is_no_job() -> None:
    assert scontrol_records.jobs("slurm_load_jobs error: Invalid job id specified\n") == ()
    assert scontrol_records.jobs("") == ()


def test_local_times_are_read_too() -> None:
    """A `scontrol` that does not know SLURM_TIME_FORMAT."""
    (found,) = scontrol_records.jobs(
        "JobId=7 JobName=x\n   StartTime=2026-11-22T18:00:02 EndTime=Unknown Deadline=N/A\n"
    )
    assert found.started_at is not None
    assert found.ends_at is None
