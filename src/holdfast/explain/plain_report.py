"""Makes the report of an attempt whose explanation failed by a bug in holdfast: only the exit, as the system reported
it."""

from __future__ import annotations

from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import (
    Because,
    Blame,
    Evidence,
    EvidenceKind,
    ExitReport,
    Original,
    OtherRule,
    Rerun,
    Trigger,
    WorkerExit,
    signal_name,
)
from holdfast.model.phrases import Phrase


def without_explaining(evidence: AttemptEvidence, bug: str) -> ExitReport:
    """Return an Unexplained report with the exit of the first worker that failed, and `bug` as the hint."""
    first: WorkerExit | None = min(
        (w.exit for w in evidence.workers if w.exit is not None and not w.exit.ok),
        key=lambda e: (e.ended_at or 0.0, e.order),
        default=None,
    )
    original = Original()
    if first is not None:
        original = Original(
            exit_code=first.exit_code, signal=signal_name(first.signal) if first.signal is not None else None
        )
    return ExitReport(
        code=255,
        phrase=Phrase.UNEXPLAINED,
        blame=Blame.UNKNOWN,
        rerun=Rerun.UNKNOWN,
        reason=f"the worker ended with {first.how}; explaining it failed inside holdfast"
        if first
        else "explaining failed",
        solution="Read the worker's log, and report the hint below as a bug of holdfast.",
        trigger=Trigger.EXIT_CODE if first is not None and first.exit_code is not None else None,
        hint=f"bug of holdfast: {bug}",
        original=original,
        evidence=(Evidence(kind=EvidenceKind.EXIT_CODE, text=first.how, source=f"{first.role}-{first.rank}"),)
        if first
        else (),
        attempt=evidence.attempt,
        fingerprint=Phrase.UNEXPLAINED,
        confidence=0.0,
        because=Because(rule=OtherRule.BUG, row=Phrase.UNEXPLAINED),
    )
