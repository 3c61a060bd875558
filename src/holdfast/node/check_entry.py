"""The entry point of pre-checks. It selects the checks, runs them before a job, and repeats some of them during the
job.

`CheckRound` and `CheckWatch` never block. Their caller (the node, or `run_round` for the command line) polls `fileno()`
until `next_wake()`, then calls `handle_ready(now)`. Every check runs in a forked process.
"""

from __future__ import annotations

from holdfast.decide.gate import Progress
from holdfast.launch.check_plan import CheckPlan, DuringJob, PlannedCheck, choices_from_text, during_job
from holdfast.node.prechecks.check_planning import catalogue, plan_checks
from holdfast.node.prechecks.check_round import CheckRound, run_round
from holdfast.node.prechecks.checks_during_job import CheckChange, CheckWatch

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
