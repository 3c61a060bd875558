"""List nodes that jobs have tainted, and release them."""

from __future__ import annotations

from holdfast.errors import BadUsage, HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects.client_messages import ApiTrouble
from holdfast.platforms.kubernetes.objects.node_taints import HeldNode, free_by_hand, free_patch, held

#: Number of tries if someone else changes the node between the read and the patch.
TRIES = 3
MOST_NODES = 500


def held_nodes(api: BlockingClient) -> list[HeldNode]:
    """Return the nodes with holdfast's taint, by name. Raises HoldfastError."""
    found: list[HeldNode] = []
    query = {"limit": str(MOST_NODES)}
    while True:
        answer = api.get("/api/v1/nodes", **query)
        if not answer.ok:
            raise HoldfastError(f"the nodes cannot be listed: {answer.said}", hint="kubectl auth can-i list nodes")
        found += filter(None, map(held, answer.body.get("items") or ()))
        more = (answer.body.get("metadata") or {}).get("continue")
        if not more:
            return sorted(found, key=lambda each: each.node)
        query["continue"] = str(more)


def release(api: BlockingClient, node: str) -> HeldNode | None:
    """Remove holdfast's taint. Return the hold that the node had, or None. Raises `BadUsage`, HoldfastError."""
    path = f"/api/v1/nodes/{node}"
    for _ in range(TRIES):
        answer = api.get(path)
        if answer.trouble is ApiTrouble.GONE:
            raise BadUsage(
                f"the cluster has no node {node}: expected a node that holdfast has tainted",
                hint="holdfast devices --platform kubernetes",
            )
        if not answer.ok:
            raise HoldfastError(f"node {node} cannot be read: {answer.said}", hint=free_by_hand(node))
        was, body = held(answer.body), free_patch(answer.body)
        if body is None:
            return None
        answer = api.patch(path, body)
        if answer.ok:
            return was
        if answer.trouble is not ApiTrouble.CONFLICT:
            raise HoldfastError(f"node {node} cannot be changed: {answer.said}", hint=free_by_hand(node))
    raise HoldfastError(f"node {node} changes all the time: {answer.said}", hint=free_by_hand(node))
