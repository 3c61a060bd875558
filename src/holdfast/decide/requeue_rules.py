"""Decides whether the platform may start the job again in another run, and what that costs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.decide import restart_budgets
from holdfast.model.decisions import AttemptRecord
from holdfast.model.job_spec import JobSpec

#: Seconds that the platform may take to end this run after the owner asked for a new one.
ANSWER_S = 300.0


class RequeueBudget(msgspec.Struct, frozen=True):
    """The platform's budget for further runs of the job: restarts spent, and the limit."""

    spent: int
    limit: int
    #: Why there is no further run; empty: no platform starts jobs again. None: a further run is possible.
    refusal: str | None

    def cost(self) -> str:
        """Return the cost in words: `restart 3 of 20 (platform budget, not yours)`."""
        return f"restart {self.spent + 1} of {self.limit} (platform budget, not yours)"

    def instead(self, reason: str) -> str:
        """Return a reason to end the job, with the reason why the job is not queued again."""
        return f"{reason}; not queued again: {self.refusal}" if self.refusal else reason


def requeues(spec: JobSpec, history: Sequence[AttemptRecord], unrecorded: int) -> RequeueBudget:
    """Return the budget for further runs. `unrecorded`: requeues that followed no attempt, so no record shows them."""
    limit = spec.restarts.platform_max_restarts
    spent = restart_budgets.spent_restarts(history, charged=False, restored=False) + unrecorded
    refusal: str | None = None
    if not spec.requeue.possible:
        refusal = spec.requeue.why_not
    elif spent >= limit:
        refusal = f"all {limit} restarts for failures that are not yours are used"
    return RequeueBudget(spent, limit, refusal)
