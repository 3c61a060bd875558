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


class Bound(Noun, frozen=True, kw_only=True):
    """What one worker of an attempt had to itself."""

    rank: int
    role: str
    node: str
    cpus: str = ""
    """`0-3,8`; empty: it was bound to none."""
    devices: tuple[str, ...] | None = None
    """None: it saw all that the node may use."""


MOST_BOUND = 1024
"""Of the workers of an attempt in its record: the first ones."""


class Tally(Noun, frozen=True, kw_only=True):
    """What is counted of an attempt beside its report. Records of holdfast 0.1 have none of it."""

    first_step: int | None = None
    """The lowest first step over all ranks that told one: where the attempt went on."""
    saved_step: int | None = None
    """The lowest over all ranks that told a step as saved: from there another attempt would go on."""
    warm: bool | None = None
    """All its workers were forked with their imports done; None: it had no workers."""
    listened: bool = False
    """A worker had said that it wants to know when it is to save and leave."""
    peers: int = 0
    """Workers that failed for another's death, before holdfast stopped them."""
    stopped: int = 0
    """Workers that holdfast stopped."""
    memory_scope: str = ""
    """`worker`, `container` or `host`: whose memory ran out, where the kernel killed for it."""
    dropped_bytes: dict[str, int] = {}
    """Output that a console left out since its reader had stopped reading, by the console's name; and `log`: what no
    log file took."""


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
    workers: int = 0
    """How many workers it had; 0 in records of releases that did not count them."""
    bound: tuple[Bound, ...] = ()
    """Workers that had CPUs or devices to themselves, at most `MOST_BOUND`."""
    tally: Tally = Tally()


class JobReport(Noun, frozen=True, kw_only=True):
    """The job's one report; `holdfast.show.report` renders it as text and as `holdfast.report/1` JSON."""

    job_id: str
    name: str
    outcome: Outcome
    report: ExitReport
    attempts: tuple[AttemptRecord, ...] = ()
