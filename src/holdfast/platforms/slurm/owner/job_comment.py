"""Write the cause of a failed attempt into the Slurm job's comment. `sacct` shows it if the cluster keeps comments.

`holdfast: CudaOutOfMemory: rank 3 on gpu-7: … (205)` follows the user's own comment after `; `. A new line replaces
holdfast's earlier line. The user's text is never cut or changed.

The comment is written while the job runs, because after the job's end Slurm accepts no comment from ordinary users. A
job that succeeds in its first attempt sends no command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import ExitReport
from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble, SlurmCommands
from holdfast.platforms.slurm.text.node_treatment import cut
from holdfast.platforms.slurm.text.scontrol_records import job as job_of
from holdfast.safe_text import one_line

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.reactor import News

LIMIT_S = 2.0
#: Failures that are expected because the job has ended. The job's state in Slurm then shows the cause.
_EXPECTED = frozenset({CommandTrouble.LATE, CommandTrouble.UNKNOWN})


class JobComment:
    """Writes one job's comment.

    One update runs at a time. If several comments come during an update, only the last one is written.
    """

    def __init__(self, asking: SlurmCommands, job: int, say: Callable[[str], None]) -> None:
        """`asking`: runs Slurm commands. `job`: number of the job. `say`: prints a message of the owner."""
        self._asking = asking
        self._job = job
        self._say = say
        #: holdfast's line that the job's comment should contain; empty: none so far.
        self._wanted = ""
        #: holdfast's line of the comment in the last `scontrol update`, which may still run.
        self._written = ""
        self._told = False
        #: Whether an update command still runs.
        self.busy = False

    def attempt(self, record: AttemptRecord) -> None:
        """Write the cause of an attempt's failure. A success is not written."""
        if record.report.code != 0:
            self._want(line(record.report))

    def finished(self, report: JobReport) -> None:
        """Write the job's final result. A success replaces an earlier failure."""
        if report.report.code != 0 or self._wanted or len(report.attempts) > 1:
            self._want(line(report.report))

    def _want(self, own: str) -> None:
        self._wanted = own
        if not self.busy and own != self._written:
            self.busy = True
            self._asking.ask(("scontrol", "show", "job", str(self._job)), self._read, limit_s=LIMIT_S)

    def _read(self, answer: CommandOutput, now: float) -> News:
        record = job_of(answer.out, self._job) if answer.ok else None
        if record is None:
            return self._failed(answer)
        self._written = self._wanted
        comment = with_line(record.comment, self._wanted)
        if comment == record.comment:
            return self._done()
        self._asking.ask(update(self._job, comment), self._answered, limit_s=LIMIT_S)
        return None

    def _answered(self, answer: CommandOutput, now: float) -> News:
        return self._done() if answer.ok else self._failed(answer)

    def _done(self) -> News:
        self.busy = False
        if self._wanted != self._written:
            self._want(self._wanted)
        return None

    def _failed(self, answer: CommandOutput) -> News:
        self.busy = False
        if answer.trouble not in _EXPECTED and not self._told:
            self._told = True
            self._say(
                f"the attempt's cause cannot be written into the comment of Slurm's job {self._job}: {answer.said}"
            )
        return None


# ------------------------------------------------------------------------------------ holdfast's line in the comment


OWN_BYTES = 256
#: Maximum length of the job's whole comment, in bytes. If holdfast's line does not fit, the comment stays as it is.
MOST_BYTES = 1024
#: Separator between the user's comment and holdfast's line. It contains no `|`, which separates columns in `sacct -P`.
BETWEEN = "; "
_OURS = Lazy(r"(?:^|.*; |.*\n)(?P<line>holdfast: [A-Z][A-Za-z]+\b.* \(\d{1,3}\))\s*$")


def line(report: ExitReport) -> str:
    """Return holdfast's line for the comment: failure class, reason and final code, at most OWN_BYTES long."""
    who = ""
    if report.first is not None and f"rank {report.first.rank}" not in report.reason:
        who = f"rank {report.first.rank}{f' on {report.first.node}' if report.first.node else ''}: "
    reason = " ".join(one_line(f"{who}{report.reason}").split()).replace('"', "'").replace("|", "/").replace(";", ",")
    code = f" ({report.code})"
    return cut(f"holdfast: {report.phrase}: {reason}", OWN_BYTES - len(code)) + code


def users(comment: str) -> str:
    """Return the user's part of the comment, without holdfast's line."""
    found = _OURS.search(comment)
    return comment if found is None else comment[: found.start("line")].removesuffix(BETWEEN).rstrip("\n")


def with_line(comment: str, own: str) -> str:
    """Return the comment with holdfast's line `own` in it. If the line does not fit, return `comment` as it is."""
    kept = users(comment)
    whole = f"{kept}{BETWEEN}{own}" if kept else own
    return whole if len(whole.encode()) <= MOST_BYTES else comment


def update(job: int, comment: str) -> tuple[str, ...]:
    """Return the scontrol command that sets the job's comment."""
    return ("scontrol", "update", f"jobid={job}", f"comment={comment}")
