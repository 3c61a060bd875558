"""Decides what follows a failed attempt: one pure function with an ordered list of rules.

The function computes all budgets from the history of attempts, so a replay of the records gives the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.decide.recovery import restart_budgets
from holdfast.decide.recovery.progress_signs import healthy, restores
from holdfast.decide.recovery.restart_budgets import RequeueBudget
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.exit_report import Blame, ExitReport, Rerun, Trigger
from holdfast.model.human_format import duration, share
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Sign, SignKind

#: Failures with this blame are charged to the user's budget. All others are charged to the platform's larger budget.
CHARGED = frozenset({Blame.WORKLOAD, Blame.UNKNOWN})
#: Each attempt gets a new rendezvous port. So if two attempts in a row find a port in use, the program itself chose the
#: port.
OWN_PORT = Phrase.ADDRESS_IN_USE
#: Before these failures all ranks only waited, so the length of the attempt shows no health.
WAITED = frozenset({Phrase.COLLECTIVE_TIMEOUT, Phrase.HUNG_WORKER})


def recover(
    report: ExitReport,
    policy: RestartPolicy,
    history: Sequence[AttemptRecord],
    *,
    signs: Sequence[Sign] = (),
    now: float,
    jitter: float,
    spare: bool,
    left: RequeueBudget | None = None,
) -> Decision:
    """Decide what follows the attempt that `report` explains.

    `history`: the earlier attempts, oldest first. `signs`: the signs of progress in this attempt. `now`: when the delay
    begins, in seconds. `jitter`: a random number in [0, 1]. `spare`: whether the job can place every rank without the
    blamed nodes or devices. `left`: the budget for further runs of the job; None: the platform never starts the job
    again. `policy`: the limits on restarts.
    """
    if report.phrase == Phrase.RESIZED:
        return Decision(kind=DecisionKind.RESTART, reason=report.reason)
    whole, history = history, [record for record in history if restart_budgets.failed(record)]
    row = 1 if restores(signs) or healthy(signs) else 1 + restart_budgets.failures_in_row(history)
    # A failure that a device reported is charged to the platform, even if the program may have caused it.
    charged = report.blame in CHARGED and report.trigger is not Trigger.FAULT
    spent = restart_budgets.spent_restarts(whole, charged=charged, restored=restores(signs))
    elsewhere = report.rerun is Rerun.ELSEWHERE or (spare and _blamed_before(report, history, policy))
    bad = report.devices or ((report.first.node,) if report.first else ())
    taken = {name for record in history for name in record.decision.avoid}
    if is_loss(report):
        # The first time a node is lost, do not avoid it: once it is back it takes part again.
        bad = tuple(name for name in bad if any(is_loss(r.report) and name in r.report.devices for r in history))
        elsewhere = spare = bool(bad) and len(taken | set(bad)) <= policy.max_isolations
    # On other nodes the next attempt counts as a new try. The same failure must happen there too before it ends the
    # job.
    same = "" if elsewhere else _same_again(report, policy, history, signs=signs, charged=charged)
    if left is not None and left.refusal is None and not charged and report.rerun is not Rerun.NEVER:
        # A further run of the job gets other nodes, so it is not charged to the user's budget.
        taken_from = is_loss(report) or report.rerun is Rerun.ELSEWHERE
        if taken_from and (policy.max_restarts == 0 or (elsewhere and not (spare and bad))):
            return _elsewhere(report, left, bad)
    refusal = _refusal(report, policy, history, row=row, signs=signs, charged=charged, spent=spent, same=same, now=now)
    if refusal:
        return Decision(kind=DecisionKind.FAIL, reason=refusal)
    limit = policy.max_restarts if charged else policy.platform_max_restarts
    delay = restart_budgets.restart_delay(report.rerun, policy, row, jitter)
    when = f"in {delay:.1f} s" if delay else "now"
    which = f"restart {spent + 1} of {limit}{'' if charged else ' (platform budget, not yours)'} {when}"
    seen = progress_seen(signs, history)
    if elsewhere:
        if not spare or not bad:
            where = ", ".join(bad) or "the failed part"
            reason = f"{report.phrase} asks to run elsewhere, and without {where} there are too few places left"
            return Decision(kind=DecisionKind.FAIL, reason=left.instead(reason) if left else reason)
        if len(taken | set(bad)) > policy.max_isolations:
            return Decision(kind=DecisionKind.FAIL, reason=no_more_avoided(bad, taken, policy.max_isolations))
        return Decision(
            kind=DecisionKind.REPLACE,
            reason=f"{which}: {report.phrase}, so without {', '.join(bad)}{seen}",
            charged=charged,
            delay_s=delay,
            avoid=bad,
        )
    last = _last_chance(report, policy, history, signs, charged=charged)
    return Decision(
        kind=DecisionKind.RESTART,
        reason=f"{which}: {why_again(report, last=last)}{seen}",
        charged=charged,
        delay_s=delay,
    )


def _elsewhere(report: ExitReport, left: RequeueBudget, bad: Sequence[str]) -> Decision:
    """Return the decision to continue in another run of the job, on other nodes. `bad`: the nodes to avoid."""
    names = report.devices or bad
    without = f"without {', '.join(names)}" if names else "with other nodes"
    return Decision(
        kind=DecisionKind.REQUEUE,
        reason=f"{left.cost()}: {report.phrase}, so in another run of the job {without}",
        avoid=tuple(bad),
    )


def _refusal(
    report: ExitReport,
    policy: RestartPolicy,
    history: Sequence[AttemptRecord],
    *,
    row: int,
    signs: Sequence[Sign],
    charged: bool,
    spent: int,
    same: str,
    now: float,
) -> str:
    """Return why no further attempt may follow; empty if one may. `row`: the number of failures in a row. `charged`:
    whether the failure is charged to the user's budget. `spent`: the spent restarts of that budget. `same`: why another
    attempt would fail in the same way; empty: it might succeed.
    """
    if report.rerun is Rerun.NEVER:
        if report.phrase == Phrase.CHECK_FAILED:
            return "the check asks to stop the job"
        return f"{report.phrase} would fail again"
    if policy.max_restarts == 0:
        return "restarts are switched off (--max-restarts 0)"
    if same:
        return same
    limit = policy.max_restarts if charged else policy.platform_max_restarts
    if spent >= limit:
        return f"{restart_budgets.used_up(limit, charged=charged)}{progress_seen(signs, history)}"
    if row > policy.max_in_a_row:
        return (
            f"{row} failures in a row without progress; the limit is {policy.max_in_a_row} "
            "(max_in_a_row in a job file; a row ends with a higher step, in the output or by holdfast.progress)"
        )
    recent = sum(restart_budgets.restarted(record) and record.ended_at >= now - policy.window_s for record in history)
    if recent >= policy.window_restarts:
        return f"{recent} restarts within {duration(policy.window_s)}; the limit is {policy.window_restarts}"
    return ""


def _same_again(
    report: ExitReport, policy: RestartPolicy, history: Sequence[AttemptRecord], *, signs: Sequence[Sign], charged: bool
) -> str:
    """Return why another attempt would fail in the same way; empty if it might succeed.

    It would fail if the last failures are equal, and if no attempt among them got further than the one before it.
    """
    judged = _is_judged(report, charged=charged)
    before = history[-(policy.same_failure - 1) :] if policy.same_failure > 1 else ()
    if not judged or not before or len(before) < policy.same_failure - 1:
        return ""
    if any(record.report.fingerprint != report.fingerprint for record in before):
        return ""
    if _gained(report, signs) or any(_gained(record.report, record.signs) for record in before[1:]):
        return ""
    numbers = [str(record.attempt) for record in before] + [str(report.attempt)]
    return (
        f"attempts {', '.join(numbers[:-1])} and {numbers[-1]} ended with the same {failure_name(report)}, and "
        f"no sign of progress was seen between them (--same-failure {policy.same_failure})"
    )


def _is_judged(report: ExitReport, *, charged: bool) -> bool:
    """Return whether equal failures in a row end the job.

    `charged`: whether the failure is charged to the user's budget.
    """
    return bool(report.fingerprint) and ((charged and report.rerun is Rerun.UNKNOWN) or report.phrase == OWN_PORT)


def _last_chance(
    report: ExitReport, policy: RestartPolicy, history: Sequence[AttemptRecord], signs: Sequence[Sign], *, charged: bool
) -> bool:
    """Return whether one more equal failure without progress would end the job. The decision then must not announce
    several attempts.
    """
    if policy.same_failure <= 2:
        return policy.same_failure == 2 and _is_judged(report, charged=charged)
    fewer = replace(policy, same_failure=policy.same_failure - 1)
    return bool(_same_again(report, fewer, history, signs=signs, charged=charged))


def _gained(report: ExitReport, signs: Sequence[Sign]) -> bool:
    return any(sign.kind is not SignKind.HEALTHY or report.phrase not in WAITED for sign in signs)


def _blamed_before(report: ExitReport, history: Sequence[AttemptRecord], policy: RestartPolicy) -> bool:
    """Return whether the previous attempt also blamed this node and made no progress. The job then avoids the node.

    Failures of the workload do not count: a bug in the program blames a rank, and the rank may be on the same node
    again by chance.
    """
    if report.first is None or report.blame is Blame.WORKLOAD or not history or history[-1].progressed:
        return False
    last = history[-1].report
    return last.first is not None and last.first.node == report.first.node and last.blame is not Blame.WORKLOAD


def no_more_avoided(bad: Sequence[str], taken: set[str], most: int) -> str:
    """Return the reason for ending the job because it would avoid more than `most` devices or nodes.

    Many blamed devices suggest that the job itself causes the faults.

    `taken`: the names that the job already avoids. `most`: how many it may avoid. `bad`: the further names.
    """
    if not taken:
        return f"avoiding {', '.join(bad)} is more than this job may: at most {most} (max_isolations in a job file)"
    return (
        f"this job has had {', '.join(sorted(taken))} avoided already and may take no more than {most}: "
        "the job itself may be what breaks them"
    )


def failure_name(report: ExitReport) -> str:
    """Return a short name of the failure: `ZeroDivisionError`, `NativeCrash (SIGSEGV)`, `exit status 7`."""
    if report.exception:
        return report.chain[0].partition(":")[0] if report.chain else report.exception
    if report.original.signal:
        return f"{report.phrase} ({report.original.signal})"
    if report.original.exit_code is not None and report.phrase == Phrase.UNEXPLAINED:
        return f"exit status {report.original.exit_code}"
    return report.phrase


def progress_seen(signs: Sequence[Sign], history: Sequence[AttemptRecord]) -> str:
    """Return a clause that names the first sign of progress, or says that there was none. Empty for a first attempt."""
    if signs:
        return f"; progress: {signs[0].text}"
    return f"; no sign of progress since attempt {_last_sign(history)}" if history else ""


def _last_sign(history: Sequence[AttemptRecord]) -> int:
    """Return the number of the last attempt with a sign of progress; if none has one, the number of the first
    attempt.
    """
    return next((record.attempt for record in reversed(history) if record.signs), history[0].attempt)


def as_before(report: ExitReport, history: Sequence[AttemptRecord]) -> ExitReport:
    """Return the report without a culprit, if several ranks had the same failure in an earlier attempt.

    After the first failure holdfast stops the other ranks, often before they fail too, so it is chance which rank fails
    first. If in the earlier attempt only one other rank failed, each rank stays the culprit of its attempt.
    """
    first = report.first
    if first is None or report.blame is not Blame.WORKLOAD or not report.fingerprint or report.rerun is Rerun.ELSEWHERE:
        return report
    for record in history:
        if record.report.fingerprint == report.fingerprint and (alike := record.report.alike):
            break
    else:
        return report
    who = share(len(alike), record.workers, "rank")
    reason = (
        f"{report.reason}; {who} failed in the same way in attempt {record.attempt}, so no single rank is the cause"
    )
    return replace(report, reason=reason, first=None, also=(), confidence=1.0, collateral=(), alike=alike)


def is_loss(report: ExitReport) -> bool:
    """Return whether the report is about nodes that fell silent or left. The gang itself detects these."""
    return report.phrase == Phrase.NODE_FAILED and report.trigger is Trigger.RUNTIME and bool(report.devices)


def why_again(report: ExitReport, *, last: bool) -> str:
    """Return the reason for another attempt, as a clause. `last`: whether one more equal failure would end the job."""
    then = "; the same failure again ends the job" if last else ", so another attempt may work"
    match report.rerun:
        case _ if is_loss(report):
            return f"{', '.join(report.devices)} {'is' if len(report.devices) == 1 else 'are'} lost, the others go on"
        case Rerun.NOW if report.trigger is Trigger.FAULT:
            devices = ", ".join(report.devices)
            return f"{report.phrase} asks for no more than a restart or a reset, so {devices} stays in use"
        case Rerun.NOW:
            return f"another attempt may help against {report.phrase}"
        case Rerun.LATER:
            return f"{report.phrase} may pass with time{then}"
        case _ if report.blame is Blame.UNKNOWN:
            return f"{report.phrase} has no known cause{then}"
        case _:
            return f"{report.phrase} may have been an accident{then}"
