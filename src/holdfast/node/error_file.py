"""Writes the error file that holdfast's own environment asks for (TORCHELASTIC_ERROR_FILE), as torchrun does.

A scheduler (Flyte, an outer launcher) reads in it why the job failed. It is the culprit's own file
(`torch.distributed.elastic.multiprocessing.errors.record`), or else the job's report in the same form.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from holdfast.act.worker_environment import read_error_file
from holdfast.explain.secret_masking import mask
from holdfast.model.codec import encode
from holdfast.model.decisions import JobReport
from holdfast.model.exit_report import ExitReport
from holdfast.safe_files import write_given
from holdfast.untrusted import Malformed, json_leniently

VARIABLE = "TORCHELASTIC_ERROR_FILE"


def write_error_out(path: Path, logs: Path, report: JobReport) -> None:
    """Write the failure in `report` to `path`, replacing an existing file. Raises OSError."""
    said = report.report
    write_given(path, encode(_workers_own(logs, said) or _ours(report)))


def _workers_own(logs: Path, said: ExitReport) -> dict[str, Any] | None:
    """Return the culprit's own file with its exit status or signal added; None if there is no readable one."""
    if said.first is None:
        return None
    directory = logs / f"attempt-{said.attempt}" / f"{said.first.role}-{said.first.rank}"
    text = read_error_file(directory / "error.json")
    try:
        data = json_leniently(mask(text))
    except Malformed:
        return None
    if not isinstance(data, dict):
        return None
    message = data.get("message")
    if isinstance(message, dict):
        name = said.original.signal
        known = name in signal.Signals.__members__
        message["errorCode"] = -signal.Signals[name] if name and known else said.original.exit_code or said.code
    return data


def _ours(report: JobReport) -> dict[str, Any]:
    said = report.report
    at = said.first.at if said.first is not None else None
    ended = report.attempts[-1].ended_at if report.attempts else 0.0
    return {
        "message": {
            "message": f"{said.phrase}: {said.reason}",
            "extraInfo": {
                "py_callstack": "\n".join(item.text for item in said.evidence),
                "timestamp": str(int(at if at is not None else ended)),
            },
            "errorCode": said.code,
        }
    }
