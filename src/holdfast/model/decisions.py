"""The decision of recovery after an attempt, with its reason."""

from __future__ import annotations

import enum

from holdfast.model.check_results import ChecksTaken
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.model.noun_base import Noun
from holdfast.model.progress_facts import Count, Sign


class DecisionKind(enum.StrEnum):
    RESTART = "restart"
    REPLACE = "replace"
    REQUEUE = "requeue"
    """The platform starts the whole job again, and the attempts continue there."""
    FAIL = "fail"
    SUCCEED = "succeed"
    STOP = "stop"


class Decision(Noun, frozen=True, kw_only=True):
    """The decision after an attempt. Its reason is never empty."""

    kind: DecisionKind
    reason: str
    charged: bool = False
    """Whether the restart is charged to the user's budget (`--max-restarts`). Hardware and platform failures spend a
    wider one."""
    delay_s: float = 0.0
    avoid: tuple[str, ...] = ()
    """Devices or nodes the next attempt must not use."""


class Bound(Noun, frozen=True, kw_only=True):
    """The CPUs and devices that one worker of an attempt had to itself."""

    rank: int
    role: str
    node: str
    cpus: str = ""
    """`0-3,8`; empty: it was bound to no CPU."""
    devices: tuple[str, ...] | None = None
    """None: it saw all devices that the node may use."""


MOST_BOUND = 1024
"""The record of an attempt lists so many workers, the first ones."""


class Tally(Noun, frozen=True, kw_only=True):
    """What is counted about an attempt beside its report. Records of holdfast 0.1 have none of it."""

    first_step: int | None = None
    """The lowest first step over all ranks that reported one: the step from which the attempt continued."""
    saved_step: int | None = None
    """The lowest over all ranks that reported a step as saved: the next attempt would continue from it."""
    warm: bool | None = None
    """All its workers were forked with their imports done; None: it had no workers."""
    listened: bool = False
    """A worker had asked to be notified when it must save and exit."""
    peers: int = 0
    """Workers that failed because of another's death, before holdfast stopped them."""
    stopped: int = 0
    """Workers that holdfast stopped."""
    memory_scope: str = ""
    """`worker`, `container` or `host`: whose memory limit was met, where the kernel killed a process for it."""
    dropped_bytes: dict[str, int] = {}
    """Bytes that a console left out because its reader had stopped reading, by the console's name; and `log`: what no
    log file took."""


class AttemptRecord(Noun, frozen=True, kw_only=True):
    """The whole record of one attempt: when, why it ended, the decision, and the duration of each phase (seconds)."""

    attempt: int
    started_at: float
    ended_at: float
    report: ExitReport
    decision: Decision
    parts: dict[str, float] = {}
    """Seconds spent in each phase, by its name in lower case: checking, preparing, starting, running, draining."""
    progressed: bool = False
    """It went beyond the furthest step of all earlier attempts (from `holdfast.progress`, or counted in the output), or
    ran healthily for long enough."""
    step: int | None = None
    """The lowest last step over all ranks that reported one."""
    counts: tuple[Count, ...] = ()
    """The last counts in the workers' output: for each name the lowest over the ranks of a role that count it."""
    checks: ChecksTaken | None = None
    """The pre-checks before this attempt; None in records of earlier releases, which kept none."""
    signs: tuple[Sign, ...] = ()
    """The signs of progress that were seen, those that restore the user's budget first."""
    workers: int = 0
    """How many workers it had; 0 in records of releases that did not count them."""
    bound: tuple[Bound, ...] = ()
    """Workers that had CPUs or devices to themselves, at most `MOST_BOUND`."""
    tally: Tally = Tally()


class JobReport(Noun, frozen=True, kw_only=True):
    """The job's one report; `holdfast.report.text_report` renders it as text and as `holdfast.report/1` JSON."""

    job_id: str
    name: str
    outcome: Outcome
    report: ExitReport
    attempts: tuple[AttemptRecord, ...] = ()
