"""The pods of each of a job's nodes, the reports about lost and pending pods, and the topology labels of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.platforms.kubernetes.objects import api_records, object_names
from holdfast.platforms.kubernetes.objects.pod_context import node_name
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason, StartOutlook

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News


class PodLost:
    """The report that a pod of the job has ended or is ending."""

    def __init__(self, pod: api_records.Pod, why: PodEndReason, *, over: bool) -> None:
        """`pod`: the pod. `why`: why the pod ends. `over`: whether all of its processes have ended."""
        self.pod = pod
        self.why = why
        self.over = over

    @property
    def node(self) -> str:
        """The name by which the gang knows the pod's node."""
        return node_name(self.pod.node, self.pod.name)


class PodsImpossible:
    """The report that a pod cannot be created.

    `index`: index of the pod's node; negative if no pod of the job can be created.
    """

    def __init__(self, phrase: str, words: str, command: str, index: int = -1) -> None:
        """`phrase`: the failure class.
        `words`: a sentence for the user.
        `command`: a shell command for the user to try.
        `index`: index of the pod's node; negative if no pod of the job can be created.
        """
        self.phrase, self.words, self.command, self.index = phrase, words, command, index


class PodPending:
    """The report that a pod has not started yet."""

    def __init__(self, pod: api_records.Pod, words: str) -> None:
        #: `words` is the reason, from the API server, the scheduler or the node. Empty: the pod was created after all.
        self.pod, self.words = pod, words


class GangPatience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the gang waits for missing nodes, and for silent agents."""

    #: Returns how long the gang currently waits for a node, in seconds.
    nodes_s: Callable[[], float]
    #: How long after an agent's last message its node counts as silent, in seconds.
    silent_s: float
    #: Returns the time of the last message from a node's agent, in seconds; None if no agent of the node has joined.
    heard_at: Callable[[str], float | None]


Told = Callable[["PodLost | PodsImpossible | PodPending", float], "News"]


class NodePlace:
    """One node of the job, with its pods so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        #: Generation of the node's last pod; negative if no pod has been created.
        self.generation = -1
        #: How many of the node's pods have failed in a row.
        self.failures = 0
        #: The timer that creates the next pod.
        self.next: DueCall | None = None
        #: Whether a request to create a pod is pending.
        self.asked = False
        #: Time since which the node has no running pod, in seconds on the owner's clock; None if it has one.
        self.waiting_since: float | None = None
        #: Whether the waiting pod may still start; `outlook_since` is the time of the last change.
        self.outlook: StartOutlook | None = None
        self.outlook_since = 0.0
        #: The last message about why the pod waits; `said_at` is the message's time.
        self.said = ""
        self.said_at = 0.0
        #: Why the cluster has no room for the node's pod now; "" if it has room or this is unknown.
        self.no_room = ""
        #: Why the node lost its last pod.
        self.last: PodEndReason | None = None
        #: Kubernetes nodes that the next pod avoids if possible.
        self.avoided_nodes: tuple[str, ...] = ()


def generation_of(found: api_records.Pod) -> int:
    """Return how many pods the node had before this one."""
    text = found.labels.get(object_names.GENERATION, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


#: Topology levels with the labels that may hold their values. The first label that a node has is used.
_LEVELS = (
    ("topology.kubernetes.io/region",),
    ("topology.kubernetes.io/zone",),
    ("cloud.google.com/gce-topology-block", "topology.k8s.aws/network-node-layer-1"),
    (
        "network.topology.nvidia.com/spine",
        "cloud.google.com/gce-topology-subblock",
        "topology.k8s.aws/network-node-layer-2",
    ),
    ("topology.kubernetes.io/rack", "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3"),
    ("network.topology.nvidia.com/accelerator", "nvidia.com/gpu.clique"),
)


def neighbourhood(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return one value for each topology level, empty if no label has the level. Return () if all levels are empty."""
    found = tuple(next((labels[key] for key in keys if labels.get(key)), "") for keys in _LEVELS)
    return found if any(found) else ()
