"""The public report on why a job ended, with the facts that a program needs. See docs/internals/decisions/0022."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from holdfast.explain.text.secret_filter import without_secrets
from holdfast.model.decisions import JobReport, lost_steps
from holdfast.model.exit_report import Blame, ExitReport, Outcome, Rerun
from holdfast.report.brief_report import render_brief, render_exit
from holdfast.report.failure_place import FailurePlace, scene_of
from holdfast.report.report_json import exit_report_object, to_json_object
from holdfast.safe_text import harmless

_WIDTH = 100
_MOST_REPR = 160
_MOST_HTML_EVIDENCE = 20


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Report:
    """The report on why a job, or the program that wrote a log, has ended.

    The object is immutable. Secrets in the program's texts are masked.

    `outcome`, `blame` and `rerun` can be compared with strings: `report.outcome == "failed"`.
    """

    #: `succeeded`, `failed` or `stopped`.
    outcome: Outcome
    #: The final code, which is the exit status of `holdfast run`; 0 for a success.
    code: int
    #: The failure class, such as `AcceleratorOutOfMemory`.
    phrase: str
    #: The cause in one or more sentences.
    reason: str
    #: Advice for the user.
    solution: str
    #: `workload`, `hardware`, `network`, `storage`, `platform`, `external`, `operator` or `unknown`.
    blame: Blame
    #: Whether another attempt helps: `now`, `later`, `elsewhere`, `never` or `unknown`.
    rerun: Rerun
    #: The first rank whose failure was not caused by another rank; None if unknown.
    rank: int | None
    #: The node of that rank; empty if unknown.
    node: str
    #: The exit status of that rank; None if it has none.
    exit_code: int | None
    #: Name of the signal that ended that rank, such as `SIGKILL`; empty if no signal did.
    signal: str
    #: Type of the exception that ended that rank; empty if there was none.
    exception: str
    #: How certain it is that this rank failed first, from 0 to 1.
    confidence: float
    #: A text that is the same for equal failures.
    fingerprint: str
    #: The lines and facts that prove the cause, the strongest first.
    evidence: tuple[str, ...]
    #: The number of attempts of the job; 1 for a log.
    attempts: int
    #: The job's id; empty for a log.
    job_id: str
    #: The job's name; empty for a log.
    name: str
    _of: JobReport | ExitReport = field(compare=False)
    #: The parent of the job's `attempt-<n>` directories; None: no log is read.
    _logs: Path | None = field(default=None, compare=False)

    @property
    def lost_steps(self) -> int:
        """Steps reported to `holdfast.progress` that were repeated, or not saved when the job failed; 0 for a log."""
        return sum(lost for _, lost in lost_steps(self._of.attempts)) if isinstance(self._of, JobReport) else 0

    @property
    def frames(self) -> tuple[str, ...]:
        """The places in the user's code, such as `train.py:12 in main`, the innermost first; () if none is known."""
        return tuple(f"{frame.path}:{frame.line} in {frame.function}" for frame in self._place().frames)

    @property
    def where(self) -> str:
        """The line of the user's code that failed, such as `train.py:12`; "" if unknown."""
        frames = self._place().frames
        return f"{frames[0].path}:{frames[0].line}" if frames else ""

    @property
    def log(self) -> str:
        """The path of the failed rank's log; "" if this machine does not have the log."""
        return self._place().log

    def _place(self) -> FailurePlace:
        report = self._of.report if isinstance(self._of, JobReport) else self._of
        return without_secrets(scene_of(report, self._logs))

    @property
    def ok(self) -> bool:
        """Whether the final code is 0."""
        return self.code == 0

    def text(self, width: int = _WIDTH) -> str:
        """Return the text that `holdfast show` or `holdfast explain` prints, without colours.

        `width`: number of columns.
        """
        if isinstance(self._of, JobReport):
            return render_brief(self._of, self._place(), width=width, colour=False)
        return render_exit(self._of, self._place(), width=width, colour=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `--json` (`holdfast schema report`) as plain lists, dicts, strings and numbers."""
        whole = to_json_object(self._of) if isinstance(self._of, JobReport) else exit_report_object(self._of)
        plain: dict[str, Any] = msgspec.to_builtins(whole)
        return plain

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        of_job = f"{self.job_id} {self.name!r} " if self.job_id else ""
        at = f" rank={self.rank}" if self.rank is not None else ""
        whole = harmless(f"<holdfast.Report {of_job}{self.outcome.value} {self.phrase} ({self.code}){at}>")
        return whole if len(whole) <= _MOST_REPR else whole[: _MOST_REPR - 2] + "…>"

    def _repr_html_(self) -> str:
        """Return a small HTML table for a notebook. All texts are escaped."""
        blamed = "" if self.ok else f" · blame {self.blame.value}"
        rows = [("class", f"{self.phrase} · code {self.code}{blamed}")]
        if self.rank is not None:
            rows.append(("rank", f"{self.rank}" + (f" on {self.node}" if self.node else "")))
        rows += [("where", self.where), ("reason", self.reason), ("log", self.log)]
        if not self.ok:
            rows.append(("solution", self.solution))
        if self.attempts > 1:
            rows.append(("attempts", f"{self.attempts}"))
        cells = "".join(f"<tr><th>{name}</th><td>{_shown(text)}</td></tr>" for name, text in rows if text)
        lines = _shown("\n".join(self.evidence[:_MOST_HTML_EVIDENCE]))
        more = f"<details><summary>evidence</summary><pre>{lines}</pre></details>" if lines else ""
        title = " ".join(word for word in (self.outcome.value.upper(), self.name, self.job_id) if word)
        return f'<div class="holdfast-report"><strong>{_shown(title)}</strong><table>{cells}</table>{more}</div>'


def _shown(text: str) -> str:
    return escape(harmless(text)).replace("\n", "<br>")


def of_job(report: JobReport, logs: Path | None) -> Report:
    """Make the public report on a job. `logs`: the parent of its `attempt-<n>` directories."""
    return _made(report.report, report.outcome, len(report.attempts), report, report.job_id, report.name, logs)


def of_exit(report: ExitReport) -> Report:
    """Make the public report on a log."""
    outcome = Outcome.FAILED if report.code else Outcome.SUCCEEDED
    return _made(report, outcome, 1, report, "", "", None)


def _made(
    report: ExitReport,
    outcome: Outcome,
    attempts: int,
    whole: JobReport | ExitReport,
    job_id: str,
    name: str,
    logs: Path | None,
) -> Report:
    return Report(
        outcome=outcome,
        code=report.code,
        phrase=report.phrase,
        reason=report.reason,
        solution=report.solution,
        blame=report.blame,
        rerun=report.rerun,
        rank=report.first.rank if report.first else None,
        node=report.first.node if report.first else "",
        exit_code=report.original.exit_code,
        signal=report.original.signal or "",
        exception=report.exception,
        confidence=report.confidence,
        fingerprint=report.fingerprint,
        evidence=tuple(item.text for item in report.evidence),
        attempts=attempts,
        job_id=job_id,
        name=name,
        _of=whole,
        _logs=logs,
    )
