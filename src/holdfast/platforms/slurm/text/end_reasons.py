"""Why Slurm has started a job again, from what it says of the run before and of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord

#: So many bad nodes are told of.
SAID = 8


class SacctRun(Noun, frozen=True, kw_only=True):
    """One run of a job in `sacct -D`."""

    state: str
    nodes: str = ""


class RunEnd(Noun, frozen=True, kw_only=True):
    """How a run ended. `reason`: a clause. `phrase`: what the attempt that it cut short died of."""

    reason: str
    phrase: Phrase = Phrase.PREEMPTED
    #: Nodes of that run which Slurm does not use now, each with its state and reason.
    bad: tuple[tuple[NodeRecord, str], ...] = ()


def rows(text: str) -> tuple[SacctRun, ...]:
    """What `sacct -D -X -n -P -o State,NodeList,End` has printed, the first run first."""
    parts = [line.split("|") for line in text.splitlines() if "|" in line]
    return tuple(SacctRun(state=part[0].partition(" ")[0], nodes=part[1]) for part in parts if len(part) >= 2)


def node_words(node: NodeRecord) -> str:
    """`DOWN+NOT_RESPONDING (Not responding)`: its state, and why it is so where Slurm says it."""
    state = "+".join(sorted(node.states)) or "no state"
    return f"{state} ({node.reason})" if node.reason else state


def run_end(shown: str, accounted: Sequence[SacctRun], found: Sequence[NodeRecord]) -> RunEnd:
    """`accounted`: the job's runs in accounting, empty where there is none. `found`: nodes of the run before."""
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
