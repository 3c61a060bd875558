"""The gate runs one round of pre-checks. It decides which check runs next, whether to retry it, and how to act on its
failure. Pure.

It takes events (`Answered`, `TimePassed`) and returns instructions (`Start`, `Kill`). Callers pass in `now`.
Independent checks run in parallel, the others one after another in the order of the job. The gate never waits:
`next_wake` returns the time of the next deadline or retry. Every check has a deadline, so every round ends.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import assert_never

from holdfast.model.check_results import (
    ActionKind,
    CheckLine,
    CheckOutcome,
    ChecksTaken,
    CheckState,
    FailedAction,
    Finding,
    InconclusivePolicy,
)
from holdfast.model.events import ChecksFinished
from holdfast.model.evidence import CheckFailure
from holdfast.model.noun_base import Message, Noun


class CheckStep(Noun, frozen=True, kw_only=True):
    """One check of a round of checks, with its limits. Times are seconds."""

    name: str
    #: The number of retries after a failed or inconclusive run of the check.
    retries: int = 3
    interval_s: float = 5.0
    #: The time limit of the check, from its first start to its last retry.
    limit_s: float = 60.0
    #: Whether the check must not run at the same time as another one.
    alone: bool = True
    inconclusive: InconclusivePolicy = InconclusivePolicy.WARN
    #: Whether a failure of the check only prints a warning. The job then starts all the same.
    only_warn: bool = False


class GatePlan(Noun, frozen=True, kw_only=True):
    """The plan of one round of checks: which checks to run, and within which limits."""

    attempt: int = 1
    round: int = 1
    nodes: tuple[str, ...] = ()
    #: The checks in order; empty: no checks, and the round's state is DISABLED.
    steps: tuple[CheckStep, ...] = ()
    #: The number of nodes that the job needs. If a failed check leaves fewer, the gate requests replacements.
    needed: int = 1
    #: The time limit of the whole round, in seconds; None: no limit.
    deadline_s: float | None = None
    #: Whether the remaining checks run after a failure, as in `holdfast check`.
    keep_going: bool = False


class Answered(Message, frozen=True, kw_only=True):
    """A run of a check has ended. `step`: the check's index in the plan. `tried`: the number of the run. The gate
    ignores a result of an earlier run.
    """

    step: int
    tried: int
    finding: Finding


class TimePassed(Message, frozen=True, kw_only=True):
    """The time that `Gate.next_wake` returned has come."""


class Start(Message, frozen=True, kw_only=True):
    """Run this check, which must end by `deadline`."""

    step: int
    tried: int
    deadline: float


class Kill(Message, frozen=True, kw_only=True):
    """Kill this run of a check with all its child processes."""

    step: int
    tried: int
    why: str


GateEvent = Answered | TimePassed
Instruction = Start | Kill


class Progress(enum.StrEnum):
    """The state of one check in the round, for displays."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused until the next try"
    PASSED = "passed"
    WARNED = "passed with a warning"
    FAILED = "failed"
    SKIPPED = "not run"


_OVER = frozenset({Progress.PASSED, Progress.WARNED, Progress.FAILED, Progress.SKIPPED})


@dataclass
class _CheckProgress:
    """The gate's state of one check. Times are seconds on the clock of `now`."""

    step: CheckStep
    progress: Progress = Progress.WAITING
    tried: int = 0
    deadline: float = 0.0
    due: float = 0.0
    #: The latest failure or inconclusive result.
    bad: Finding | None = None
    final: Finding | None = None
    action: FailedAction | None = None
    warnings: list[str] = field(default_factory=list)


class Gate:
    """Runs one round of checks, from the state CHECKING to DISABLED, PASS or FAIL."""

    def __init__(self, plan: GatePlan, now: float) -> None:
        self.plan = plan
        self._lines = [_CheckProgress(step) for step in plan.steps]
        self._ends = now + plan.deadline_s if plan.deadline_s is not None else None
        self._failed = False

    @property
    def state(self) -> CheckState:
        if not self._lines:
            return CheckState.DISABLED
        if any(line.progress not in _OVER for line in self._lines):
            return CheckState.CHECKING
        return CheckState.FAIL if self._failed else CheckState.PASS

    def start(self, now: float) -> list[Instruction]:
        return self._advance(now)

    def handle(self, event: GateEvent, now: float) -> list[Instruction]:
        match event:
            case Answered():
                line = self._lines[event.step]
                if line.progress is not Progress.RUNNING or event.tried != line.tried:
                    return []
                out = self._answered(line, event.finding, now)
            case TimePassed():
                out = []
            case _:
                assert_never(event)
        return out + self._overdue(now) + self._advance(now)

    def next_wake(self) -> float | None:
        times = [line.deadline for line in self._lines if line.progress is Progress.RUNNING]
        times += [line.due for line in self._lines if line.progress is Progress.PAUSED]
        if self._ends is not None and self.state is CheckState.CHECKING:
            times.append(self._ends)
        return min(times, default=None)

    def progress(self) -> list[tuple[CheckStep, Progress, int, Finding | None]]:
        """Return for each check, in order: its step in the plan, its state, the number of its runs, and its last
        result.
        """
        return [(line.step, line.progress, line.tried, line.final or line.bad) for line in self._lines]

    def finished(self) -> ChecksFinished | None:
        """Return the final state of the round of checks; None while it is CHECKING."""
        state = self.state
        if state is CheckState.CHECKING:
            return None
        failed = [line for line in self._lines if line.progress is Progress.FAILED]
        warnings = [text for line in self._lines for text in line.warnings]
        avoid: list[str] = []
        fatal = False
        for line in failed:
            action = line.action or FailedAction(kind=ActionKind.STOP)
            match action.kind:
                case ActionKind.AVOID | ActionKind.REPLACE:
                    avoid += action.nodes
                case ActionKind.STOP:
                    fatal = True
                case ActionKind.NOTE | ActionKind.RETRY:
                    raise AssertionError(f"{action.kind!r} fails nothing")
                case _:
                    assert_never(action.kind)
        # Show the failed check with the most severe action; of several, show the first in the job's order.
        failed.sort(key=lambda line: -(line.action.kind if line.action else ActionKind.STOP))
        warnings += [f"{line.step.name} failed too: {check_message(line.final)}" for line in failed[1:]]
        return ChecksFinished(
            attempt=self.plan.attempt,
            round=self.plan.round,
            state=state,
            failure=failure_of(failed[0].step.name, failed[0].final, failed[0].action) if failed else None,
            avoid=tuple(dict.fromkeys(avoid)),
            fatal=fatal,
            warnings=tuple(warnings),
            taken=self.taken(),
        )

    def taken(self) -> ChecksTaken:
        """Return the state of the round of checks, for the journal and for displays."""
        return ChecksTaken(
            state=self.state,
            checks=tuple(
                CheckLine(
                    name=line.step.name,
                    state=line.progress.value,
                    message=found.message if (found := line.final or line.bad) else "",
                    tries=line.tried,
                    took_s=round(found.took_s, 3) if found else 0.0,
                )
                for line in self._lines
            ),
        )

    def _advance(self, now: float) -> list[Instruction]:
        """Start the retries that are due. Then start the next group of parallel checks, or the next check that must run
        alone.
        """
        out: list[Instruction] = []
        for number, line in enumerate(self._lines):
            if line.progress is Progress.PAUSED and line.due <= now:
                out.append(self._run(number, line, now))
        busy = [line for line in self._lines if line.progress in (Progress.RUNNING, Progress.PAUSED)]
        if self._failed and not self.plan.keep_going and not busy:
            for line in self._lines:
                if line.progress is Progress.WAITING:
                    line.progress = Progress.SKIPPED
            return out
        if self._failed and not self.plan.keep_going:
            return out
        for number, line in enumerate(self._lines):
            if line.progress in _OVER:
                continue
            if line.progress is not Progress.WAITING:
                if line.step.alone:
                    break
                continue
            if line.step.alone and busy:
                break
            out.append(self._run(number, line, now))
            busy.append(line)
            if line.step.alone:
                break
        return out

    def _run(self, number: int, line: _CheckProgress, now: float) -> Start:
        if line.tried == 0:
            line.deadline = now + line.step.limit_s
            if self._ends is not None:
                line.deadline = min(line.deadline, self._ends)
        line.tried += 1
        line.progress = Progress.RUNNING
        return Start(step=number, tried=line.tried, deadline=line.deadline)

    def _answered(self, line: _CheckProgress, finding: Finding, now: float) -> list[Instruction]:
        if finding.answer is CheckOutcome.GOOD:
            if line.bad is not None:
                line.warnings.append(f"{line.step.name} passed at try {line.tried}; before: {check_message(line.bad)}")
            line.final = finding
            line.progress = Progress.PASSED
            return []
        if not (finding.answer is CheckOutcome.INCONCLUSIVE and line.bad and line.bad.answer is CheckOutcome.BAD):
            line.bad = finding
        if self._may_retry(line, finding, now):
            line.progress = Progress.PAUSED
            line.due = now + line.step.interval_s
            return []
        return self._settle(line)

    def _may_retry(self, line: _CheckProgress, finding: Finding, now: float) -> bool:
        if finding.answer is CheckOutcome.BAD and (_is_note(line, finding) or _aborts(finding)):
            # Do not retry: the failure only causes a warning, or the check requests an immediate stop of the job.
            return False
        if line.tried - 1 >= max(
            [line.step.retries, *(a.times for a in finding.actions if a.kind is ActionKind.RETRY)]
        ):
            return False
        return now + line.step.interval_s < line.deadline

    def _settle(self, line: _CheckProgress) -> list[Instruction]:
        """Act on the last bad result of this check, because it has no retry left."""
        finding = line.bad
        assert finding is not None
        line.final = finding
        if finding.answer is CheckOutcome.INCONCLUSIVE:
            if line.step.inconclusive is InconclusivePolicy.WARN:
                line.warnings.append(f"{line.step.name} is inconclusive: {check_message(finding)}")
                line.progress = Progress.WARNED
                return []
            action = self._choose(finding, (FailedAction(kind=ActionKind.AVOID, nodes=(finding.node,)),))
        else:
            actions = [action for action in finding.actions if action.kind is not ActionKind.RETRY]
            if _is_note(line, finding):
                line.warnings.append(f"{line.step.name}: {check_message(finding)}")
                line.progress = Progress.WARNED
                return []
            action = self._choose(finding, tuple(actions))
        line.action = action
        line.progress = Progress.FAILED
        self._failed = True
        if self.plan.keep_going or action.kind is not ActionKind.STOP:
            return []
        out: list[Instruction] = []
        for number, other in enumerate(self._lines):
            if other.progress is Progress.RUNNING:
                out.append(Kill(step=number, tried=other.tried, why=f"{line.step.name} stops the job"))
            if other.progress not in _OVER:
                other.progress = Progress.SKIPPED
        return out

    def _choose(self, finding: Finding, actions: tuple[FailedAction, ...]) -> FailedAction:
        """Return the action after a failed check: the mildest requested action that can help.

        Leaving out nodes helps only if they belong to this round, and if enough other nodes are left.
        """
        left_out: FailedAction | None = None
        for action in sorted(actions, key=lambda action: action.kind):
            if action.kind < ActionKind.AVOID:
                continue
            if action.kind is ActionKind.STOP:
                return action
            nodes = tuple(node for node in action.nodes or finding.nodes if node in self.plan.nodes)
            if not nodes:
                continue
            applied = FailedAction(kind=action.kind, nodes=nodes, reason=action.reason)
            if action.kind is ActionKind.REPLACE or len(self.plan.nodes) - len(set(nodes)) >= self.plan.needed:
                return applied
            left_out = left_out or applied
        return left_out or FailedAction(kind=ActionKind.STOP)

    def _overdue(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for number, line in enumerate(self._lines):
            if line.progress is Progress.RUNNING and line.deadline <= now:
                limit_s = (
                    line.step.limit_s if self._ends is None else min(line.step.limit_s, self.plan.deadline_s or 0.0)
                )
                why = f"no answer within {limit_s:g} s"
                out.append(Kill(step=number, tried=line.tried, why=why))
                if not (line.bad and line.bad.answer is CheckOutcome.BAD):
                    where = self.plan.nodes[0] if len(self.plan.nodes) == 1 else ""
                    line.bad = Finding(
                        check=line.step.name,
                        answer=CheckOutcome.INCONCLUSIVE,
                        node=where,
                        nodes=(where,) if where else (),
                        message=f"{where}: {why}; it was stopped" if where else f"{why}; it was stopped",
                        blame="unknown",
                        took_s=limit_s,
                    )
                out += self._settle(line)
            elif line.progress is Progress.PAUSED and line.deadline <= now:
                out += self._settle(line)
        if self._ends is not None and self._ends <= now:
            for line in self._lines:
                if line.progress is Progress.WAITING:
                    line.tried = 0
                    line.bad = Finding(
                        check=line.step.name,
                        answer=CheckOutcome.INCONCLUSIVE,
                        message="not run: the time for all checks was over before its turn",
                        blame="unknown",
                    )
                    out += self._settle(line)
        return out


def _is_note(line: _CheckProgress, finding: Finding) -> bool:
    """Return whether this failed check only causes a warning."""
    notes = [action.kind is ActionKind.NOTE for action in finding.actions if action.kind is not ActionKind.RETRY]
    return line.step.only_warn or (bool(notes) and all(notes))


def _aborts(finding: Finding) -> bool:
    """Return whether the failed check requests that the job stops, and nothing else."""
    return bool(finding.actions) and all(action.kind is ActionKind.STOP for action in finding.actions)


def check_message(finding: Finding | None) -> str:
    """Return the message of a check's result, or `no reason given`."""
    return (finding.message if finding else "") or "no reason given"


def failure_of(check: str, finding: Finding | None, action: FailedAction | None) -> CheckFailure:
    """Return the failure of a check for the job's report. `action`: the action that the gate has chosen."""
    assert finding is not None  # a check cannot fail without a result
    inconclusive = finding.answer is CheckOutcome.INCONCLUSIVE
    solution = finding.solution
    if not solution:
        command = f"`holdfast check {check}`"
        solution = (
            f"Run {command} on the node to see where it stops, or give it more time with --check-timeout."
            if inconclusive
            else f"Repair or leave out the node, then see with {command} that it passes."
        )
    message = check_message(finding)
    reasons = [action.reason] if action is not None else []
    reasons += [action.reason for action in finding.actions if action.kind is ActionKind.STOP]
    for words in dict.fromkeys(reasons):
        # DLRover's abort reason repeats the check's message, so leave the message out of it
        reason = words.replace(message, "").strip(" :;")
        if reason and reason not in message:
            message = f"{message}; {reason}"
    return CheckFailure(
        check=check,
        message=message,
        solution=solution,
        nodes=finding.nodes or ((finding.node,) if finding.node else ()),
        blame=finding.blame,
        inconclusive=inconclusive,
        devices=finding.devices,
        phrase=finding.phrase,
        elsewhere=action is not None and action.kind in (ActionKind.AVOID, ActionKind.REPLACE),
    )
