"""The jobs and tainted nodes of the user's cluster. Each call creates a new client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import BadUsage, HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects.client_messages import ApiTrouble
from holdfast.platforms.kubernetes.objects.node_taints import HeldNode, free_by_hand, free_patch, held
from holdfast.platforms.kubernetes.remote.cluster_jobs import ClusterJob, ClusterJobView, jobs, look, with_server
from holdfast.platforms.kubernetes.remote.cluster_stop import stop
from holdfast.platforms.remote_jobs import HeldRemoteNode, RemoteLine, RemoteLineFilter

#: How often to try to remove a taint. A try fails if another client changes the node at the same time.
TRIES = 3
MOST_NODES = 500


class KubernetesJobs:
    """Reads and stops the jobs of a Kubernetes cluster, and releases its tainted nodes."""

    def jobs(self, namespace: str | None) -> tuple[Sequence[ClusterJob], str]:
        return with_server(lambda api: (jobs(api, namespace), namespace or api.namespace))

    def look(self, namespace: str | None, name: str) -> ClusterJobView:
        return with_server(lambda api: look(api, namespace, name))

    def logs(
        self,
        namespace: str | None,
        name: str,
        wanted: RemoteLineFilter,
        *,
        out: Callable[[RemoteLine], None],
        say: Callable[[str], None],
        following: bool,
    ) -> None:
        from holdfast.platforms.kubernetes.remote.cluster_logs import (
            logs,
        )  # imported late: the module imports an HTTP client

        with_server(lambda api: logs(api, namespace, name, wanted, out=out, say=say, following=following))

    def stop(
        self, namespace: str | None, name: str, *, reason: str, solution: str, phrase: str, code: int | None, who: str
    ) -> str:
        return with_server(
            lambda api: stop(api, namespace, name, reason=reason, solution=solution, phrase=phrase, code=code, who=who)
        )

    def held_nodes(self) -> Sequence[HeldRemoteNode]:
        return with_server(_held_nodes)

    def release(self, node: str) -> HeldRemoteNode | None:
        return with_server(lambda api: _release(api, node))


def _held_nodes(api: BlockingClient) -> list[HeldNode]:
    """Return the nodes with holdfast's taint, sorted by name. Raises HoldfastError if nodes cannot be listed."""
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


def _release(api: BlockingClient, node: str) -> HeldNode | None:
    """Remove holdfast's taint from a node. Return the data of the removed taint; None if the node had none.

    Raises `BadUsage` if the cluster has no such node, and HoldfastError if the node cannot be read or changed.
    """
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
