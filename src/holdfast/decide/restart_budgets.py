"""Computes from the attempts so far: the spent restarts of each budget, failures in a row, and the next pause."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.decide.progress_signs import restores
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exit_report import Rerun
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.phrases import Phrase


def spent_restarts(history: Sequence[AttemptRecord], *, charged: bool, restored: bool) -> int:
    """Return the spent restarts of one budget. `charged`: the user's budget, else the platform's.

    The user's budget starts anew after each attempt with a sign that restores it. `restored`: the present attempt has
    one.
    """
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
    """Return whether another attempt followed this one, also in another run of the job."""
    return record.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE, DecisionKind.REQUEUE)


def failed(record: AttemptRecord) -> bool:
    """Return whether the attempt itself failed. A resized gang, or a requeue by the platform, is no failure."""
    return record.report.phrase != Phrase.RESIZED and record.decision.kind is not DecisionKind.REQUEUE


def failures_in_row(history: Sequence[AttemptRecord]) -> int:
    """Return the number of attempts since the last one that progressed or ran healthily, that one included."""
    count = 0
    for record in reversed(history):
        count += 1
        if record.progressed:
            break
    return count


def restart_delay(rerun: Rerun, policy: RestartPolicy, failures: int, jitter: float) -> float:
    """Return the seconds to wait before the next attempt. `failures`: failures in a row. `jitter`: in [0, 1].

    The pause is exponential, with jitter in [d/2, d]. The first failure of a row has a pause only if `rerun` is LATER.
    """
    doublings = failures - 1 if rerun is Rerun.LATER else failures - 2
    if doublings < 0:
        return 0.0
    # Limit the exponent, so that a long row of failures cannot overflow before the cap applies.
    longest = min(policy.backoff_cap_s, policy.backoff_s * 2.0 ** min(doublings, 60))
    return longest * (0.5 + jitter / 2)
