"""A rank that left with status 0 while others waited for it: its last line is shown, where it wrote one."""

from __future__ import annotations

from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit


def report_of_word(said: str) -> ExitReport:
    def ended(rank: int, code: int, at: float) -> WorkerExit:
        return WorkerExit(role="worker", rank=rank, node="n", attempt=1, pid=rank + 9, exit_code=code, ended_at=at)

    waited = LogExcerpt(source="worker-1 stderr", text="RuntimeError: Connection closed by peer [127.0.0.1]:2\n")
    left = LogExcerpt(source="worker-0 stdout", text=said) if said else None
    workers = (
        WorkerEvidence(rank=0, exit=ended(0, 0, 100.0), stdout=left),
        WorkerEvidence(rank=1, exit=ended(1, 1, 101.0), stderr=waited),
    )
    return explain(AttemptEvidence(workers=workers, stop_asked_at=102.0))


def test_the_last_line_of_a_rank_that_left_early_is_in_the_evidence() -> None:
    report = report_of_word("epoch 3 done\n")
    assert report.phrase == "CollectiveMismatch"
    assert report.solution.endswith("find why this one left early; its last line is in the evidence.")
    assert ("epoch 3 done", "worker-0 stdout:1") in [(item.text, item.source) for item in report.evidence]


def test_no_line_is_promised_of_a_rank_that_printed_nothing() -> None:
    report = report_of_word("")
    assert report.solution.endswith("find why this one left early; it printed nothing.")
