"""What to do after a failed attempt: one pure function, and the ladder it walks.

The whole budget is derived from the history of attempts, so there is no counter that could drift from what happened:
replaying the records gives the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.exits import Blame, ExitReport, Rerun, Trigger
from holdfast.model.jobs import RestartPolicy

CHARGED = frozenset({Blame.WORKLOAD, Blame.UNKNOWN})
"""What the user's own budget pays for. Everything else spends the wider one."""


def recover(
    report: ExitReport,
    policy: RestartPolicy,
    history: Sequence[AttemptRecord],
    *,
    progressed: bool,
    healthy: bool,
    now: float,
    jitter: float,
    spare: bool,
) -> Decision:
    """Decide what follows the attempt that `report` explains.

    `history`: the attempts before it, oldest first. `progressed`: it went beyond the furthest step of those. `healthy`:
    it ran for at least `policy.healthy_s`. `now`: seconds, when the delay begins. `jitter`: uniform in [0, 1].
    `spare`: leaving out what the report blames still leaves places for every rank.
    """
    row = 1 if progressed or healthy else 1 + _row(history)
    # What a device reported is not the user's to pay for, also where it was the program that made it report.
    charged = report.blame in CHARGED and report.trigger is not Trigger.FAULT
    if refusal := _refusal(report, policy, history, row=row, progressed=progressed, charged=charged, now=now):
        return Decision(kind=DecisionKind.FAIL, reason=refusal)
    spent = 1 + sum(_restarted(record) and record.decision.charged == charged for record in history)
    limit = policy.max_restarts if charged else policy.platform_max_restarts
    budget = f"{'restart' if charged else 'restart not charged to you'} {spent} of {limit}"
    delay = _delay(report.rerun, policy, row, jitter)
    wait = f", after {delay:.1f} s" if delay else ", at once"
    bad = report.devices or ((report.first.node,) if report.first else ())
    if report.rerun is Rerun.ELSEWHERE or (spare and _blamed_before(report, history, policy)):
        taken = {name for record in history for name in record.decision.avoid}
        if not spare or not bad:
            where = ", ".join(bad) or "the failed part"
            return Decision(
                kind=DecisionKind.FAIL,
                reason=f"{report.phrase} asks to run elsewhere, and without {where} there are too few places left",
            )
        if len(taken | set(bad)) > policy.max_isolations:
            return Decision(
                kind=DecisionKind.FAIL,
                reason=f"this job has had {', '.join(sorted(taken))} avoided already and may take no more than "
                f"{policy.max_isolations}: the job itself may be what breaks them",
            )
        return Decision(
            kind=DecisionKind.REPLACE,
            reason=f"{report.phrase}: go on without {', '.join(bad)}{wait} ({budget})",
            charged=charged,
            delay_s=delay,
            avoid=bad,
        )
    return Decision(
        kind=DecisionKind.RESTART,
        reason=f"{_why_again(report)}{wait} ({budget})",
        charged=charged,
        delay_s=delay,
    )


def _refusal(
    report: ExitReport,
    policy: RestartPolicy,
    history: Sequence[AttemptRecord],
    *,
    row: int,
    progressed: bool,
    charged: bool,
    now: float,
) -> str:
    """Why there is no next attempt, or nothing."""
    if report.rerun is Rerun.NEVER:
        return f"{report.phrase} would end the same way again"
    if policy.max_restarts == 0:
        return "restarts are switched off (--max-restarts 0)"
    if (
        report.blame is Blame.WORKLOAD
        and report.rerun is Rerun.UNKNOWN
        and report.exception
        and not progressed
        and history
        and history[-1].report.fingerprint == report.fingerprint
        and report.fingerprint
    ):
        return (
            f"attempts {history[-1].attempt} and {report.attempt} ended with the same {report.exception} at the same "
            "place, with no progress between them: it would end so again"
        )
    spent = sum(_restarted(record) and record.decision.charged == charged for record in history)
    limit = policy.max_restarts if charged else policy.platform_max_restarts
    if spent >= limit:
        whose = "restarts" if charged else "restarts for failures that are not yours"
        return f"all {limit} {whose} are used"
    if row > policy.max_in_a_row:
        return (
            f"{row} failures in a row without progress; the limit is {policy.max_in_a_row} "
            "(max_in_a_row in a job file; a row ends with a new holdfast.progress(step))"
        )
    recent = sum(_restarted(record) and record.ended_at >= now - policy.window_s for record in history)
    if recent >= policy.window_restarts:
        return f"{recent} restarts within {policy.window_s / 3600:g} h; the limit is {policy.window_restarts}"
    return ""


def _why_again(report: ExitReport) -> str:
    match report.rerun:
        case Rerun.NOW if report.trigger is Trigger.FAULT:
            return f"{report.phrase}: {', '.join(report.devices)} stays, a restart or a reset is all that it asks for"
        case Rerun.NOW:
            return f"{report.phrase}: trying again helps"
        case Rerun.LATER:
            return f"{report.phrase}: trying again later helps"
        case _:
            return f"{report.phrase}: nothing says that it would happen again"


def _restarted(record: AttemptRecord) -> bool:
    return record.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE)


def _row(history: Sequence[AttemptRecord]) -> int:
    """Failures in a row up to the end of `history`, none of which progressed or ran healthily."""
    row = 0
    for record in reversed(history):
        row += 1
        if record.progressed:
            break
    return row


def _delay(rerun: Rerun, policy: RestartPolicy, row: int, jitter: float) -> float:
    """Exponential with jitter in [d/2, d]. The first failure of a row waits only where the cause says *later*."""
    doublings = row - 1 if rerun is Rerun.LATER else row - 2
    if doublings < 0:
        return 0.0
    # The exponent is bounded so that a long row cannot overflow before the cap applies.
    delay = min(policy.backoff_cap_s, policy.backoff_s * 2.0 ** min(doublings, 60))
    return delay * (0.5 + jitter / 2)


def _blamed_before(report: ExitReport, history: Sequence[AttemptRecord], policy: RestartPolicy) -> bool:
    """The same node was the culprit in the attempt before, in one row: the second blame moves the job elsewhere.

    A bug in the program blames a rank, and a rank often sits on the same node: only causes that are not certainly the
    workload's own count.
    """
    if report.first is None or report.blame is Blame.WORKLOAD or not history or history[-1].progressed:
        return False
    last = history[-1].report
    return last.first is not None and last.first.node == report.first.node and last.blame is not Blame.WORKLOAD
