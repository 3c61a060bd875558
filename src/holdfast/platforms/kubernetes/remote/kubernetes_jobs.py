"""The jobs of the user's cluster. Each call creates its own client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.platforms.kubernetes.remote.cluster_jobs import ClusterJob, ClusterJobView, jobs, look, with_server
from holdfast.platforms.remote_jobs import HeldRemoteNode, RemoteLine, RemoteLineFilter


class KubernetesJobs:
    """Reads and stops the jobs of a Kubernetes cluster. Each method imports only its own modules."""

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
        from holdfast.platforms.kubernetes.remote.cluster_logs import logs

        with_server(lambda api: logs(api, namespace, name, wanted, out=out, say=say, following=following))

    def stop(
        self, namespace: str | None, name: str, *, reason: str, solution: str, phrase: str, code: int | None, who: str
    ) -> str:
        from holdfast.platforms.kubernetes.remote.cluster_stop import stop

        return with_server(
            lambda api: stop(api, namespace, name, reason=reason, solution=solution, phrase=phrase, code=code, who=who)
        )

    def held_nodes(self) -> Sequence[HeldRemoteNode]:
        from holdfast.platforms.kubernetes.remote.held_nodes import held_nodes

        return with_server(held_nodes)

    def release(self, node: str) -> HeldRemoteNode | None:
        from holdfast.platforms.kubernetes.remote.held_nodes import release

        return with_server(lambda api: release(api, node))
