"""Values that tests of several rooms start from. A test names only the fields that it is about."""

from __future__ import annotations

from typing import Any

from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, StopRequest, StopSource, WorkerEvidence
from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
from holdfast.model.faults import Assertion, FaultEvent
from holdfast.model.job_spec import JobSpec, Role
from holdfast.model.phrases import Phrase

#: A moment of 2023, in seconds since 1970.
T = 1_700_000_000.0
DAY_S = 86_400.0
PREEMPTED = StopRequest(
    reason="Slurm preempts the job", source=StopSource.PLATFORM, phrase=Phrase.PREEMPTED, requeue=True
)


def job_spec(count: int = 1, **changes: Any) -> JobSpec:
    """A job of `count` workers."""
    fields: dict[str, Any] = {"name": "j", "roles": (Role(name="worker", count=count, command=("x",)),)}
    return JobSpec(**(fields | changes))


def exit_report(code: int = 1, phrase: str = "UserException", **changes: Any) -> ExitReport:
    """A report that blames nothing and nobody."""
    fields: dict[str, Any] = {"blame": Blame.UNKNOWN, "rerun": Rerun.UNKNOWN, "reason": "r", "solution": "s"}
    return ExitReport(code=code, phrase=phrase, **(fields | changes))


def fault_event(
    at: float, code: str = "79", assertion: Assertion = Assertion.OCCUR, device: str = "gpu0", **more: Any
) -> FaultEvent:
    """A fault `at` seconds after T."""
    return FaultEvent(device=device, code=code, assertion=assertion, at=T + at, **more)


def of_log(text: str, source: str = "job.log") -> AttemptEvidence:
    """What is known of an attempt of which there is one log."""
    return AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source=source, text=text)),))


def of_stderr(text: str) -> AttemptEvidence:
    """What is known of an attempt of one worker that wrote this to stderr."""
    return AttemptEvidence(workers=(WorkerEvidence(stderr=LogExcerpt(source="worker-0 stderr", text=text)),))


def failed_job(job_id: str = "j", name: str = "demo", report: ExitReport | None = None) -> JobReport:
    """A job whose only attempt failed with this report."""
    end = report or exit_report()
    decision = Decision(kind=DecisionKind.FAIL, reason="enough")
    record = AttemptRecord(attempt=1, started_at=10.0, ended_at=20.0, report=end, decision=decision)
    return JobReport(job_id=job_id, name=name, outcome=Outcome.FAILED, report=end, attempts=(record,))
