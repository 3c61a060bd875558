"""Computes the exit status of `holdfast run`, and writes the cause of a failure to the file that a container engine
reads.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import ExitReport
from holdfast.node import rare_parts
from holdfast.safe_files import read_file, write_given

AGG = "runtime.pai.agg.error"
TERMINATION_LOG = "/dev/termination-log"
_MOST = 4096


def status_of(report: ExitReport, users: bool) -> int:
    """Return the exit status of `holdfast run`. If `users` is true, return the failed program's own status (128 +
    number for a signal).
    """
    if not users or report.code == 0:
        return report.code
    if report.original.exit_code:
        return report.original.exit_code
    name = report.original.signal or ""
    if name in signal.Signals.__members__:
        return 128 + signal.Signals[name]
    return report.code


def refused(environment: Mapping[str, str], code: int, reason: str, solution: str) -> None:
    """Write why a task was refused before its start to the file for the container engine. This never raises. `reason`,
    `solution`: the text for the user.
    """
    place = environment.get("HOLDFAST_TERMINATION_LOG")
    if not place or "HOLDFAST_ATTEMPT" in environment:
        return
    try:
        write_given(Path(place), rare_parts.openpai_exit_file.refused_exit_file(code, reason, solution))
    except OSError:
        pass  # ignore the error, because stderr has the message too


def for_engine(place: Path, report: ExitReport, logs: Path) -> None:
    """Write the job's failure to the file for the container engine; empty the file after a success. Raises OSError.
    `place`: the file. `logs`: the directory of the attempts' log directories.
    """
    data = b""
    if report.code:
        try:
            data = read_file(logs / f"attempt-{report.attempt}" / AGG, _MOST)
        except OSError:
            data = rare_parts.openpai_exit_file.agg_error_file(report, AttemptEvidence())
    write_given(place, data)
