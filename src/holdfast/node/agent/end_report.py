"""Writes the job's report on one of its nodes at the end, and prints a few lines for the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.act.console import Console
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import ExitReport, Outcome
from holdfast.node.exit_status import status_of
from holdfast.node.report_writer import ReportWriter
from holdfast.record.job_directory import nowhere
from holdfast.record.owner_lock import LOCK_NAME
from holdfast.record.state_directory import job_dir

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.record.job_directory import JobPlace


class EndReporter:
    """Writes and prints the job's report on this node.

    `launch`: the job as this node runs it. `now()`: seconds since the epoch. `say`: prints a message to the user.
    `quiet`: write and print nothing, because an owner on this node does.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        now: Callable[[], float],
        stdout: Console,
        stderr: Console,
        say: Callable[[str], None],
        *,
        quiet: bool,
    ) -> None:
        self._launch = launch
        self._now = now
        self._stdout = stdout
        self._stderr = stderr
        self._say = say
        self._quiet = quiet
        self._place = nowhere(launch.spec.name, now())
        self._owner = ""

    def at(self, launch: LaunchSpec, place: JobPlace, *, owner: str) -> None:
        """Store the job's directory and the host name of the owner's machine (`owner`), after the owner has admitted
        this node.
        """
        self._launch, self._place, self._owner = launch, place, owner

    def write_agg(self, record: AttemptRecord, evidence: AttemptEvidence) -> None:
        """Write OpenPAI's exit file (`runtime.pai.agg.error`) of an attempt."""
        self._writer().write_agg(record, evidence)

    def tell(self, report: JobReport) -> int:
        """Write the owner's report. Print a summary, or the full report with `--json`. Return the job's exit code."""
        last = report.report
        status = status_of(last, self._launch.users_status)
        if self._quiet:
            self._writer().tell_engine(last)
            return status
        self._write(report)
        if self._launch.as_json:
            self._writer().show(report)
            return status
        kept = f"; it is in {path}" if (path := self._launch.report_path) is not None else ""
        whole = f"the whole report is on {self._owner}: holdfast show {report.job_id}{kept}"
        if report.outcome is Outcome.SUCCEEDED:
            self._say(f"job {report.job_id} ({report.name}) SUCCEEDED\n{whole}")
        else:
            how = f"{report.outcome.value.upper()}: {last.phrase} (exit code {last.code}): {last.reason}"
            self._say(f"job {report.job_id} ({report.name}) {how}\n{whole}")
        return status

    def alone(self, job_id: str, report: ExitReport) -> int:
        """Write and print a report by this node, because it has lost the owner. Return the report's exit code."""
        made = JobReport(job_id=job_id, name=self._launch.spec.name, outcome=Outcome.FAILED, report=report, attempts=())
        self._write(made)
        self._writer().show(made)
        return report.code

    def _write(self, report: JobReport) -> None:
        writer = self._writer()
        # If this node sees the owner's lock file, it shares the owner's state directory, and the owner writes the
        # report.
        if self._owner and not (job_dir(self._place.home, report.job_id) / LOCK_NAME).exists():
            writer.finished(report)
        else:
            writer.hand_over(report)

    def _writer(self) -> ReportWriter:
        return ReportWriter(self._launch, self._place, self._now, self._stdout, self._stderr, self._say)
