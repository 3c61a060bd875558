"""Whether a job may go on in another run, which the platform starts, and what that costs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.decide import restart_budgets
from holdfast.model.decisions import AttemptRecord
from holdfast.model.job_spec import JobSpec

#: How long the platform may take to end this run after the owner asked for a new one, in seconds.
ANSWER_S = 300.0


class RequeueBudget(msgspec.Struct, frozen=True):
    """What the platform's budget leaves for another run of the job."""

    spent: int
    limit: int
    #: Why there is no other run; empty where no platform starts jobs again; None: there may be one.
    refusal: str | None

    def cost(self) -> str:
        """`restart 3 of 20 (platform budget, not yours)`"""
        return f"restart {self.spent + 1} of {self.limit} (platform budget, not yours)"

    def instead(self, reason: str) -> str:
        """A reason to end the job, with the reason why it is not queued again."""
        return f"{reason}; not queued again: {self.refusal}" if self.refusal else reason


def requeues(spec: JobSpec, history: Sequence[AttemptRecord], unrecorded: int) -> RequeueBudget:
    """`unrecorded`: requeues that followed no attempt, so that no record shows them."""
    limit = spec.restarts.platform_max_restarts
    spent = restart_budgets.spent_restarts(history, charged=False, restored=False) + unrecorded
    refusal: str | None = None
    if not spec.requeue.possible:
        refusal = spec.requeue.why_not
    elif spent >= limit:
        refusal = f"all {limit} restarts for failures that are not yours are used"
    return RequeueBudget(spent, limit, refusal)
