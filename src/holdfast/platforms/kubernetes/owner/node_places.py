"""A job's nodes with their successive pods, the reports about lost and pending pods, and the topology of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.platforms.kubernetes.objects import api_records, object_names
from holdfast.platforms.kubernetes.objects.pod_context import node_name
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News


class PodLost:
    """Report: a pod of the job has ended or is ending, and why."""

    def __init__(self, pod: api_records.Pod, why: PodEndReason, *, over: bool) -> None:
        """`why`: the reason. `over`: whether all processes of the pod have ended."""
        self.pod = pod
        self.why = why
        #: Whether all processes of the pod have ended.
        self.over = over

    @property
    def node(self) -> str:
        """The gang's name for the node."""
        return node_name(self.pod.node, self.pod.name)


class PodsImpossible:
    """Report: a pod cannot be had. `index`: the pod's node; negative: no pod of the job can be had."""

    def __init__(self, phrase: str, words: str, command: str, index: int = -1) -> None:
        """`phrase`: the failure class. `words`: a sentence. `command`: for the user to try. `index`: see the class."""
        self.phrase, self.words, self.command, self.index = phrase, words, command, index


class PodPending:
    """Report: a pod has not started yet."""

    def __init__(self, pod: api_records.Pod, words: str) -> None:
        #: The reason from the scheduler or the node.
        self.pod, self.words = pod, words


class GangPatience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the gang waits for nodes that have not come, and for agents that are silent."""

    #: Returns how long the gang waits for a node now, in seconds.
    nodes_s: Callable[[], float]
    #: A node counts as silent after this many seconds without a message.
    silent_s: float
    #: Returns the time of the last message from a node's agent, in seconds; None: no agent of the node has joined.
    heard_at: Callable[[str], float | None]


Told = Callable[["PodLost | PodsImpossible | PodPending", float], "News"]


class NodePlace:
    """One node of the job, and its pods so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        #: Generation of the last pod; negative: none has been created.
        self.generation = -1
        #: Number of failed pods in a row.
        self.failures = 0
        #: The timer for the creation of the next pod.
        self.next: DueCall | None = None
        #: A request to create a pod is pending.
        self.asked = False
        self.began_at = 0.0
        #: When the last pod, or its creation, began to wait, in seconds on the owner's clock.
        self.waiting_since: float | None = None
        #: The last message about the wait, and `said_at` its time.
        self.said = ""
        self.said_at = 0.0
        #: Why the node's last pod was lost.
        self.last: PodEndReason | None = None
        #: Nodes that the next pod should rather not run on.
        self.shun: tuple[str, ...] = ()


def generation_of(found: api_records.Pod) -> int:
    """Return how many pods its node had before this one."""
    text = found.labels.get(object_names.GENERATION, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


#: Labels for each level; the first one that a node has counts.
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
    """Return one value for each level, empty if no label has it. () if no label has any level."""
    found = tuple(next((labels[key] for key in keys if labels.get(key)), "") for keys in _LEVELS)
    return found if any(found) else ()
