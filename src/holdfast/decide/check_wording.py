"""The text of a failed pre-check: its message, the advice, and the check's own reason for its action."""

from __future__ import annotations

from holdfast.model.check_results import ActionKind, CheckOutcome, FailedAction, Finding
from holdfast.model.evidence import CheckFailure


def check_message(finding: Finding | None) -> str:
    """Return the message of a finding, or `no reason given`."""
    return (finding.message if finding else "") or "no reason given"


def failure_of(check: str, finding: Finding | None, action: FailedAction | None) -> CheckFailure:
    """Return the failure for the report, from the check's finding and the chosen action."""
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
        reason = words.replace(message, "").strip(" :;")  # DLRover's abort repeats the result's message
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
        elsewhere=action is not None and action.kind in (ActionKind.AVOID, ActionKind.REPLACE),
    )
