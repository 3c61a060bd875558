"""Makes the report of a plain success: every worker exited with status 0, and there is no other evidence.

Most jobs end like this. Their report should not wait for the catalogue, its patterns and re2 to load.
"""

from __future__ import annotations

from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Because, Blame, ExitReport, Original, Rerun
from holdfast.model.human_format import everyone
from holdfast.model.phrases import Phrase

#: The name of the rule in `explanation_rules` that would make the same report.
SUCCESS_RULE = "all_finished"


def plain_success(evidence: AttemptEvidence) -> ExitReport | None:
    """Return the report of a plain success; None if the evidence needs the full explanation (the funnel)."""
    known = evidence
    told = known.stop or known.faults or known.memory_kills or known.kernel or known.lost or known.hang or known.check
    if told or known.beside or known.deadline or known.pai_errors or not known.workers:
        return None
    if not all(worker.exit is not None and worker.exit.ok and not worker.start_failed for worker in known.workers):
        return None
    return ExitReport(
        code=0,
        phrase=Phrase.SUCCEEDED,
        blame=Blame.UNKNOWN,
        rerun=Rerun.NEVER,
        reason=success_sentence(len(known.workers)),
        solution="Nothing to do.",
        original=Original(exit_code=0),
        attempt=known.attempt,
        fingerprint="Succeeded|status 0|||||",
        because=Because(rule=SUCCESS_RULE, row=Phrase.SUCCEEDED),
    )


def success_sentence(workers: int) -> str:
    """Return the report's sentence about the success of this many workers."""
    return f"{everyone(workers, 'worker')} finished with status 0"
