"""The decision after an attempt, its reason, and the records of attempts and jobs."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from holdfast.model.check_results import ChecksTaken
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.model.noun_base import Noun
from holdfast.model.progress_facts import Count, Sign


class DecisionKind(enum.StrEnum):
    RESTART = "restart"
    REPLACE = "replace"
    #: The platform is asked to start the whole job again. The attempts continue in that run.
    REQUEUE = "requeue"
    FAIL = "fail"
    SUCCEED = "succeed"
    STOP = "stop"


class Decision(Noun, frozen=True, kw_only=True):
    """The decision after an attempt. Its reason is never empty."""

    kind: DecisionKind
    reason: str
    #: Whether the restart counts against the user's budget (`--max-restarts`). False: it counts against the platform's
    #: larger budget.
    charged: bool = False
    delay_s: float = 0.0
    #: The devices or nodes that the following attempts must not use.
    avoid: tuple[str, ...] = ()


class Bound(Noun, frozen=True, kw_only=True):
    """The CPUs and devices to which one worker of an attempt was bound."""

    rank: int
    role: str
    node: str
    #: The CPUs to which the worker was bound, as `0-3,8`; empty: none.
    cpus: str = ""
    #: The devices to which the worker was bound; None: the worker saw all devices that the node may use.
    devices: tuple[str, ...] | None = None


#: Maximum number of bound workers that an attempt's record lists, from the first.
MOST_BOUND = 1024


class Tally(Noun, frozen=True, kw_only=True):
    """Counts of an attempt that its report does not have. Records of holdfast 0.1 lack this struct."""

    #: The lowest of the first steps that the ranks reported. The attempt continued from this step.
    first_step: int | None = None
    #: The lowest of the saved steps that the ranks reported. The next attempt would continue from this step.
    saved_step: int | None = None
    #: Whether all workers were forked from a prewarmed process, which had already imported their modules; None: the
    #: attempt had no workers.
    warm: bool | None = None
    #: Whether a worker had asked for a notice when it must save and exit.
    listened: bool = False
    #: The number of workers that failed because another worker had died, before holdfast stopped them.
    peers: int = 0
    #: The number of workers that holdfast stopped.
    stopped: int = 0
    #: Whose memory limit led to an OOM kill: `worker`, `container` or `host`; empty: no OOM kill.
    memory_scope: str = ""
    #: Console's name (`stdout`, `stderr`) → bytes of output that the console did not get, because its reader had
    #: stopped reading. The name `log` counts bytes that could not be written to a log file.
    dropped_bytes: dict[str, int] = {}


class AttemptRecord(Noun, frozen=True, kw_only=True):
    """The record of one attempt: its times, its report, the decision, and the seconds of each phase."""

    attempt: int
    started_at: float
    ended_at: float
    report: ExitReport
    decision: Decision
    #: Phase (its name in lower case: checking, preparing, starting, running, draining) → the seconds that the attempt
    #: spent in it.
    parts: dict[str, float] = {}
    #: Whether the attempt got further than all earlier attempts (by a step of `holdfast.progress` or a count in the
    #: output), or ran for at least `healthy_s`.
    progressed: bool = False
    #: The lowest of the last steps that the ranks reported.
    step: int | None = None
    #: The last counts (steps, epochs) in the workers' output: for each name and role, the lowest count of the role's
    #: ranks.
    counts: tuple[Count, ...] = ()
    #: The result of the pre-checks before this attempt; None: the record is of an earlier release, which did not store
    #: it.
    checks: ChecksTaken | None = None
    #: The attempt's signs of progress. Signs that restore the user's budget come first.
    signs: tuple[Sign, ...] = ()
    #: The number of workers of the attempt; 0: the record is of an earlier release, which did not store it.
    workers: int = 0
    #: The workers that were bound to CPUs or devices, at most `MOST_BOUND`.
    bound: tuple[Bound, ...] = ()
    tally: Tally = Tally()


class JobReport(Noun, frozen=True, kw_only=True):
    """The job's only report. `holdfast.report.brief_report` renders it as text, `holdfast.record.report_file` as JSON
    of the form `holdfast.report/1`.
    """

    job_id: str
    name: str
    outcome: Outcome
    report: ExitReport
    attempts: tuple[AttemptRecord, ...] = ()


def lost_steps(attempts: Iterable[AttemptRecord]) -> list[tuple[AttemptRecord, int]]:
    """Return the attempts whose last steps had to be repeated by a later attempt, each with the number of repeated
    steps.

    Both attempts must call `holdfast.progress`. If the job failed and its program ever reported a saved step, the steps
    of the last attempt after the last saved step count as well.
    """
    found = []
    last: AttemptRecord | None = None
    saves = False
    for record in attempts:
        first = record.tally.first_step
        if last is not None and last.step is not None and first is not None and first <= last.step:
            found.append((last, last.step - first + 1))
        if record.step is not None:
            last = record
        saves = saves or record.tally.saved_step is not None
        if saves and record.decision.kind is DecisionKind.FAIL and (lost := _unsaved(record)) > 0:
            found.append((record, lost))
    return found


def _unsaved(record: AttemptRecord) -> int:
    """Return the number of steps that an attempt did after its last saved step; all its steps if it saved none."""
    tally = record.tally
    if record.step is None or tally.first_step is None:
        return 0
    return record.step - (tally.first_step - 1 if tally.saved_step is None else tally.saved_step)


def lost_by_attempt(attempts: Iterable[AttemptRecord]) -> dict[int, int]:
    """Return attempt number → lost steps. Attempts that lost none are left out."""
    return {record.attempt: lost for record, lost in lost_steps(attempts)}
