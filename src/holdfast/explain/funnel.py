"""The funnel: everything known of an attempt's end goes in, one report comes out.

The workers' words are read, the culprit is found, and the first rule of `holdfast.explain.beliefs` that has an answer
gives the report. Within one rule the earliest first-hand evidence wins; exits after our own stop, and words that only
say that a peer went away, are never the cause while anything better exists.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.catalogue.exits import Catalogue
from holdfast.explain.attribution import Attribution, attribute
from holdfast.explain.beliefs import Case, believe
from holdfast.explain.draft import finish
from holdfast.explain.fingerprint import fingerprint
from holdfast.explain.matcher import Matcher
from holdfast.explain.secrets import mask
from holdfast.explain.testimony import matcher_of, readings_of
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exits import Blame, Evidence, ExitReport, Original, Rerun, Trigger, WorkerExit, signal_name
from holdfast.model.phrases import Phrase


def explain(evidence: AttemptEvidence, catalogue: Catalogue | None = None) -> ExitReport:
    """See `holdfast.explain.explain`."""
    if bug := next((w.reading.bug for w in evidence.workers if w.reading is not None and w.reading.bug), ""):
        return _broken(evidence, bug)
    try:
        return _explain(evidence, matcher_of(catalogue))
    except Exception as bug_here:  # a bug of ours: the job still gets its report, with the original exit kept
        return _broken(evidence, f"{type(bug_here).__name__}: {str(bug_here)[:300]}")


def _explain(evidence: AttemptEvidence, matcher: Matcher) -> ExitReport:
    readings = readings_of(evidence, matcher)
    # From `holdfast explain FILE…`: a typed exit has no pid, and the logs speak for themselves.
    logs_only = all(each.worker.exit is None or (each.said.given and not each.worker.exit.pid) for each in readings)
    who = Attribution(None) if logs_only else attribute(readings, evidence)
    draft = believe(Case(evidence, readings, who, matcher))
    report = finish(draft, evidence, readings)
    culprits = next((reading for reading in readings if reading.worker is draft.worker), None)
    return replace(report, fingerprint=mask(fingerprint(draft, report.exception, matcher, culprits)))


def _broken(evidence: AttemptEvidence, bug: str) -> ExitReport:
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
        evidence=(Evidence(kind="exit_code", text=first.how, source=f"{first.role}-{first.rank}"),) if first else (),
        attempt=evidence.attempt,
        fingerprint=Phrase.UNEXPLAINED,
        confidence=0.0,
    )
