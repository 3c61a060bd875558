"""What recovery chose, and why."""

from __future__ import annotations

import enum

from holdfast.model.base import Noun
from holdfast.model.checks import ChecksTaken
from holdfast.model.exits import ExitReport, Outcome
from holdfast.model.progress import Count, Sign


class DecisionKind(enum.StrEnum):
    RESTART = "restart"
    REPLACE = "replace"
    REQUEUE = "requeue"
    """The platform starts the whole job again, and the attempts go on there."""
    FAIL = "fail"
    SUCCEED = "succeed"
    STOP = "stop"


class Decision(Noun, frozen=True, kw_only=True):
    """One decision an attempt. The reason is never empty."""

    kind: DecisionKind
    reason: str
    charged: bool = False
    """To the user's budget (`--max-restarts`). Hardware and platform failures spend a wider one."""
    delay_s: float = 0.0
    avoid: tuple[str, ...] = ()
    """Devices or nodes the next attempt must not use."""


class AttemptRecord(Noun, frozen=True, kw_only=True):
    """One attempt, whole: when, why it ended, what was decided, and how long each part took (seconds)."""

    attempt: int
    started_at: float
    ended_at: float
    report: ExitReport
    decision: Decision
    parts: dict[str, float] = {}
    """Seconds spent in each phase, by its name in lower case: checking, preparing, starting, running, draining."""
    progressed: bool = False
    """It went beyond the furthest step of all attempts before it (told by `holdfast.progress`, or counted in the
    output), or ran healthily for long enough."""
    step: int | None = None
    """The lowest last step over all ranks that told one."""
    counts: tuple[Count, ...] = ()
    """Where the output of the workers last stood: for each name the lowest over the ranks of a role that count it."""
    checks: ChecksTaken | None = None
    """The pre-checks before this attempt; None in records of releases that kept none."""
    signs: tuple[Sign, ...] = ()
    """The signs of progress that were seen, those that restore the user's budget first."""


class JobReport(Noun, frozen=True, kw_only=True):
    """The job's one report; `holdfast.show.report` renders it as text and as `holdfast.report/1` JSON."""

    job_id: str
    name: str
    outcome: Outcome
    report: ExitReport
    attempts: tuple[AttemptRecord, ...] = ()
