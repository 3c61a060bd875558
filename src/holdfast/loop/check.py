"""The door to pre-checks: plan them, run a round of them, watch some of them during a job.

`CheckRound` and `CheckWatch` never wait. The one that waits (the node, or `run_round` for the command line) polls
their `fileno()` up to `next_wake()` and calls `handle_ready(now)`. Every check runs in a forked process.
"""

from __future__ import annotations

from holdfast.decide.gate import Progress
from holdfast.loop.prechecks.plan import (
    CheckPlan,
    DuringJob,
    PlannedCheck,
    catalogue,
    choices_from_text,
    during_job,
    plan_checks,
)
from holdfast.loop.prechecks.round import CheckRound, run_round
from holdfast.loop.prechecks.watch import CheckWatch, Noticed

__all__ = [
    "CheckPlan",
    "CheckRound",
    "CheckWatch",
    "DuringJob",
    "Noticed",
    "PlannedCheck",
    "Progress",
    "catalogue",
    "choices_from_text",
    "during_job",
    "plan_checks",
    "run_round",
]
