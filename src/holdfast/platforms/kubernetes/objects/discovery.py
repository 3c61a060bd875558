"""Read a Kubernetes server's discovery documents, and choose the scheduler that places all pods of a gang at once.

The order of choice is: Kueue, if a queue is set; the default scheduler's PodGroup (`scheduling.k8s.io`, from 1.36 on,
or its predecessor Workload in 1.35); coscheduling; Volcano. If the cluster has none of them, the gang waits until all
its pods have started. Until then the pods that have started hold their resources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_plan import GangPlacement

NATIVE, KUEUE, COSCHEDULING, VOLCANO = (
    "scheduling.k8s.io",
    "kueue.x-k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.volcano.sh",
)
GROUPS = (NATIVE, KUEUE, COSCHEDULING, VOLCANO)
#: First Kubernetes version whose servers support `podFailurePolicy`, unless an administrator has disabled it.
_FAILURE_POLICY = (1, 26)
#: How long coscheduling waits for all pods of a group before it releases their resources, in seconds.
SCHEDULE_S = 600


class ServerCapabilities(Noun, frozen=True, kw_only=True):
    """The API groups and the version of one API server."""

    #: Major and minor version of the server. Zeros mean unknown; such a server is treated as a recent one.
    version: tuple[int, int] = (0, 0)
    #: Maps each group and version to its resources: `{"scheduling.k8s.io/v1alpha2": ("podgroups", "workloads")}`.
    kinds: dict[str, tuple[str, ...]] = {}

    @property
    def pod_failure_policy(self) -> bool:
        return self.version == (0, 0) or self.version >= _FAILURE_POLICY

    def having(self, group: str, resource: str) -> str:
        """Return the group's most stable version that has the resource, as `group/version`.

        Return "" if no version has it.
        """
        found = [each for each in self.kinds if each.startswith(f"{group}/") and resource in self.kinds[each]]
        return max(found, key=_stability, default="")


class GangScheduler(Noun, frozen=True, kw_only=True):
    """The scheduler that places the pods of a gang, and the Kubernetes objects that this scheduler needs."""

    together: GangPlacement = GangPlacement()
    objects: tuple[dict[str, Any], ...] = ()
    #: Name of the scheduler in the pods' specs. Empty means the default scheduler, or the scheduler that the user sets.
    scheduler: str = ""
    #: A line for the user that explains the choice of the scheduler.
    note: str = ""


def version_of(document: Any) -> tuple[int, int]:
    """Parse the version in a `/version` document. Return zeros if the document has none."""
    if not isinstance(document, Mapping):
        return 0, 0
    numbers = [re.match(r"[0-9]+", str(document.get(key, ""))) for key in ("major", "minor")]
    first, second = (int(each[0]) if each else 0 for each in numbers)
    return (first, second) if first else (0, 0)


def versions_of(document: Any) -> tuple[str, ...]:
    """Return the API versions of all gang schedulers that the server has, from the list at `/apis`."""
    groups = document.get("groups") if isinstance(document, Mapping) else None
    return tuple(
        str(version.get("groupVersion"))
        for group in groups or ()
        if isinstance(group, Mapping) and group.get("name") in GROUPS
        for version in group.get("versions") or ()
        if isinstance(version, Mapping)
    )


def resources_of(document: Any) -> tuple[str, ...]:
    """Return the names of the resources in the document of one group and version."""
    found = document.get("resources") if isinstance(document, Mapping) else None
    return tuple(str(each.get("name")) for each in found or () if isinstance(each, Mapping))


def _stability(group_version: str) -> tuple[int, int, int]:
    """Return a sort key by stability: `v1` above `v1beta2` above `v1beta1` above any alpha."""
    said = re.fullmatch(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?", group_version.partition("/")[2])
    if said is None:
        return -1, 0, 0
    return {None: 2, "beta": 1, "alpha": 0}[said[2]], int(said[1]), int(said[3] or 0)


def choose(
    server: ServerCapabilities, *, name: str, namespace: str, pods: int, queue: str = "", asked: str = "auto"
) -> GangScheduler:
    """Choose the scheduler that places the pods of a gang at once.

    `asked`: the scheduler that the user requests.
    `pods`: minimum number of pods of the gang.
    Raises ValueError if the cluster does not have the requested scheduler.
    """
    if asked == "none":
        return GangScheduler(note="the gang waits for all of its pods itself, as `gang: none` says")
    if asked != "auto":
        if (found := _BY_NAME[asked](server, name, namespace, pods, queue)) is not None:
            return found
        raise ValueError(_LACKS[asked])
    if pods <= 1 and not queue:
        return GangScheduler()
    order = (_kueue, _native, _coscheduling, _volcano) if queue else (_native, _coscheduling, _volcano)
    for each in order:
        if (found := each(server, name, namespace, pods, queue)) is not None:
            return found
    none = "the cluster has no gang scheduler that holdfast knows"
    return GangScheduler(note=f"{none}: the gang waits for all of its {pods} pods itself" if pods > 1 else "")


def _kueue(server: ServerCapabilities, name: str, _: str, pods: int, queue: str) -> GangScheduler | None:
    if not queue or not server.having(KUEUE, "localqueues"):
        return None
    return GangScheduler(
        together=GangPlacement(
            kind="Kueue",
            labels={f"{KUEUE}/queue-name": queue, f"{KUEUE}/pod-group-name": name},
            annotations={f"{KUEUE}/pod-group-total-count": str(pods)},
        ),
        note=f"Kueue places the {pods} pods at once, from its queue {queue}",
    )


def _native(server: ServerCapabilities, name: str, namespace: str, pods: int, _: str) -> GangScheduler | None:
    """Choose the default scheduler's PodGroup, or its predecessor Workload. Return None if the server has neither."""
    note = f"the scheduler of Kubernetes places the {pods} pods at once (PodGroup {name})"
    if version := server.having(NATIVE, "podgroups"):
        group = _object(version, "PodGroup", name, namespace, {"schedulingPolicy": {"gang": {"minCount": pods}}})
        spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": name}}
        return GangScheduler(together=GangPlacement(kind="PodGroup", spec=spec), objects=(group,), note=note)
    if version := server.having(NATIVE, "workloads"):
        policy = {"podGroups": [{"name": object_names.AGENT, "policy": {"gang": {"minCount": pods}}}]}
        spec = {"workloadRef": {"name": name, "podGroup": object_names.AGENT}}
        group = _object(version, "Workload", name, namespace, policy)
        return GangScheduler(
            together=GangPlacement(kind="Workload", spec=spec),
            objects=(group,),
            note=note.replace("PodGroup", "Workload"),
        )
    return None


def _coscheduling(server: ServerCapabilities, name: str, namespace: str, pods: int, _: str) -> GangScheduler | None:
    if not (version := server.having(COSCHEDULING, "podgroups")):
        return None
    spec = {"minMember": pods, "scheduleTimeoutSeconds": SCHEDULE_S}
    return GangScheduler(
        together=GangPlacement(kind="coscheduling", labels={f"{COSCHEDULING}/pod-group": name}),
        objects=(_object(version, "PodGroup", name, namespace, spec),),
        note=f"the coscheduling plug-in places the {pods} pods at once; where it is a scheduler of its own, "
        "`scheduler` has to name it",
    )


def _volcano(server: ServerCapabilities, name: str, namespace: str, pods: int, queue: str) -> GangScheduler | None:
    if not (version := server.having(VOLCANO, "podgroups")):
        return None
    spec = {"minMember": pods, **({"queue": queue} if queue else {})}
    return GangScheduler(
        together=GangPlacement(kind="Volcano", annotations={"scheduling.k8s.io/group-name": name}),
        objects=(_object(version, "PodGroup", name, namespace, spec),),
        scheduler="volcano",
        note=f"Volcano places the {pods} pods at once{f', from its queue {queue}' if queue else ''}",
    )


def _object(version: str, kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": object_names.labels(name, object_names.OWNER)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


_BY_NAME = {"native": _native, "kueue": _kueue, "coscheduling": _coscheduling, "volcano": _volcano}
_LACKS = {
    "native": f"the server has neither PodGroup nor Workload in {NATIVE}",
    "kueue": "the server has no Kueue, or no `queue` is set",
    "coscheduling": f"the server has no PodGroup in {COSCHEDULING}",
    "volcano": f"the server has no PodGroup in {VOLCANO}",
}


def path(manifest: Mapping[str, Any], *, named: bool = False) -> str:
    """Return the API path for creating the object. With `named`, return the path of the object itself."""
    version, meta = str(manifest["apiVersion"]), manifest["metadata"]
    start = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{str(manifest['kind']).lower()}s"
    found = f"{start}/namespaces/{meta['namespace']}/{plural}"
    return f"{found}/{meta['name']}" if named else found
