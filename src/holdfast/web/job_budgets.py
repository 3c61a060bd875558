"""The restart budgets that a job has left, and the decision after its next failure. The owner decides with the same
functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.decide import restart_budgets
from holdfast.decide.recovery import recover
from holdfast.model.decisions import AttemptRecord
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.noun_base import Noun


class Budget(Noun, frozen=True, kw_only=True):
    """One limit of a job's restarts and how much of it is used."""

    name: str
    used: int
    most: int


def budgets_of(policy: RestartPolicy, attempts: Sequence[AttemptRecord]) -> tuple[Budget, ...]:
    """Return all limits of a job's restarts, with their use by the attempts so far."""
    failed = [record for record in attempts if restart_budgets.failed(record)]
    row = restart_budgets.failures_in_row(failed)
    return (
        Budget(
            name="restarts for failures of the program (--max-restarts)",
            used=restart_budgets.spent_restarts(attempts, charged=True, restored=False),
            most=policy.max_restarts,
        ),
        Budget(
            name="restarts for hardware, network and platform",
            used=restart_budgets.spent_restarts(attempts, charged=False, restored=False),
            most=policy.platform_max_restarts,
        ),
        Budget(name="failures in a row without progress", used=row, most=policy.max_in_a_row),
    )


def next_failure(policy: RestartPolicy, attempts: Sequence[AttemptRecord], now: float) -> str:
    """Return the decision if the job failed now in the same way as last time.

    A job that has not failed yet gets the decision after a failure of its program.
    """
    if not attempts:
        if policy.max_restarts == 0:
            return "Any failure ends the job: restarts are switched off (--max-restarts 0)."
        return f"A failure of the program costs restart 1 of {policy.max_restarts}, unless it would surely fail again."
    last = msgspec.structs.replace(attempts[-1].report, attempt=attempts[-1].attempt + 1)
    decision = recover(last, policy, attempts, now=now, jitter=0.5, spare=False)
    return f"{last.phrase} once more, without further progress: {decision.kind.value}: {decision.reason}."
