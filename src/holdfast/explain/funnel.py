"""The funnel makes one report from all evidence of an attempt's end.

It reads the workers' logs and finds the culprit. The report then comes from the first rule of
`holdfast.explain.explanation_rules` that has an answer. Within a rule the earliest first-hand evidence decides. An exit
after holdfast's stop, or a line that only reports a lost peer, is the cause only if there is no better cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue
from holdfast.explain.causes.attribution import Attribution, attribute
from holdfast.explain.causes.diagnosis import finish
from holdfast.explain.causes.exits_from_logs import ranks_with_ends
from holdfast.explain.causes.fingerprint import fingerprint
from holdfast.explain.causes.rival_causes import rivals_of
from holdfast.explain.explanation_rules import ExplanationCase, believe
from holdfast.explain.log_selection import matcher_of, readings_of
from holdfast.explain.logs.row_matcher import Matcher
from holdfast.explain.text.secret_masking import mask
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import (
    Because,
    Blame,
    Culprit,
    Evidence,
    EvidenceKind,
    ExitReport,
    Original,
    OtherRule,
    Rerun,
    Rival,
    Trigger,
    WorkerExit,
    signal_name,
)
from holdfast.model.human_format import with_address
from holdfast.model.phrases import Phrase


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """Explain the attempt; see `holdfast.explain.explain`."""
    if bug := next((w.reading.bug for w in evidence.workers if w.reading is not None and w.reading.bug), ""):
        return without_explaining(evidence, bug)
    try:
        return _explain(evidence, matcher_of(catalogue))
    except Exception as bug_here:  # a bug in holdfast: the job still gets a report with the original exit
        return without_explaining(evidence, f"{type(bug_here).__name__}: {str(bug_here)[:300]}")


def _explain(evidence: AttemptEvidence, matcher: Matcher) -> ExitReport:
    readings = readings_of(evidence, matcher)
    # For `holdfast explain FILE…` the user typed the exit status, so the exit has no pid. Then the logs decide.
    logs_only = all(each.worker.exit is None or (each.said.given and not each.worker.exit.pid) for each in readings)
    who = Attribution(None)
    if not logs_only:
        who = attribute(readings, evidence)
    elif len(readings) > 1 and (told := ranks_with_ends(readings, evidence, matcher)) is not None:
        found = attribute(*told)
        if found.culprit is not None:
            who, (readings, evidence) = found, told
    diagnosis = believe(ExplanationCase(evidence, readings, who, matcher))
    report = _addressed(finish(diagnosis, evidence, readings), evidence.addresses)
    culprits = next((reading for reading in readings if reading.worker is diagnosis.worker), None)
    rivals: tuple[Rival, ...] = ()
    if logs_only or diagnosis.phrase != Phrase.SUCCEEDED:  # a success by exit status needs no look at the logs
        rivals = rivals_of(diagnosis.phrase, diagnosis.rule, diagnosis.cause, diagnosis.worker, readings)
    return replace(
        report,
        fingerprint=mask(fingerprint(diagnosis, report.exception, matcher, culprits)),
        because=replace(report.because, rivals=rivals),
    )


def _addressed(report: ExitReport, addresses: Mapping[str, str]) -> ExitReport:
    """Add each node's address after its first mention in the reason: `rank 12 on gpu-07 (10.1.2.7)`."""
    if not addresses:
        return report
    reason = report.reason
    # Replace longer names first, because `gpu-10` contains `gpu-1`.
    for node in sorted(addresses, key=len, reverse=True):
        if node in reason:
            reason = _named(reason, node, addresses[node])
    return replace(
        report,
        reason=reason,
        first=_at(report.first, addresses) if report.first is not None else None,
        also=tuple(_at(other, addresses) for other in report.also),
    )


def _named(text: str, node: str, address: str) -> str:
    place = re.compile(rf"(?<=\bon ){re.escape(node)}(?![\w@-]|[.:]\w| \()")
    return place.sub(lambda _: with_address(node, address), text, count=1)


def _at(culprit: Culprit, addresses: Mapping[str, str]) -> Culprit:
    return replace(culprit, address=addresses.get(culprit.node, ""))


def without_explaining(evidence: AttemptEvidence, bug: str) -> ExitReport:
    """Return an Unexplained report with the exit of the first worker that failed, and `bug` as the hint.

    The function needs no catalogue and no log, so it works whatever the bug is.
    """
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
