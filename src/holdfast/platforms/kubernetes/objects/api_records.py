"""Pods, nodes and events from the API server, reduced to the fields that holdfast uses.

The parsers work for Kubernetes 1.20 to 1.37. A field that is missing or has the wrong type becomes empty. Texts come
from other programs, so line breaks in them are removed. Times come from the cluster's clocks; compare them only with
each other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.safe_text import one_line

#: Length limit of each text in a record, in characters.
WORDS = 1000
#: Length limit of a termination message, which may be JSON. The kubelet cuts longer messages.
MOST_MESSAGE = 4096


class PodPhase(enum.StrEnum):
    """A pod's phase, as in its status."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Condition(Noun, frozen=True, kw_only=True):
    """One condition of a pod or a node."""

    #: Type of the condition: `PodScheduled`, `DisruptionTarget`, `Ready`.
    kind: str
    #: Status of the condition: `True`, `False` or `Unknown`.
    status: str
    reason: str = ""
    message: str = ""

    @property
    def true(self) -> bool:
        return self.status == "True"


class ContainerEnd(Noun, frozen=True, kw_only=True):
    """The status of a container that has ended."""

    code: int
    signal: int = 0
    #: Why the container ended: `OOMKilled`, `Error`, `Completed`, `ContainerCannotRun`.
    reason: str = ""
    #: The contents of the container's termination message, unchanged.
    message: str = ""


class Container(Noun, frozen=True, kw_only=True):
    """One container of a pod.

    If `waiting`, `running` and `end` are all unset, its node has not reported the container yet.
    """

    name: str
    image: str = ""
    #: Why the container waits: `ImagePullBackOff`, `PodInitializing`.
    waiting: str = ""
    #: Kubernetes' message about the reason in `waiting`.
    message: str = ""
    running: bool = False
    end: ContainerEnd | None = None
    #: How the container's previous run ended; None if it is the first run.
    last: ContainerEnd | None = None


class Pod(Noun, frozen=True, kw_only=True):
    """One pod of the cluster."""

    name: str
    uid: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: The pod's resourceVersion. Two versions can only be compared for equality.
    version: str = ""
    #: Name of the pod's node; empty if the scheduler has not chosen one.
    node: str = ""
    #: Name of the node on which the scheduler is preempting other pods to make room for this pod.
    nominated: str = ""
    phase: PodPhase = PodPhase.UNKNOWN
    #: Reason of the pod's status: `Evicted`, `NodeLost`, `Preempting`.
    reason: str = ""
    message: str = ""
    #: Whether the pod is being deleted. The record stays until the pod's node reports the end of its containers.
    deleting: bool = False
    delete_grace_s: float | None = None
    conditions: tuple[Condition, ...] = ()
    #: When the pod's node accepted the pod, else when the pod was created, in seconds since the epoch.
    began_at: float = 0.0
    #: Names of the containers in the pod's spec, without init containers.
    specified: tuple[str, ...] = ()
    #: The pod's init containers.
    prepares: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the pod's workers have ended for good: all of its containers, or `task`, which is not restarted."""
        if self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            return True
        task = self.container(object_names.TASK)
        return task is not None and task.end is not None

    @property
    def outlives_task(self) -> bool:
        """Whether containers that a user or a webhook has added may keep the pod and its devices after `task` ends."""
        added = any(name != object_names.TASK for name in self.specified)
        return added and self.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.conditions if each.kind == kind), None)

    def container(self, name: str) -> Container | None:
        return next((each for each in (*self.prepares, *self.containers) if each.name == name), None)


class ClusterNode(Noun, frozen=True, kw_only=True):
    """One node of the cluster."""

    name: str
    labels: Mapping[str, str] = {}
    #: Keys of the node's taints, without values and effects.
    taints: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def ready(self) -> Condition | None:
        return next((each for each in self.conditions if each.kind == "Ready"), None)


class Event(Noun, frozen=True, kw_only=True):
    """A Kubernetes event, which reports something about one object."""

    uid: str = ""
    #: Reason of the event: `FailedScheduling`, `Preempted`, `TaintManagerEviction`.
    reason: str = ""
    message: str = ""
    #: Kind of the object that the event is about.
    kind: str = ""
    name: str = ""
    #: Uid of the object that the event is about.
    of: str = ""
    count: int = 1
    at: float = 0.0


def pod(item: Any) -> Pod:
    """Parse a pod from the API server."""
    meta, spec, status = _part(item, "metadata"), _part(item, "spec"), _part(item, "status")
    phase = _text(status, "phase")
    images = {_text(each, "name"): _text(each, "image") for each in _list(spec, "initContainers", "containers")}
    return Pod(
        name=_text(meta, "name"),
        uid=_text(meta, "uid"),
        namespace=_text(meta, "namespace"),
        labels=_texts(meta, "labels"),
        annotations=_texts(meta, "annotations"),
        version=_text(meta, "resourceVersion"),
        node=_text(spec, "nodeName"),
        nominated=_text(status, "nominatedNodeName"),
        phase=PodPhase(phase) if phase in tuple(PodPhase) else PodPhase.UNKNOWN,
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        deleting=bool(_text(meta, "deletionTimestamp")),
        delete_grace_s=_number(meta, "deletionGracePeriodSeconds"),
        conditions=_conditions(status),
        began_at=api_time(_text(status, "startTime") or _text(meta, "creationTimestamp")),
        specified=tuple(_text(each, "name") for each in _list(spec, "containers")),
        prepares=tuple(_container(each, images) for each in _list(status, "initContainerStatuses")),
        containers=tuple(_container(each, images) for each in _list(status, "containerStatuses")),
    )


def node(item: Any) -> ClusterNode:
    """Parse a node from the API server."""
    meta, spec, status = _part(item, "metadata"), _part(item, "spec"), _part(item, "status")
    return ClusterNode(
        name=_text(meta, "name"),
        labels=_texts(meta, "labels"),
        taints=tuple(_text(each, "key") for each in _list(spec, "taints")),
        conditions=_conditions(status),
    )


def event(item: Any) -> Event:
    """Parse an event of v1 from the API server."""
    meta, about = _part(item, "metadata"), _part(item, "involvedObject")
    series = _part(item, "series")
    return Event(
        uid=_text(meta, "uid"),
        reason=_text(item, "reason"),
        message=_text(item, "message"),
        kind=_text(about, "kind"),
        name=_text(about, "name"),
        of=_text(about, "uid"),
        count=int(_number(item, "count") or _number(series, "count") or 1),
        at=max(
            api_time(_text(item, "lastTimestamp")),
            api_time(_text(series, "lastObservedTime")),
            api_time(_text(item, "eventTime")),
            api_time(_text(meta, "creationTimestamp")),
        ),
    )


def api_time(text: str) -> float:
    """Parse a time such as `2026-11-22T21:30:00Z` to seconds since the epoch. Return 0 if the text is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _container(status: Any, images: Mapping[str, str]) -> Container:
    state = _part(status, "state")
    waiting = _part(state, "waiting")
    name = _text(status, "name")
    return Container(
        name=name,
        # The status contains the resolved name of the image. Users know the name from the spec.
        image=images.get(name) or _text(status, "image"),
        waiting=_text(waiting, "reason"),
        message=_text(waiting, "message"),
        running="running" in state,
        end=_end(state.get("terminated")),
        last=_end(_part(status, "lastState").get("terminated")),
    )


def _end(state: Any) -> ContainerEnd | None:
    if not isinstance(state, dict):
        return None
    message = state.get("message")
    return ContainerEnd(
        code=int(_number(state, "exitCode") or 0),
        signal=int(_number(state, "signal") or 0),
        reason=_text(state, "reason"),
        message=message[:MOST_MESSAGE] if isinstance(message, str) else "",
    )


def _conditions(status: Any) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            kind=_text(each, "type"),
            status=_text(each, "status"),
            reason=_text(each, "reason"),
            message=_text(each, "message"),
        )
        for each in _list(status, "conditions")
    )


def _part(item: Any, name: str) -> dict[str, Any]:
    found = item.get(name) if isinstance(item, dict) else None
    return found if isinstance(found, dict) else {}


def _list(item: Any, *names: str) -> Iterable[Any]:
    for name in names:
        found = item.get(name) if isinstance(item, dict) else None
        yield from found if isinstance(found, list) else ()


def _text(item: Any, name: str) -> str:
    found = item.get(name) if isinstance(item, dict) else None
    return one_line(found)[:WORDS] if isinstance(found, str) else ""


def _texts(item: Mapping[str, Any], name: str) -> dict[str, str]:
    return {key: value for key, value in _part(item, name).items() if isinstance(value, str)}


def _number(item: Any, name: str) -> float | None:
    found = item.get(name) if isinstance(item, dict) else None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
