"""Explains the end of a job whose turn came in this machine's queue, and whose command could not be started."""

from __future__ import annotations

from holdfast.catalogue.exit_rows import load
from holdfast.model.exit_report import Because, ExitReport, OtherRule
from holdfast.model.phrases import Phrase


def explain_unstarted(why: str) -> ExitReport:
    """Return the report of a job that never had an owner. `why`: the reason, as a clause."""
    row = load().row(Phrase.COMMAND_NOT_FOUND)
    return ExitReport(
        code=row.code,
        phrase=row.phrase,
        blame=row.blame,
        rerun=row.rerun,
        reason=f"the job's turn came, and its command could not be started: {why}",
        solution="Check that the directory and the Python of the submission still exist, then submit the job again.",
        because=Because(rule=OtherRule.START_FAILED, row=row.phrase),
    )
