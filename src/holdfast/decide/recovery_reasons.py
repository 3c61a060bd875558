"""The text of a decision: the failure, the progress, and why another attempt may work or may not be made."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.decisions import AttemptRecord
from holdfast.model.exit_report import Blame, ExitReport, Rerun, Trigger
from holdfast.model.phrases import Phrase
from holdfast.model.progress_facts import Sign


def no_more_avoided(bad: Sequence[str], taken: set[str], most: int) -> str:
    """Return why the job may not avoid these devices or nodes too: the job itself may break them.

    `taken`: the names that it avoids already. `most`: how many it may avoid.
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
        return report.exception
    if report.original.signal:
        return f"{report.phrase} ({report.original.signal})"
    if report.original.exit_code is not None and report.phrase == Phrase.UNEXPLAINED:
        return f"exit status {report.original.exit_code}"
    return report.phrase


def progress_seen(signs: Sequence[Sign], history: Sequence[AttemptRecord]) -> str:
    """Return a clause with the first sign of progress, or with the lack of one. Empty for a first attempt."""
    if signs:
        return f"; progress: {signs[0].text}"
    return f"; no sign of progress since attempt {_last_sign(history)}" if history else ""


def _last_sign(history: Sequence[AttemptRecord]) -> int:
    """Return the number of the last attempt with a sign of progress; the first attempt if there is none."""
    return next((record.attempt for record in reversed(history) if record.signs), history[0].attempt)


def is_loss(report: ExitReport) -> bool:
    """Return whether the report is about nodes that fell silent or left, as the gang itself detected."""
    return report.phrase == Phrase.NODE_FAILED and report.trigger is Trigger.RUNTIME and bool(report.devices)


def why_again(report: ExitReport) -> str:
    """Return the reason for another attempt, as a clause."""
    match report.rerun:
        case _ if is_loss(report):
            return f"{', '.join(report.devices)} {'is' if len(report.devices) == 1 else 'are'} lost, the others go on"
        case Rerun.NOW if report.trigger is Trigger.FAULT:
            devices = ", ".join(report.devices)
            return f"{report.phrase} asks for no more than a restart or a reset, so {devices} stays in use"
        case Rerun.NOW:
            return f"another attempt helps against {report.phrase}"
        case Rerun.LATER:
            return f"{report.phrase} passes with time, so a later attempt may work"
        case _ if report.blame is Blame.UNKNOWN:
            return f"{report.phrase} has no known cause, so another attempt may work"
        case _:
            return f"{report.phrase} may have been an accident, so another attempt may work"
