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
    #: The platform starts the whole job again, and the attempts continue there.
    REQUEUE = "requeue"
    FAIL = "fail"
    SUCCEED = "succeed"
    STOP = "stop"


class Decision(Noun, frozen=True, kw_only=True):
    """The decision after an attempt. Its reason is never empty."""

    kind: DecisionKind
    reason: str
    #: Whether the restart is charged to the user's budget (`--max-restarts`). Hardware and platform failures spend a
    #: wider one.
    charged: bool = False
    delay_s: float = 0.0
    #: Devices or nodes the next attempt must not use.
    avoid: tuple[str, ...] = ()


class Bound(Noun, frozen=True, kw_only=True):
    """The CPUs and devices that one worker of an attempt had to itself."""

    rank: int
    role: str
    node: str
    #: `0-3,8`; empty: it was bound to no CPU.
    cpus: str = ""
    #: None: it saw all devices that the node may use.
    devices: tuple[str, ...] | None = None


#: The record of an attempt lists so many workers, the first ones.
MOST_BOUND = 1024


class Tally(Noun, frozen=True, kw_only=True):
    """What is counted about an attempt beside its report. Records of holdfast 0.1 have none of it."""

    #: The lowest first step over all ranks that reported one: the step from which the attempt continued.
    first_step: int | None = None
    #: The lowest over all ranks that reported a step as saved: the next attempt would continue from it.
    saved_step: int | None = None
    #: All its workers were forked with their imports done; None: it had no workers.
    warm: bool | None = None
    #: A worker had asked to be notified when it must save and exit.
    listened: bool = False
    #: Workers that failed because of another's death, before holdfast stopped them.
    peers: int = 0
    #: Workers that holdfast stopped.
    stopped: int = 0
    #: `worker`, `container` or `host`: whose memory limit was met, where the kernel killed a process for it.
    memory_scope: str = ""
    #: Bytes that a console left out because its reader had stopped reading, by the console's name; and `log`: what no
    #: log file took.
    dropped_bytes: dict[str, int] = {}


class AttemptRecord(Noun, frozen=True, kw_only=True):
    """The whole record of one attempt: when, why it ended, the decision, and the duration of each phase (seconds)."""

    attempt: int
    started_at: float
    ended_at: float
    report: ExitReport
    decision: Decision
    #: Seconds spent in each phase, by its name in lower case: checking, preparing, starting, running, draining.
    parts: dict[str, float] = {}
    #: It went beyond the furthest step of all earlier attempts (from `holdfast.progress`, or counted in the output), or
    #: ran healthily for long enough.
    progressed: bool = False
    #: The lowest last step over all ranks that reported one.
    step: int | None = None
    #: The last counts in the workers' output: for each name the lowest over the ranks of a role that count it.
    counts: tuple[Count, ...] = ()
    #: The pre-checks before this attempt; None in records of earlier releases, which kept none.
    checks: ChecksTaken | None = None
    #: The signs of progress that were seen, those that restore the user's budget first.
    signs: tuple[Sign, ...] = ()
    #: How many workers it had; 0 in records of releases that did not count them.
    workers: int = 0
    #: Workers that had CPUs or devices to themselves, at most `MOST_BOUND`.
    bound: tuple[Bound, ...] = ()
    tally: Tally = Tally()


class JobReport(Noun, frozen=True, kw_only=True):
    """The job's one report; `holdfast.report.text_report` renders it as text and as `holdfast.report/1` JSON."""

    job_id: str
    name: str
    outcome: Outcome
    report: ExitReport
    attempts: tuple[AttemptRecord, ...] = ()
