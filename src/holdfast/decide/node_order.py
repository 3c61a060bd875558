"""The order of a gang's nodes, which decides the order of the ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.decide.placement import usable
from holdfast.model.human_format import natural
from holdfast.model.job_spec import JobSpec, NodeInfo


def order(node: NodeInfo) -> tuple[object, ...]:
    """Return a node's sort key: the `--node-rank` of its user, else its topology labels, else its name."""
    typed = node.node_rank
    return typed is None, typed or 0, tuple(map(natural, node.labels)), natural(node.name)


def fit(spec: JobSpec, nodes: Sequence[NodeInfo], avoid: Collection[str], out: Collection[str]) -> list[NodeInfo]:
    """Return the nodes that can take part, in their order. `avoid`: nodes and devices. `out`: absent nodes.

    If a role has as many workers on a node as the node has slots, a node that lacks a device takes no part: it would
    silently change the size of the gang.
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
    """Return the nodes of the next attempt, in the order of their ranks; empty if there are too few.

    `line`: the nodes of the previous attempt, in order. Such a node keeps its place. A spare takes the place of a node
    that is gone, so that the others keep their ranks. Without a spare the others move up. If there are more nodes than
    before, they are sorted anew, except the first: rank 0 does not move.
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
    """Return the node that replaces `gone`: with the same node rank, else with as many slots so that no rank moves."""
    if gone is not None:
        typed = (name for name, node in free.items() if node.node_rank is not None and node.node_rank == gone.node_rank)
        alike = (name for name, node in free.items() if node.slots == gone.slots)
        found = next(typed, None) or next(alike, None)
        if found is not None:
            return found
    return next(iter(free))
