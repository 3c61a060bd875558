"""holdfast's line in a Slurm job's comment: the cause of a failed attempt.

`holdfast: CudaOutOfMemory: rank 3 on gpu-7: … (205)` follows the user's own comment after `; `. A new line replaces
holdfast's earlier one. The user's text is never cut or changed.
"""

from __future__ import annotations

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import ExitReport
from holdfast.platforms.slurm.text.node_treatment import cut
from holdfast.safe_text import one_line

OWN_BYTES = 256
#: Limit of the whole comment. If holdfast's line does not fit, the comment is not changed.
MOST_BYTES = 1024
#: The separator has no `|`, because `sacct -P` separates its columns with that.
BETWEEN = "; "
_OURS = Lazy(r"(?:^|.*; |.*\n)(?P<line>holdfast: [A-Z][A-Za-z]+\b.* \(\d{1,3}\))\s*$")


def line(report: ExitReport) -> str:
    """Return the failure class, reason and final code, bounded in length and without control characters."""
    who = ""
    if report.first is not None and f"rank {report.first.rank}" not in report.reason:
        who = f"rank {report.first.rank}{f' on {report.first.node}' if report.first.node else ''}: "
    reason = " ".join(one_line(f"{who}{report.reason}").split()).replace('"', "'").replace("|", "/").replace(";", ",")
    code = f" ({report.code})"
    return cut(f"holdfast: {report.phrase}: {reason}", OWN_BYTES - len(code)) + code


def users(comment: str) -> str:
    """Return the comment without holdfast's line."""
    found = _OURS.search(comment)
    return comment if found is None else comment[: found.start("line")].removesuffix(BETWEEN).rstrip("\n")


def with_line(comment: str, own: str) -> str:
    """Return the comment with this line, or unchanged if there is no room."""
    kept = users(comment)
    whole = f"{kept}{BETWEEN}{own}" if kept else own
    return whole if len(whole.encode()) <= MOST_BYTES else comment


def update(job: int, comment: str) -> tuple[str, ...]:
    """Return the command that sets the comment."""
    return ("scontrol", "update", f"jobid={job}", f"comment={comment}")
