"""Orders exits: across nodes by their times on the owner's clock, within a node also by the kernel's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.evidence import MemoryKill
from holdfast.model.exit_report import WorkerExit


def moments(exits: Iterable[WorkerExit]) -> dict[int, float]:
    """Return the time of each rank's exit, in seconds; 0 if unknown.

    Within a node the order in which the kernel announced the exits counts: an earlier announcement never gets a later
    time.
    """
    found: dict[int, float] = {}
    # By node, going back from the last exit: (order, earliest time from this order on, earliest time after this order).
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
    """Whether an observation on `node` can concern this worker."""
    return not node or not ended.node or node == ended.node


def kill_of(ended: WorkerExit, kills: Sequence[MemoryKill]) -> MemoryKill | None:
    """Return the memory kill of this worker's process; None if there was none."""
    mine = (kill for kill in kills if of_node(ended, kill.node))
    return next((k for k in mine if k.rank == ended.rank or (k.pid and k.pid == ended.pid)), None)
