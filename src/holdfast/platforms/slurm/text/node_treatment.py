"""What is done with a node of Slurm's whose checks fail, or pass again. Pure.

A drain is holdfast's where its reason begins with `holdfast:`. A node that an operator, or Slurm itself, has drained or
taken down keeps its state and its reason, also where the checks fail.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord
from holdfast.safe_text import one_line

OURS = "holdfast:"
#: sinfo -R and sview show a reason in one column; what holdfast prints has the rest.
REASON_LETTERS = 200
_BEFORE_LETTERS = 80
#: What is a node's own affair, with jobs on it or without: memory and ports in use are a job's good right.
NODE_CHECKS = ("disk", "mounts", "clock", "standing", "driver", "processes:failure=warn", "cpu:failure=warn")


class SlurmNodeAction(enum.StrEnum):
    """What is to be done with the node."""

    NOTHING = "nothing"
    DRAIN = "drain"
    RESUME = "resume"


class Treatment(Noun, frozen=True, kw_only=True):
    """What follows from the checks and from what Slurm says of the node."""

    doing: SlurmNodeAction
    #: Why, in one sentence; empty where all is well and was.
    said: str = ""
    #: What does it.
    command: tuple[str, ...] = ()


def is_ours(record: NodeRecord) -> bool:
    """Whether holdfast has drained the node, and no one has written another reason since."""
    return record.drained and record.reason.startswith(OURS)


def reason_of(troubles: Iterable[str]) -> str:
    """The reason of a drain: one line, of a bounded length, without what a shell or Slurm would take for its own."""
    text = "; ".join(one_line(trouble).strip() for trouble in troubles).replace('"', "'").replace("\\", "/")
    return cut(f"{OURS} {' '.join(text.split())}", REASON_LETTERS)


def cut(text: str, letters: int) -> str:
    """At most so many bytes of UTF-8."""
    data = text.encode()
    return text if len(data) <= letters else data[: letters - 3].decode(errors="ignore").rstrip() + "…"


def drain(node: str, reason: str) -> tuple[str, ...]:
    """The command."""
    return ("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")


def resume(node: str) -> tuple[str, ...]:
    """The command. Slurm forgets the reason with it."""
    return ("scontrol", "update", f"nodename={node}", "state=resume")


def treat(record: NodeRecord, troubles: Sequence[str], *, gives_back: bool) -> Treatment:
    """`troubles`: what is wrong with the node; empty: nothing is. `gives_back`: holdfast's own drain may end."""
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
