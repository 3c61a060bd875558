"""`holdfast logs` for an ended job over nodes: finds in the journal which ranks have their logs on other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.output.printing import say
from holdfast.errors import BadUsage
from holdfast.model import human_format
from holdfast.model.events import AgentReported
from holdfast.record.job_views import JobView, events
from holdfast.record.owner_address import OwnerAddress
from holdfast.report.log_files import LogPart, attempts_of
from holdfast.report.terminal_text import harmless

#: Limit on the number of nodes named in one message.
MOST_NODES = 4


def nodes_of(home: Path, job_id: str, attempt: int) -> dict[int, str]:
    """Return the node of each rank of an attempt; empty if the journal on this machine does not have the job."""
    found: dict[int, str] = {}
    for _, event in events(home, job_id):
        if isinstance(event, AgentReported) and event.report.attempt == attempt:
            found.update(dict.fromkeys((member.rank for member in event.report.members), event.report.node))
    return found


def tell_the_others(home: Path, view: JobView, attempt: int, parts: Sequence[LogPart]) -> None:
    """Tell the user which ranks have their logs on other nodes."""
    here = {part.rank for part in parts}
    by_node: dict[str, list[int]] = {}
    for rank, node in sorted(nodes_of(home, view.id, attempt).items()):
        if rank not in here:
            by_node.setdefault(node, []).append(rank)
    if not by_node:
        return
    named = [f"{human_format.ranks(ranks)} on {harmless(node)}" for node, ranks in list(by_node.items())[:MOST_NODES]]
    more = f" and {len(by_node) - MOST_NODES} nodes more" if len(by_node) > MOST_NODES else ""
    node = harmless(next(iter(by_node)))
    say(
        f"attempt {attempt}: the logs of other nodes are there: {', '.join(named)}{more}\n"
        f"  logs       ssh {node} holdfast logs {view.id} --attempt {attempt}"
    )


def missing_log_error(
    error: BadUsage, home: Path, view: JobView, note: OwnerAddress, rank: int, attempt: int | None
) -> BadUsage:
    """Return the error for a rank whose log is on another node."""
    number = attempt if attempt is not None else max(attempts_of(home, view.id), default=0)
    node = nodes_of(home, view.id, number).get(rank)
    if node is not None:
        return BadUsage(
            f"--rank {rank}: in attempt {number} of job {view.id} it ran on {harmless(node)}, and a log stays on its "
            "rank's node",
            hint=f"ssh {harmless(node)} holdfast logs {view.id} --attempt {number} --rank {rank}",
        )
    return BadUsage(
        f"{error.message}: job {view.id} ran on several nodes, and a log stays on its rank's node",
        hint=f"ssh {note.owner} holdfast logs {view.id} --rank {rank}, or on the node that the report names",
    )
