"""Writes the job's report to the files in which users and programs look for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.act.console import Console
from holdfast.act.time_limited import descriptor_of, within
from holdfast.act.worker_environment import read_error_file
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.explain.text.secret_masking import mask
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.model.codec import encode
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import ExitReport
from holdfast.node import rare_parts
from holdfast.node.exit_status import for_engine, status_of
from holdfast.record import report_file
from holdfast.record.job_directory import NOWHERE, JobPlace
from holdfast.safe_files import write_file, write_given
from holdfast.safe_text import json_text
from holdfast.untrusted import Malformed, json_leniently


class ReportWriter:
    """Writes and shows the reports of one job. If a file cannot be written, it only prints a message.

    `order`: the job's launch specification. `place`: the job's directory. `now()`: seconds since the epoch. `stdout`,
    `stderr`: the user's terminal. `say`: prints a message.
    """

    def __init__(
        self,
        order: LaunchSpec,
        place: JobPlace,
        now: Callable[[], float],
        stdout: Console,
        stderr: Console,
        say: Callable[[str], None],
    ) -> None:
        self._order = order
        self._place = place
        self._now = now
        self._stdout = stdout
        self._stderr = stderr
        self._say = say

    def write_agg(self, record: AttemptRecord, evidence: AttemptEvidence) -> None:
        """Write `runtime.pai.agg.error`, OpenPAI's exit file, into the attempt's log directory."""
        path = self._place.logs / f"attempt-{record.attempt}" / "runtime.pai.agg.error"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = rare_parts.openpai_exit_file.agg_error_file(record.report, without_secrets(evidence))
            write_file(path, data)
        except OSError as error:
            self._say(f"{path}: not written: {error.strerror}")
        self.tell_engine(record.report)

    def tell_engine(self, report: ExitReport) -> None:
        """Write the message that the container engine reads at the container's end."""
        if (place := self._order.termination_log) is not None:
            self._hand_over(place, str(place), lambda: for_engine(place, report, self._place.logs))

    def finished(self, report: JobReport) -> None:
        try:
            report_file.write(self._place.home, report)
        except OSError as error:
            self._keep_elsewhere(report, error)
        self.hand_over(report)

    def hand_over(self, report: JobReport) -> None:
        """Write the report to the files that the user has named."""
        if (given := self._order.report_path) is not None:
            self._hand_over(given, str(given), lambda: report_file.write_to(given, report, users=True))
        self.tell_engine(report.report)
        asked = self._order.environment.get("TORCHELASTIC_ERROR_FILE")
        if asked and report.report.code != 0:
            place = self._order.cwd / asked
            what = f"{asked} (TORCHELASTIC_ERROR_FILE)"
            self._hand_over(place, what, lambda: write_error_out(place, self._place.logs, report))

    def _hand_over(self, path: Path, what: str, write: Callable[[], object]) -> None:
        """Call `write` with a time limit: the user's `path` may be a pipe without a reader or a dead mount, and must
        not delay the job's end. `what`: the name of the path in messages.
        """
        try:
            within(write, keep=descriptor_of(path))
        except OSError as error:
            self._say(f"{what}: not written: {error.strerror}")

    def _keep_elsewhere(self, report: JobReport, error: OSError) -> None:
        """Save the report in another directory if the job's directory cannot store it, usually because the disk is
        full.
        """
        path = Path(os.environ.get("TMPDIR") or "/tmp").absolute() / f"holdfast-{report.job_id}-report.json"
        try:
            report_file.write_to(path, report)
        except OSError:
            self._say(
                f"{self._place.directory}/report.json: not written: {error.strerror}; the text below is all there is"
            )
        else:
            self._place.lock.note_report(path)
            self._say(f"{self._place.directory}/report.json: not written: {error.strerror}; it is in {path}")

    def show(self, report: JobReport) -> int:
        """Print the report; return the exit status of `holdfast run`."""
        if self._order.as_json and not self._order.as_events:
            text = json_text(encode(report_file.to_json_object(report)).decode())
            self._stdout.say(text, self._now())
        else:
            colour = os.isatty(2) and "NO_COLOR" not in os.environ
            width = _columns(100)
            # Without a state directory show the whole report, because no later command can show the rest.
            whole = self._order.verbose or self._place.home == NOWHERE
            home = str(self._place.home) if self._place.stand_in else ""
            text = self._order.render(
                report, logs=self._place.logs, width=width, colour=colour, verbose=whole, home=home
            )
            self._stderr.say(text, self._now())
        return status_of(report.report, self._order.users_status)


def _columns(otherwise: int) -> int:
    """Return the terminal's width. `shutil` can do that too, but imports three compressors."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(2).columns or otherwise
    except OSError:
        return otherwise


VARIABLE = "TORCHELASTIC_ERROR_FILE"


def write_error_out(path: Path, logs: Path, report: JobReport) -> None:
    """Write the failure in `report` to the user's error file `path`, replacing an existing file. Raises OSError.
    `logs`: the directory that contains the attempts' log directories.
    """
    said = report.report
    write_given(path, encode(_workers_own(logs, said) or _ours(report)))


def _workers_own(logs: Path, said: ExitReport) -> dict[str, Any] | None:
    """Return the content of the first failed worker's error file, with the exit status or signal added; None if it is
    not readable.
    """
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
