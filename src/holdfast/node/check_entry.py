"""The entry point of pre-checks: plan them, run a round of them, repeat some of them during a job.

`CheckRound` and `CheckWatch` never wait. Their caller waits (the node, or `run_round` for the command line): it polls
`fileno()` up to `next_wake()`, then calls `handle_ready(now)`. Every check runs in a forked process.
"""

from __future__ import annotations

from holdfast.decide.gate import Progress
from holdfast.launch.check_plan import CheckPlan, DuringJob, PlannedCheck, choices_from_text, during_job
from holdfast.node.prechecks.check_planning import catalogue, plan_checks
from holdfast.node.prechecks.check_round import CheckRound, run_round
from holdfast.node.prechecks.check_scheduler import CheckChange, CheckWatch

__all__ = [
    "CheckChange",
    "CheckPlan",
    "CheckRound",
    "CheckWatch",
    "DuringJob",
    "PlannedCheck",
    "Progress",
    "catalogue",
    "choices_from_text",
    "during_job",
    "plan_checks",
    "run_round",
]
