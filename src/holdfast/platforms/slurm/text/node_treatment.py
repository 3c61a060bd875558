"""Decide whether to drain or resume a Slurm node after its checks.

A drain belongs to holdfast if its reason begins with `holdfast:`. If an operator or Slurm has drained a node or set it
down, the node keeps its state and reason, even if its checks fail.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord
from holdfast.safe_text import one_line

OURS = "holdfast:"
#: Length limit of a drain's reason, in bytes, because sinfo -R and sview show it in a column. Logs have the full text.
REASON_LETTERS = 200
_BEFORE_LETTERS = 80
#: Checks that can run while jobs use the node. Checks of memory and ports are left out, because jobs may use these.
NODE_CHECKS = ("disk", "mounts", "clock", "standing", "driver", "processes:failure=warn", "cpu:failure=warn")


class SlurmNodeAction(enum.StrEnum):
    """What holdfast does with a node after its checks."""

    NOTHING = "nothing"
    DRAIN = "drain"
    RESUME = "resume"


class Treatment(Noun, frozen=True, kw_only=True):
    """The action that follows from the checks and the node's state in Slurm."""

    doing: SlurmNodeAction
    #: The reason in one sentence; empty if the node was healthy before and still is.
    said: str = ""
    #: The command that carries out the action.
    command: tuple[str, ...] = ()


def is_ours(record: NodeRecord) -> bool:
    """Return whether holdfast has drained the node and the reason is unchanged since."""
    return record.drained and record.reason.startswith(OURS)


def reason_of(troubles: Iterable[str]) -> str:
    """Return the reason for a drain: one line of limited length, without characters special to a shell or to Slurm."""
    text = "; ".join(one_line(trouble).strip() for trouble in troubles).replace('"', "'").replace("\\", "/")
    return cut(f"{OURS} {' '.join(text.split())}", REASON_LETTERS)


def cut(text: str, letters: int) -> str:
    """Cut the text to this many bytes in UTF-8."""
    data = text.encode()
    return text if len(data) <= letters else data[: letters - 3].decode(errors="ignore").rstrip() + "…"


def drain(node: str, reason: str) -> tuple[str, ...]:
    """Return the command that drains the node."""
    return ("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")


def resume(node: str) -> tuple[str, ...]:
    """Return the command that resumes the node. Slurm deletes the reason by itself."""
    return ("scontrol", "update", f"nodename={node}", "state=resume")


def treat(record: NodeRecord, troubles: Sequence[str], *, gives_back: bool) -> Treatment:
    """Choose the action for a node after its checks.

    `record`: the node's state in Slurm. `troubles`: messages of failed checks; empty if all have passed.
    `gives_back`: whether a healthy node may be resumed if holdfast has drained it.
    """
    name = record.name
    by = f" by {record.reason_by}" if record.reason_by else ""
    if troubles:
        if is_ours(record):
            return Treatment(doing=SlurmNodeAction.NOTHING, said=f"{name} is drained already ({record.reason})")
        if record.drained:
            reason = record.reason or "no reason given"
            return Treatment(
                doing=SlurmNodeAction.NOTHING, said=f"{name} is drained{by} ({reason}): that is left as it is"
            )
        if record.down and record.reason:
            return Treatment(
                doing=SlurmNodeAction.NOTHING, said=f"{name} is down ({record.reason}): that is left as it is"
            )
        reason = reason_of(troubles)
        if record.reason and not record.reason.startswith(OURS):
            before = f" (before: {cut(record.reason, _BEFORE_LETTERS)})"
            reason = cut(reason, REASON_LETTERS - len(before.encode())) + before
        return Treatment(doing=SlurmNodeAction.DRAIN, said=reason, command=drain(name, reason))
    if not is_ours(record):
        return Treatment(doing=SlurmNodeAction.NOTHING)
    if gives_back:
        said = f"{name} passes its checks, and was drained by holdfast ({record.reason})"
        return Treatment(doing=SlurmNodeAction.RESUME, said=said, command=resume(name))
    return Treatment(
        doing=SlurmNodeAction.NOTHING,
        said=f"{name} passes its checks, and stays drained ({record.reason}) until a person or --resume gives it back",
        command=resume(name),
    )
