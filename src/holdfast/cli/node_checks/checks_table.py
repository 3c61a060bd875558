"""Formats the result of a round of checks as a table or as a JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.output.printing import print_line
from holdfast.model.human_format import counted

if TYPE_CHECKING:
    from holdfast.model.events import ChecksFinished
    from holdfast.node.check_entry import CheckRound

#: The exit status if a check failed: the code of the class CheckFailed.
FAILED = 252


def state_of(progress: Any, finding: Any) -> str:
    """Return one word for the state of a pre-check: its progress, or the kind of its finding."""
    from holdfast.model.check_results import CheckOutcome
    from holdfast.node.check_entry import Progress

    if finding is not None and finding.answer is CheckOutcome.INCONCLUSIVE:
        return "INCONCLUSIVE"
    return {Progress.PASSED: "PASS", Progress.WARNED: "WARN", Progress.FAILED: "FAIL"}.get(progress, "SKIPPED")


def as_object(current: CheckRound, answer: ChecksFinished, node: str, code: int, took_s: float) -> dict[str, Any]:
    """Return the result of a round of checks as a `holdfast.checks/1` object.

    `current`: the round. `answer`: its result. `code`: the exit status. `took_s`: duration in seconds.
    """
    checks = [
        {
            "name": step.name,
            "state": state_of(progress, finding),
            "result": finding.result if finding else None,
            "message": finding.message if finding else "",
            "solution": finding.solution if finding else "",
            "blame": finding.blame if finding and finding.message and finding.result else None,
            "nodes": list(finding.nodes) if finding else [],
            "devices": list(finding.devices) if finding else [],
            "tries": tried,
            "took_s": round(finding.took_s, 6) if finding else 0.0,
            "figures": finding.figures if finding else {},
        }
        for step, progress, tried, finding in current.progress()
    ]
    return {
        "schema": "holdfast.checks/1",
        "state": answer.state,
        "code": code,
        "node": node,
        "took_s": round(took_s, 6),
        "failure": answer.failure,
        "avoid": list(answer.avoid),
        "warnings": list(answer.warnings),
        "checks": checks,
    }


def print_round(current: CheckRound, answer: ChecksFinished, node: str, took_s: float) -> None:
    """Print the round's checks as a table, with the solution below each failed check, and a summary line."""
    import os
    import sys

    from holdfast.report.terminal_text import Style, columns, harmless, paint, wants_colour, wrapped

    colour, width = wants_colour(sys.stdout, os.environ), columns(os.environ)
    styles = {"PASS": Style.GOOD, "FAIL": Style.BAD, "WARN": Style.WARN, "INCONCLUSIVE": Style.WARN}
    rows = current.progress()
    name_width = max([len(step.name) for step, *_ in rows], default=0)
    problems = 0
    for step, progress, _, finding in rows:
        state = state_of(progress, finding)
        took = _took(finding.took_s) if finding else ""
        head = f"{step.name:<{name_width}}  {state:<12}  {took:>8}  "
        message = harmless(finding.message) if finding else ""
        lines = wrapped(message, max(width, len(head) + 30), " " * len(head), head) if message else [head.rstrip()]
        text = "\n".join(lines)
        if state in styles:
            text = text.replace(state, paint(state, styles[state], colour), 1)
        print_line(text)
        if state in ("FAIL", "WARN", "INCONCLUSIVE"):
            problems += state != "WARN"
            if finding and finding.solution:
                indent = " " * len(head)
                print_line("\n".join(wrapped(harmless(finding.solution), width, indent + "  ", indent + "→ ")))
    failed = sum(1 for _, progress, _, finding in rows if state_of(progress, finding) == "FAIL")
    if not rows:
        print_line("no checks chosen")
    elif answer.state == "FAIL":
        checks = counted(len(rows), "check")
        what = f"{failed} of {checks} failed" if failed else f"{problems} of {checks} cannot tell"
        print_line(f"FAIL: {node}: {what} in {_took(took_s)}")
    else:
        unsure = f", {problems} could not tell" if problems else ""
        passed = f"{len(rows) - problems} of {counted(len(rows), 'check')} passed{unsure}"
        print_line(f"PASS: {node}: {passed} in {_took(took_s)}")


def _took(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
