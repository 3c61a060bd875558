"""The line that holdfast leaves in the comment of a job of Slurm's: what an attempt died of. Pure.

`holdfast: CudaOutOfMemory: rank 3 on gpu-7: … (205)` stands behind what the user has written there, `; ` in between. A
later line takes the place of an earlier one; nothing of the user's is ever cut or changed.
"""

from __future__ import annotations

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import ExitReport
from holdfast.platforms.slurm.text.node_treatment import cut
from holdfast.safe_text import one_line

OWN_BYTES = 256
#: Of the whole comment. Where the user's own leaves no room for a line of holdfast's, it stays as it is.
MOST_BYTES = 1024
#: No bar: `sacct -P` sets its columns apart by bars.
BETWEEN = "; "
_OURS = Lazy(r"(?:^|.*; |.*\n)(?P<line>holdfast: [A-Z][A-Za-z]+\b.* \(\d{1,3}\))\s*$")


def line(report: ExitReport) -> str:
    """Class, reason and final code, bounded, without control characters."""
    who = ""
    if report.first is not None and f"rank {report.first.rank}" not in report.reason:
        who = f"rank {report.first.rank}{f' on {report.first.node}' if report.first.node else ''}: "
    reason = " ".join(one_line(f"{who}{report.reason}").split()).replace('"', "'").replace("|", "/").replace(";", ",")
    code = f" ({report.code})"
    return cut(f"holdfast: {report.phrase}: {reason}", OWN_BYTES - len(code)) + code


def users(comment: str) -> str:
    """The comment without holdfast's line."""
    found = _OURS.search(comment)
    return comment if found is None else comment[: found.start("line")].removesuffix(BETWEEN).rstrip("\n")


def with_line(comment: str, own: str) -> str:
    """The comment with this line; the same where there is no room for it."""
    kept = users(comment)
    whole = f"{kept}{BETWEEN}{own}" if kept else own
    return whole if len(whole.encode()) <= MOST_BYTES else comment


def update(job: int, comment: str) -> tuple[str, ...]:
    """The command."""
    return ("scontrol", "update", f"jobid={job}", f"comment={comment}")
