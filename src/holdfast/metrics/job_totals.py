"""Totals over all jobs, as counters that only increase.

Each export computes them again from the journal, so a restart of holdfast does not reset them.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.decide.recovery.restart_budgets import restarted
from holdfast.metrics import metric_table as m
from holdfast.metrics.samples import Samples
from holdfast.model.decisions import AttemptRecord, DecisionKind, lost_steps
from holdfast.model.exit_report import ExitReport
from holdfast.model.phrases import Phrase
from holdfast.record.job_history import PastJob
from holdfast.report.statistics.goodput import TimeUse, of_attempt, recoveries

#: Maximum number of job names, and of node names, that become label values. Further names are counted as `OTHERS`.
MOST_NAMES = 500
OTHERS = "(other names)"
#: Lowest confidence at which an explanation counts as certain.
SURE = 0.8
#: Phases of an attempt that overlap other phases or take no time.
_BESIDE = ("first_output", "done")
#: Maps the result of a check to its label. A check that did not run has no label.
CHECKED = {"passed": "passed", "passed with a warning": "warning", "failed": "failed"}


class LabelNames:
    """The first `MOST_NAMES` names, which may be label values.

    A name is never removed, so that no series changes its name.
    """

    def __init__(self, first: Iterable[str] = ()) -> None:
        self.known = dict.fromkeys(first)

    def label(self, name: str) -> str:
        if name not in self.known:
            if len(self.known) >= MOST_NAMES:
                return OTHERS
            self.known[name] = None
        return name


def count(jobs: Iterable[PastJob], into: Samples, names: LabelNames, nodes: LabelNames) -> None:
    """Add the totals of these jobs to `into`.

    `jobs`: the oldest first. `names`, `nodes`: the names of jobs and nodes that may be label values.
    """
    for job in jobs:
        name = names.label(job.view.name)
        _count_end(job, name, into)
        for record in job.attempts:
            _count_attempt(record, name, nodes, into)
        for before, (after, seconds) in zip(job.attempts, recoveries(job.attempts), strict=False):
            mode = mode_of(after.tally.warm)
            into.add(m.RECOVERY, seconds, mode, before.report.blame.value)
            count_restart(before, name, mode, into)
        if steps := sum(lost for _, lost in lost_steps(job.attempts)):
            into.add(m.LOST_STEPS, float(steps), name)


def mode_of(warm: bool | None) -> str:
    """Return the label of a metric for the way in which an attempt's workers were started (warm or cold)."""
    return "warm" if warm else "cold"


def count_restart(before: AttemptRecord, name: str, mode: str, into: Samples) -> None:
    """Count the restart after attempt `before`, if it was restarted.

    `mode`: label for the way in which workers were started. `into`: receives the values.
    """
    if restarted(before):
        into.add(m.RESTARTS, 1.0, name, before.report.phrase, "user" if before.decision.charged else "platform", mode)


def _count_end(job: PastJob, name: str, into: Samples) -> None:
    view = job.view
    if view.outcome is None:
        return
    blame = job.attempts[-1].report.blame.value if job.attempts else "unknown"
    into.add(m.JOBS, 1.0, name, view.outcome.value, view.phrase or "unknown", blame)
    if view.ended is not None:
        into.add(m.JOB_SECONDS, max(view.ended - view.created, 0.0), view.outcome.value)


def _count_attempt(record: AttemptRecord, name: str, nodes: LabelNames, into: Samples) -> None:
    report, decision = record.report, record.decision
    into.add(m.ATTEMPTS, 1.0, name, report.phrase, report.blame.value, decision.kind.value)
    for part, seconds in record.parts.items():
        if part not in _BESIDE and seconds > 0:
            into.add(m.PARTS, seconds, name, part)
    for spent, seconds in of_attempt(record).items():
        if spent is TimeUse.PRODUCTIVE:
            into.add(m.GOODPUT, seconds, name)
        else:
            into.add(m.BADPUT, seconds, name, spent.value)
    if decision.kind is not DecisionKind.SUCCEED:
        _count_failure(record, report, name, nodes, into)
    for stream, left_out in record.tally.dropped_bytes.items():
        into.add(m.UNSHOWN, float(left_out), stream)
    if record.checks is not None and not record.checks.reused:
        for line in record.checks.checks:
            if result := CHECKED.get(line.state):
                into.add(m.CHECK_RUNS, 1.0, line.name, result)


def _count_failure(record: AttemptRecord, report: ExitReport, name: str, nodes: LabelNames, into: Samples) -> None:
    blame = report.blame.value
    if (seconds := record.parts.get("detection")) is not None:
        into.add(m.DETECTION, seconds, blame)
    if (seconds := record.parts.get("draining")) is not None:
        into.add(m.DRAIN, seconds, "listened" if record.tally.listened else "not")
    hung = report.phrase == Phrase.HUNG_WORKER
    if own := (report.first is not None) + len(report.also):
        into.add(m.EXITS, float(own), name, "silent" if hung else "own", report.phrase)
    if report.first is not None and report.first.node:
        into.add(m.NODE_FAILURES, 1.0, nodes.label(report.first.node), report.phrase)
    tally = record.tally
    counted = tally.peers + tally.stopped
    # Records of holdfast 0.1 have a single list for peers and stopped workers. Count all of them as peers.
    for kind, number in (("peer", tally.peers if counted else len(report.collateral)), ("stopped", tally.stopped)):
        if number:
            into.add(m.EXITS, float(number), name, kind, report.phrase)
    if hung:
        into.add(m.HANGS, 1.0, name)
    if report.phrase == Phrase.HOST_OUT_OF_MEMORY_KILLED:
        into.add(m.MEMORY_KILLS, 1.0, tally.memory_scope or "host")
    sure = "none" if report.phrase == Phrase.UNEXPLAINED else "high" if report.confidence >= SURE else "low"
    into.add(m.EXPLANATIONS, 1.0, report.phrase, sure)
