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
    #: The platform starts the whole job again, and the attempts continue in that run.
    REQUEUE = "requeue"
    FAIL = "fail"
    SUCCEED = "succeed"
    STOP = "stop"


class Decision(Noun, frozen=True, kw_only=True):
    """The decision after an attempt. Its reason is never empty."""

    kind: DecisionKind
    reason: str
    #: Whether the restart is charged to the user's budget (`--max-restarts`). False: it is charged to the platform's
    #: larger budget.
    charged: bool = False
    delay_s: float = 0.0
    #: The devices or nodes that the following attempts must not use.
    avoid: tuple[str, ...] = ()


class Bound(Noun, frozen=True, kw_only=True):
    """The CPUs and devices to which a worker of an attempt was bound."""

    rank: int
    role: str
    node: str
    #: The CPUs to which the worker was bound, as `0-3,8`; empty: it was not bound.
    cpus: str = ""
    #: The devices to which the worker was bound; None: the worker saw all devices that the node may use.
    devices: tuple[str, ...] | None = None


#: An attempt's record lists at most this many bound workers, from the first.
MOST_BOUND = 1024


class Tally(Noun, frozen=True, kw_only=True):
    """Counts of an attempt that its report lacks. Records of holdfast 0.1 do not have this struct."""

    #: The lowest of the first steps that the ranks reported: the attempt continued from it.
    first_step: int | None = None
    #: The lowest of the saved steps that the ranks reported: the next attempt would continue from it.
    saved_step: int | None = None
    #: Whether all workers were forks of a prewarmed process with their imports done; None: the attempt had no workers.
    warm: bool | None = None
    #: Whether a worker had registered for a notice to save and exit.
    listened: bool = False
    #: The number of workers that failed because another worker had died, before the stop.
    peers: int = 0
    #: The number of workers that holdfast stopped.
    stopped: int = 0
    #: Whose memory limit led to an OOM kill: `worker`, `container` or `host`; empty: there was no OOM kill.
    memory_scope: str = ""
    #: Console (`stdout`, `stderr`) → bytes of output that it did not get, because its reader had stopped reading.
    #: `log`: bytes that could not be written to a log file.
    dropped_bytes: dict[str, int] = {}


class AttemptRecord(Noun, frozen=True, kw_only=True):
    """The record of one attempt: its times, its report, the decision, and the seconds of each phase."""

    attempt: int
    started_at: float
    ended_at: float
    report: ExitReport
    decision: Decision
    #: Phase (its name in lower case: checking, preparing, starting, running, draining) → the attempt's seconds in it.
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
    """Return the attempts whose last steps a later attempt had to repeat, with the numbers of repeated steps.

    Both attempts must call `holdfast.progress`. If the job failed and its program has ever reported a saved step, the
    last attempt's steps after the last saved one count too.
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
    """Return the number of an attempt's steps after its last saved step; all its steps if it saved none."""
    tally = record.tally
    if record.step is None or tally.first_step is None:
        return 0
    return record.step - (tally.first_step - 1 if tally.saved_step is None else tally.saved_step)


def lost_by_attempt(attempts: Iterable[AttemptRecord]) -> dict[int, int]:
    """Return attempt number → lost steps. Attempts that lost none are left out."""
    return {record.attempt: lost for record, lost in lost_steps(attempts)}
