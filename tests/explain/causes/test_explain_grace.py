"""A rank that had to be killed after the grace time is named, with what would help, and no other is."""

from __future__ import annotations

from typing import Any

import pytest

from builders import T
from holdfast.explain import explain
from holdfast.explain.causes.grace_kills import outstayed
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import WorkerExit

LEAVING_ADVICE = "save and leave on SIGTERM"


def killed_at(rank: int, at: float, **how: Any) -> WorkerEvidence:
    fields: dict[str, Any] = {"signal": 9, "after_stop": True, **how}
    exit_ = WorkerExit(
        role="worker", rank=rank, node="n1", attempt=1, pid=100 + rank, ended_at=T + at, order=rank, **fields
    )
    return WorkerEvidence(rank=rank, node="n1", exit=exit_)


def crashed_beside(*others: WorkerEvidence, grace_s: float = 30.0) -> AttemptEvidence:
    """Rank 9 crashed; the others were told to stop at T."""
    culprit = killed_at(9, -0.001, signal=11, after_stop=False)
    return AttemptEvidence(workers=(culprit, *others), stop_asked_at=T, grace_s=grace_s)


def test_ranks_that_outlived_the_grace_time_are_told_with_what_would_help() -> None:
    evidence = crashed_beside(killed_at(0, 30.01), killed_at(1, 2.0, signal=15), killed_at(2, 30.02))
    assert outstayed(evidence) == (0, 2)
    report = explain(evidence)
    assert report.first is not None and report.first.rank == 9
    assert "Ranks 0 and 2 had not left 30 s after SIGTERM and were killed" in report.solution
    assert LEAVING_ADVICE in report.solution and "holdfast.on_drain" in report.solution and "--grace" in report.solution
    assert report.solution.index(LEAVING_ADVICE) > 40, "what the cause asks for comes first"


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (
            crashed_beside(killed_at(0, 30.01), grace_s=0.0),
            "no grace time was granted: the kill was no matter of leaving late",
        ),
        (crashed_beside(killed_at(0, 1.0, signal=15)), "it left on SIGTERM"),
        (crashed_beside(killed_at(0, 29.0, signal=None, exit_code=0)), "it took its time and left by itself"),
        (crashed_beside(killed_at(0, 3.0)), "another killed it, within the grace time"),
        (crashed_beside(killed_at(0, -2.0, after_stop=False)), "it was killed before the stop"),
        (AttemptEvidence(workers=(killed_at(0, 99.0),)), "it had not been asked to stop"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_nobody_else_is_told_so(evidence: AttemptEvidence, why: str) -> None:
    assert outstayed(evidence) == (), why
    assert LEAVING_ADVICE not in explain(evidence).solution
