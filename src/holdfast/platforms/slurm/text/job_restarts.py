"""Determine from a job's and its nodes' records whether Slurm would restart the job, or why Slurm restarted it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.platforms.slurm.text.hostlist import hosts_in
from holdfast.platforms.slurm.text.scontrol_records import JobRecord, NodeRecord, Partition


def requeue_refusal(record: JobRecord, without: Iterable[str] = ()) -> str:
    """Return why Slurm would refuse to restart the job without the nodes `without`. Return "" if it would restart the
    job.
    """
    if not record.batch:
        return "Slurm starts only batch jobs again, and this one is of salloc or srun"
    if not record.requeue:
        return "Slurm's Requeue=0 for this job (sbatch --requeue, or JobRequeue=1 in slurm.conf)"
    wanted = hosts(record.required)
    if pinned := [name for name in without if name in wanted]:
        # Slurm would leave such a job in the queue for ever.
        return f"the job asks for {', '.join(pinned)} by name (sbatch --nodelist), and is not to run there again"
    return ""


def hosts(listed: str) -> tuple[str, ...]:
    """Parse a host list as Slurm prints it. Return () if it cannot be parsed."""
    try:
        return hosts_in(listed) if listed else ()
    except ValueError:
        return ()


def shrunk(record: JobRecord, without: Iterable[str]) -> str:
    """Return the job's nodes except the nodes `without`, as a value for `nodelist=`.

    Return "" if nothing changes, if no node is left, or if the batch script's node would be removed, which Slurm does
    not allow.
    """
    mine, gone = hosts(record.nodes), set(without)
    rest = [name for name in mine if name not in gone]
    if len(rest) in (0, len(mine)) or record.batch_host in gone:
        return ""
    return ",".join(rest)


def too_few(record: JobRecord, partition: Partition, needed: int, without: Iterable[str]) -> str:
    """Return why the nodes `without` cannot be excluded: too few are left, so the job would wait for ever.

    Return "" if enough nodes are left. `needed`: number of nodes that the job had at its start.
    """
    there = hosts(partition.nodes)
    left_out = {*hosts(record.excluded), *without}
    rest = [name for name in there if name not in left_out]
    if not there or len(rest) >= needed:
        return ""
    return f"partition {partition.name} has {len(rest)} other nodes, and the job needs {needed}"


def excluded(record: JobRecord, without: Iterable[str]) -> str:
    """Return the value for `excnodelist=`: the nodes that the user excludes, and the nodes `without`.

    Return "" if the user already excludes all of them.
    """
    own = hosts(record.excluded)
    more = [name for name in without if name not in own]
    return ",".join((*own, *more)) if more else ""


def is_left_alone(record: JobRecord, batch_host: NodeRecord | None = None) -> bool:
    """Return whether Slurm lets the job go on although the batch script's node is lost.

    `batch_host`: the record of this node. None: it has not been read, so only the job's Slurm record counts.
    """
    if record.state not in ("RUNNING", "RESIZING", "SUSPENDED") or not record.batch or not record.batch_host:
        return False
    gone = record.batch_host not in hosts(record.nodes)
    return gone or batch_host is None or batch_host.down or batch_host.silent


# -------------------------------------------------------------------------------------------- why Slurm restarted a job


#: How many unusable nodes a report lists at most.
SAID = 8


class SacctRun(Noun, frozen=True, kw_only=True):
    """One run of a job, from the output of `sacct -D`."""

    state: str
    nodes: str = ""


class RunEnd(Noun, frozen=True, kw_only=True):
    """How a run ended. `reason`: a clause. `phrase`: the failure class of the attempt that the end of the run
    interrupted.
    """

    reason: str
    phrase: Phrase = Phrase.PREEMPTED
    #: Nodes of the run that are down or do not answer, each with its state and reason as text.
    bad: tuple[tuple[NodeRecord, str], ...] = ()


def rows(text: str) -> tuple[SacctRun, ...]:
    """Parse the output of `sacct -D -X -n -P -o State,NodeList,End`, the first run first."""
    parts = [line.split("|") for line in text.splitlines() if "|" in line]
    return tuple(SacctRun(state=part[0].partition(" ")[0], nodes=part[1]) for part in parts if len(part) >= 2)


def node_words(node: NodeRecord) -> str:
    """Describe a node's state, with the reason if there is one: `DOWN+NOT_RESPONDING (Not responding)`."""
    state = "+".join(sorted(node.states)) or "no state"
    return f"{state} ({node.reason})" if node.reason else state


def run_end(shown: str, accounted: Sequence[SacctRun], found: Sequence[NodeRecord]) -> RunEnd:
    """Determine how the previous run ended.

    `shown`: the job's id as squeue shows it. `accounted`: all runs of the job from accounting, or empty.
    `found`: records of the previous run's nodes.
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
