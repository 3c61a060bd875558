"""The report of a job whose supervisor died without one: pure, from what was found of it."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace

from holdfast.explain.causes.lost_owner import explain_lost_owner
from holdfast.model.evidence import LostOwner, LostProcess
from holdfast.model.exit_report import Blame

LOST_OWNER = LostOwner(
    job="20261122-1320-k3f9",
    host="gpu-1",
    pid=4242,
    died_at=1_795_353_601.0,
    attempt=2,
    last_known="attempt 2, ranks 0 to 7 up",
    history=((1_795_353_600.0, "gpu-1: attempt 2: rank 0 up"),),
    lock="/state/jobs/20261122-1320-k3f9/supervisor.lock",
    utc_offset_s=3600.0,
)


def test_a_death_that_no_process_saw_is_dated_by_its_last_sign() -> None:
    report = explain_lost_owner(LOST_OWNER)
    assert (report.phrase, report.code, report.blame, report.attempt) == ("KilledBySignal", 137, Blame.UNKNOWN, 2)
    assert report.reason == (
        "holdfast itself (pid 4242 on gpu-1) died at about 2026-11-22 14:20:01 +01:00, its last sign of life, or "
        "later; its workers were killed with it. It left no report, so something sent it SIGKILL (an operator, a "
        "scheduler, the kernel's memory killer) or it crashed. Last known: attempt 2, ranks 0 to 7 up."
    )
    assert report.hint == "holdfast logs 20261122-1320-k3f9"
    assert [item.text for item in report.evidence] == [
        "the supervisor's lock is free and the job has no report",
        "2026-11-22 14:20:00 +01:00 gpu-1: attempt 2: rank 0 up",
    ]


def test_the_guard_knows_the_signal_and_the_moment() -> None:
    report = explain_lost_owner(replace(LOST_OWNER, signal=signal.SIGSEGV))
    assert (report.code, report.original.signal) == (139, "SIGSEGV")
    assert "was ended by SIGSEGV at 2026-11-22 14:20:01 +01:00" in report.reason


def test_a_machine_that_went_down_is_the_hardwares_failure() -> None:
    report = explain_lost_owner(replace(LOST_OWNER, host_went_down=True))
    assert (report.phrase, report.blame) == ("NodeFailed", Blame.HARDWARE)
    assert "gpu-1 went down some time after" in report.reason


@pytest.mark.parametrize(("count", "more"), [(2, ""), (10, " and 2 more")])
def test_what_lives_on_is_named_with_the_command_that_ends_it(count: int, more: str) -> None:
    left = tuple(LostProcess(pid=100 + index, command="python serve.py") for index in range(count))
    killed = (LostProcess(pid=7), LostProcess(pid=8, command="sh"))
    report = explain_lost_owner(replace(LOST_OWNER, left=left, killed=killed))
    assert "2 processes lived on in the job's control groups until this command killed them: pid 7, pid 8 (sh)." in (
        report.reason
    )
    assert "pid 101 (python serve.py)" in report.reason and report.reason.endswith(f"{more}.")
    assert report.solution.startswith("End what is left: kill 100 101")
