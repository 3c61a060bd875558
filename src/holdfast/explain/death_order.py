"""Orders deaths. Across nodes only dates on the owner's clock compare; within a node the kernel's order and pids do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.evidence import MemoryKill
from holdfast.model.exit_report import WorkerExit


def moments(exits: Iterable[WorkerExit]) -> dict[int, float]:
    """When each rank died, in seconds; 0 where the time is not known.

    On one node the order of the kernel's announcements counts: a death announced earlier is not later, even if its time
    is.
    """
    found: dict[int, float] = {}
    # From the last that each kernel announced: (its place, the earliest from there on, the earliest beyond it).
    seen: dict[str, tuple[int, float, float]] = {}
    for ended in sorted(exits, key=lambda ended: -ended.order):
        at = 0.0 if ended.ended_at is None else ended.ended_at
        order, here, beyond = seen.get(ended.node, (ended.order, at, float("inf")))
        if ended.order < order:
            order, here, beyond = ended.order, min(here, at), here
        found[ended.rank] = min(at, beyond)
        seen[ended.node] = (order, min(here, at), beyond)
    return found


def of_node(ended: WorkerExit, node: str) -> bool:
    """Whether an observation made on `node` can be about this worker."""
    return not node or not ended.node or node == ended.node


def kill_of(ended: WorkerExit, kills: Sequence[MemoryKill]) -> MemoryKill | None:
    """The memory kill of this very process, if there was one."""
    mine = (kill for kill in kills if of_node(ended, kill.node))
    return next((k for k in mine if k.rank == ended.rank or (k.pid and k.pid == ended.pid)), None)
