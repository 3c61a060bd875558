"""The order of a gang's nodes: ranks follow it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.decide.placement import usable
from holdfast.model.human_format import natural
from holdfast.model.job_spec import JobSpec, NodeInfo


def order(node: NodeInfo) -> tuple[object, ...]:
    """A sort key: the place that the user has chosen, else the node's neighbourhood, else its name."""
    typed = node.node_rank
    return typed is None, typed or 0, tuple(map(natural, node.labels)), natural(node.name)


def fit(spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str], out: Collection[str]) -> list[NodeInfo]:
    """The nodes that can take part, in their order. `out`: those that are absent.

    Where each node has as many workers as slots, a node that lacks a device takes no part: it would silently change the
    size of the gang.
    """
    whole = {node.name: node for node in nodes if node.name not in out}
    per_node = any(role.per_node for role in spec.roles)
    found = [
        whole[kept.name]
        for kept in usable(tuple(whole.values()), avoid)
        if (kept.slots == whole[kept.name].slots if per_node else kept.slots)
    ]
    return sorted(found, key=order)


def line_up(
    spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str], out: Collection[str], line: Sequence[str]
) -> list[NodeInfo]:
    """The nodes of the next attempt, in the order of their ranks; empty where there are too few.

    `line`: the nodes of the attempt before. A node that was in it keeps its place. A spare takes exactly the place of a
    node that is gone, so that the others keep their ranks. Without a spare the others move up. Where there are more
    nodes than before, they are sorted anew, except the first: rank 0 stays where it is.
    """
    plan = spec.nodes
    most, least = (plan.most, plan.least) if plan.many else (len(nodes), 1)
    free = {node.name: node for node in fit(spec, nodes, avoid, out)}
    known = {node.name: node for node in nodes}
    kept = [free.pop(name, None) for name in line[:most]]
    placed = []
    for name, node in zip(line, kept, strict=False):
        if node is None and free:
            node = free.pop(_successor(known.get(name), free))
        if node is not None:
            placed.append(node)
    more = list(free.values())[: most - len(placed)]
    if more and placed and any(role.per_node for role in spec.roles):
        placed = [placed[0], *sorted([*placed[1:], *more], key=order)]
    else:
        placed += more
    return placed if len(placed) >= least else []


def _successor(gone: NodeInfo | None, free: dict[str, NodeInfo]) -> str:
    """The node that takes the place of another: one with as many slots, if there is one, so that no rank moves."""
    if gone is not None:
        typed = (name for name, node in free.items() if node.node_rank is not None and node.node_rank == gone.node_rank)
        alike = (name for name, node in free.items() if node.slots == gone.slots)
        found = next(typed, None) or next(alike, None)
        if found is not None:
            return found
    return next(iter(free))
