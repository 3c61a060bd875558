"""Determine why Slurm restarted a job, from its accounting of the previous run and from its nodes' states."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord

#: Highest number of bad nodes in a report.
SAID = 8


class SacctRun(Noun, frozen=True, kw_only=True):
    """One run of a job in `sacct -D`."""

    state: str
    nodes: str = ""


class RunEnd(Noun, frozen=True, kw_only=True):
    """How a run ended. `reason`: a clause. `phrase`: the cause of the attempt that was cut short."""

    reason: str
    phrase: Phrase = Phrase.PREEMPTED
    #: Nodes of that run that Slurm does not use now, each with its state and reason as text.
    bad: tuple[tuple[NodeRecord, str], ...] = ()


def rows(text: str) -> tuple[SacctRun, ...]:
    """Parse the output of `sacct -D -X -n -P -o State,NodeList,End`, the first run first."""
    parts = [line.split("|") for line in text.splitlines() if "|" in line]
    return tuple(SacctRun(state=part[0].partition(" ")[0], nodes=part[1]) for part in parts if len(part) >= 2)


def node_words(node: NodeRecord) -> str:
    """Describe a node's state with its reason, if any: `DOWN+NOT_RESPONDING (Not responding)`."""
    state = "+".join(sorted(node.states)) or "no state"
    return f"{state} ({node.reason})" if node.reason else state


def run_end(shown: str, accounted: Sequence[SacctRun], found: Sequence[NodeRecord]) -> RunEnd:
    """Determine how the previous run ended.

    `accounted`: the job's runs in accounting, empty if there is none. `found`: the previous run's nodes.
    """
    bad = tuple((node, node_words(node)) for node in found if node.down or node.silent)[:SAID]
    again = f"and Slurm has started job {shown} again"
    before = accounted[-2].state if len(accounted) > 1 else ""
    if before == "NODE_FAIL" or (bad and before in ("", "REQUEUED", "RESIZING")):
        which = ", ".join(f"{node.name} is {words}" for node, words in bad) or f"{accounted[-2].nodes}: NODE_FAIL"
        return RunEnd(reason=f"a node failed ({which}), {again}", phrase=Phrase.NODE_FAILED, bad=bad)
    if before == "PREEMPTED":
        return RunEnd(reason=f"preempted by another job, {again}", bad=bad)
    if before == "REQUEUED":
        reason = f"scontrol requeue of job {shown}, {again}"
        return RunEnd(reason=reason, phrase=Phrase.STOPPED_BY_OPERATOR, bad=bad)
    return RunEnd(reason=f"Slurm has ended a run of job {shown}{f' ({before})' if before else ''}, {again}", bad=bad)
