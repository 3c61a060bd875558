"""Explains failures of sidecars: processes beside the workers, which are hooks or daemons that the job requires."""

from __future__ import annotations

from holdfast.explain.report_draft import ReportDraft
from holdfast.explain.row_matcher import Matcher
from holdfast.model.evidence import AttemptEvidence, StopSource
from holdfast.model.exit_report import Evidence, EvidenceKind, Original, Trigger, signal_name
from holdfast.model.phrases import Phrase
from holdfast.model.runtime_plan import HookMoment
from holdfast.model.sidecar_ends import SideFailure, SideKind

#: Number of last lines of the output that are kept.
LAST_LINES = 10


def failed_beside(evidence: AttemptEvidence, matcher: Matcher, *, finished: bool) -> ReportDraft | None:
    """Draft the report for the first sidecar whose failure ended the attempt; None: there is none.

    finished: whether every worker exited with status 0.
    """
    failure = next((one for one in evidence.beside if _counts(one, evidence, finished=finished)), None)
    if failure is None:
        return None
    phrase = Phrase.HOOK_FAILED if failure.kind is SideKind.HOOK else Phrase.DAEMON_FAILED
    others = [one.title for one in evidence.beside if one is not failure]
    also = f"; {', '.join(others)} failed too" if others else ""
    log = f"{failure.log} on {failure.node}" if failure.node and evidence.addresses else failure.log
    signal = signal_name(failure.signal) if failure.signal is not None else None
    after = "All workers had succeeded. " if finished else ""
    return ReportDraft(
        phrase,
        matcher.catalogue.row(phrase),
        Trigger.RUNTIME,
        reason=f"{failure.sentence}{also}",
        solution=f"{after}Read its output ({log}) and run its command by hand with the environment of the job."
        + (" A longer `limit` gives it more time." if failure.limit_s is not None else "")
        + (" `on_failure: ignore` lets the attempt go on without it." if failure.kind is SideKind.HOOK else ""),
        original=Original(exit_code=failure.exit_code, signal=signal),
        evidence=[
            Evidence(
                kind=EvidenceKind.SIGNAL if signal else EvidenceKind.EXIT_CODE,
                text=f"{failure.title} {failure.fate}",
                source=failure.log or failure.title,
                node=failure.node,
            ),
            *(
                Evidence(kind=EvidenceKind.LOG, text=end, source=failure.log, node=failure.node)
                for end in ["\n".join(failure.last_words.splitlines()[-LAST_LINES:])]
                if end.strip()
            ),
        ],
        collateral=tuple(sorted(w.rank for w in evidence.workers if w.exit is not None and not w.exit.ok)),
    )


def _counts(failure: SideFailure, evidence: AttemptEvidence, *, finished: bool) -> bool:
    """Whether the failure explains the attempt's end. A later hook counts only if all workers had succeeded; any other
    sidecar only if nothing else requested a stop."""
    if failure.kind is SideKind.HOOK and failure.when is not HookMoment.BEFORE:
        return finished
    return evidence.stop is None or evidence.stop.source is StopSource.DAEMON
