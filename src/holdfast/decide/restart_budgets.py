"""What the attempts so far have used up: restarts of each budget, failures in a row, and the pause that follows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.decide.progress_signs import restores
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exit_report import Rerun
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.phrases import Phrase


def spent_restarts(history: Sequence[AttemptRecord], *, charged: bool, restored: bool) -> int:
    """Restarts of one budget so far. The user's budget starts anew after each attempt with a sign that restores it."""
    count = 0
    if charged and restored:
        return 0
    for record in reversed(history):
        if restarted(record) and record.decision.charged == charged:
            count += 1
        if charged and restores(record.signs):
            break
    return count


def restarted(record: AttemptRecord) -> bool:
    """Whether another attempt followed this one, or was to follow it in another run of the job."""
    return record.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE, DecisionKind.REQUEUE)


def failed(record: AttemptRecord) -> bool:
    """Whether the attempt itself failed. One that grew, or whose nodes the platform took, did not."""
    return record.report.phrase != Phrase.RESIZED and record.decision.kind is not DecisionKind.REQUEUE


def failures_in_row(history: Sequence[AttemptRecord]) -> int:
    """The number of failures in a row at the end of `history`: none of these attempts progressed or ran healthily."""
    count = 0
    for record in reversed(history):
        count += 1
        if record.progressed:
            break
    return count


def restart_delay(rerun: Rerun, policy: RestartPolicy, failures: int, jitter: float) -> float:
    """The pause in seconds before the next attempt, after so many failures in a row.

    Exponential with jitter in [d/2, d]. The first failure of a row has one only where the cause says *later*.
    """
    doublings = failures - 1 if rerun is Rerun.LATER else failures - 2
    if doublings < 0:
        return 0.0
    # The exponent is bounded so that a long row cannot overflow before the cap applies.
    longest = min(policy.backoff_cap_s, policy.backoff_s * 2.0 ** min(doublings, 60))
    return longest * (0.5 + jitter / 2)
