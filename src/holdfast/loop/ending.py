"""What a run's process ends with, and what its container's engine is told."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from holdfast.files import read_file, write_given
from holdfast.model.exits import ExitReport

AGG = "runtime.pai.agg.error"
TERMINATION_LOG = "/dev/termination-log"
_MOST = 4096


def status_of(report: ExitReport, users: bool) -> int:
    """The exit status. `users`: the user's own, where the job failed by one; a signal is 128 and its number."""
    if not users or report.code == 0:
        return report.code
    if report.original.exit_code:
        return report.original.exit_code
    name = report.original.signal or ""
    if name in signal.Signals.__members__:
        return 128 + signal.Signals[name]
    return report.code


def refused(environment: Mapping[str, str], code: int, reason: str, solution: str) -> None:
    """A task was refused before anything of it started: what its container's engine finds. It never fails."""
    place = environment.get("HOLDFAST_TERMINATION_LOG")
    if not place or "HOLDFAST_ATTEMPT" in environment:
        return
    from holdfast.explain.agg import refusal

    try:
        write_given(Path(place), refusal(code, reason, solution))
    except OSError:
        pass  # the words are on stderr too


def for_engine(place: Path, report: ExitReport, logs: Path) -> None:
    """Write what the job failed of where a container engine looks; nothing of a success is left there. OSError."""
    data = b""
    if report.code:
        try:
            data = read_file(logs / f"attempt-{report.attempt}" / AGG, _MOST)
        except OSError:
            from holdfast.explain.agg import agg_error_file
            from holdfast.model.evidence import AttemptEvidence

            data = agg_error_file(report, AttemptEvidence())
    write_given(place, data)
