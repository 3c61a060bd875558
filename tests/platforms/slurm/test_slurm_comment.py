"""The line that holdfast leaves in the comment of a job of Slurm's."""

from __future__ import annotations

import pytest

from holdfast.model.exit_report import Blame, Culprit, ExitReport, Rerun
from holdfast.platforms.slurm.owner.job_comment import MOST_BYTES, OWN_BYTES, line, users, with_line


def oom_report(reason: str = "rank 3 on gpu-7: no memory left", code: int = 205, rank: int = 3) -> ExitReport:
    first = Culprit(role="worker", rank=rank, node="gpu-7", pid=1, at=0.0)
    return ExitReport(
        code=code,
        phrase="CudaOutOfMemory",
        blame=Blame.WORKLOAD,
        rerun=Rerun.NEVER,
        reason=reason,
        solution="",
        first=first,
    )


def test_the_line_has_class_reason_and_code() -> None:
    assert line(oom_report()) == "holdfast: CudaOutOfMemory: rank 3 on gpu-7: no memory left (205)"
    assert line(oom_report("no memory left")) == "holdfast: CudaOutOfMemory: rank 3 on gpu-7: no memory left (205)"


def test_the_line_is_bounded_and_one_line() -> None:
    long = line(oom_report('a "b"\nc\x1b[1m; holdfast: X: y (1) ' + "é" * 300))
    assert len(long.encode()) <= OWN_BYTES
    assert long.isprintable()
    assert long.endswith("… (205)")
    assert users(with_line("mine", long)) == "mine"


@pytest.mark.parametrize("own", ["", "my run", "a; b", "holdfast: my own words", "sweep 3 (12)"])
def test_the_users_own_comment_stays_and_the_last_line_wins(own: str) -> None:
    once = with_line(own, line(oom_report()))
    twice = with_line(once, line(oom_report("it hangs", code=186)))
    assert users(once) == users(twice) == own
    assert twice.removeprefix(own).removeprefix("; ") == "holdfast: CudaOutOfMemory: rank 3 on gpu-7: it hangs (186)"


def test_a_users_comment_without_room_beside_it_is_left_alone() -> None:
    own = "x" * (MOST_BYTES - 10)
    assert with_line(own, line(oom_report())) == own
