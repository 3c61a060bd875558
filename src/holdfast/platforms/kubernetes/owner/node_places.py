"""The places of a job's nodes, each with its pods one after the other, and what is told of a pod that is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.platforms.kubernetes.objects import api_records, object_names
from holdfast.platforms.kubernetes.objects.pod_context import node_name
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News


class PodLost:
    """What the station gets to know: a pod of the job has ended, or is to end, and why."""

    def __init__(self, pod: api_records.Pod, why: PodEndReason, *, over: bool) -> None:
        self.pod = pod
        self.why = why
        self.over = over
        """None of its processes lives any more."""

    @property
    def node(self) -> str:
        """As the gang calls it."""
        return node_name(self.pod.node, self.pod.name)


class PodsImpossible:
    """The job cannot have its pods, or not this one. `index`: of the pod's node; negative: none of them."""

    def __init__(self, phrase: str, words: str, command: str, index: int = -1) -> None:
        self.phrase, self.words, self.command, self.index = phrase, words, command, index


class PodPending:
    """A pod does not start so far."""

    def __init__(self, pod: api_records.Pod, words: str) -> None:
        self.pod, self.words = pod, words
        """The scheduler's reason, or the node's."""


Told = Callable[["PodLost | PodsImpossible | PodPending", float], "News"]


class NodePlace:
    """One node of the job: its pods so far."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.generation = -1
        """Of the last pod; negative: none was made."""
        self.failures = 0
        self.next: DueCall | None = None
        self.asked = False
        """The API server is asked for a pod, and has not answered."""
        self.began_at = 0.0
        self.waiting_since: float | None = None
        self.said = ""
        self.said_at = 0.0
        self.last: PodEndReason | None = None
        self.shun: tuple[str, ...] = ()
        """Nodes that the next pod had better not be on."""


def generation_of(found: api_records.Pod) -> int:
    """How many pods its place had had before this one."""
    text = found.labels.get(object_names.GENERATION, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0
