"""Reads from Slurm how the job's previous run ended. Each run of a restarted job does this once, at its start."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.decide.gang_view import GangView
from holdfast.decide.phases import Phase
from holdfast.model.events import PlatformSaid
from holdfast.platforms.slurm.blocking_query import query
from holdfast.platforms.slurm.text.job_restarts import RunEnd, SacctRun, rows, run_end
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord, nodes

#: Time limit of each of two commands, in seconds, so that an unresponsive slurmctld does not delay the run.
LIMIT_S = 3.0
#: How many nodes of the previous run are queried at most.
MOST_NODES = 64


def end_of_run(shown: str, before: GangView) -> tuple[RunEnd, tuple[PlatformSaid, ...]]:
    """Return how the previous run ended, with Slurm's statements about the end.

    `shown`: the job's id as squeue shows it. `before`: the gang's state after replaying the journal.
    """
    if before.phase is Phase.QUEUED:
        return RunEnd(reason=f"as asked: {before.asked}"), ()
    names = tuple(dict.fromkeys(placement.node for placement in before.placements))
    command = ("sacct", "-D", "-X", "-n", "-P", "-j", shown, "-o", "State,NodeList,End")
    accounted = rows(answer.out) if (answer := query(command, limit_s=LIMIT_S)).ok else ()
    found = _nodes(names)
    end = run_end(shown, accounted, found)
    return end, tuple(_said(before, end, shown, accounted)) if before.pending else ()


def _nodes(names: Sequence[str]) -> tuple[NodeRecord, ...]:
    if not names:
        return ()
    answer = query(("scontrol", "show", "node", ",".join(names[:MOST_NODES])), limit_s=LIMIT_S)
    return nodes(answer.out) if answer.ok else ()


def _said(before: GangView, end: RunEnd, shown: str, accounted: Sequence[SacctRun]) -> list[PlatformSaid]:
    said = [
        PlatformSaid(
            attempt=before.attempt,
            subject=node.name,
            words=words,
            command=f"scontrol show node {node.name}",
            node=node.name,
        )
        for node, words in end.bad
    ]
    if len(accounted) > 1:
        row = accounted[-2]
        words = f"{row.state} on {row.nodes}"
        said.append(
            PlatformSaid(attempt=before.attempt, subject=f"job {shown}", words=words, command=f"sacct -D -j {shown}")
        )
    return said
