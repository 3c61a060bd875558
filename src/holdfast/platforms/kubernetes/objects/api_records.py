"""Pods, nodes and events as the API server has them, as values with only what is used here. Pure.

The same from 1.20 to 1.37: a field that is missing, or is not of the kind that it should be, is empty. Texts are what
others wrote, made one line. Moments are those of the cluster's clocks, and only compared with each other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.model.noun_base import Noun
from holdfast.safe_text import one_line

#: Of one text.
WORDS = 1000
#: Of a termination message, which is JSON perhaps: the kubelet keeps no more.
MOST_MESSAGE = 4096


class PodPhase(enum.StrEnum):
    """Of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Condition(Noun, frozen=True, kw_only=True):
    """Of a pod or a node."""

    #: `PodScheduled`, `DisruptionTarget`, `Ready`
    kind: str
    #: `True`, `False`, `Unknown`
    status: str
    reason: str = ""
    message: str = ""

    @property
    def true(self) -> bool:
        return self.status == "True"


class ContainerEnd(Noun, frozen=True, kw_only=True):
    """How a container ended."""

    code: int
    signal: int = 0
    #: `OOMKilled`, `Error`, `Completed`, `ContainerCannotRun`
    reason: str = ""
    #: What it has written into its termination log, as it is.
    message: str = ""


class Container(Noun, frozen=True, kw_only=True):
    """One container of a pod. None of `waiting`, `running`, `end`: its node has not said."""

    name: str
    image: str = ""
    #: A reason: `ImagePullBackOff`, `PodInitializing`.
    waiting: str = ""
    #: To `waiting`.
    message: str = ""
    running: bool = False
    end: ContainerEnd | None = None
    #: Of the run before this one.
    last: ContainerEnd | None = None
    restarts: int = 0


class Pod(Noun, frozen=True, kw_only=True):
    """One pod."""

    name: str
    uid: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: resourceVersion: to be compared for equality only.
    version: str = ""
    #: Empty: no node has been chosen for it.
    node: str = ""
    address: str = ""
    phase: PodPhase = PodPhase.UNKNOWN
    #: `Evicted`, `NodeLost`, `Preempting`
    reason: str = ""
    message: str = ""
    #: It is to end; it is there until its node says that it has.
    deleting: bool = False
    delete_grace_s: float | None = None
    conditions: tuple[Condition, ...] = ()
    #: Its init containers.
    prepares: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()

    @property
    def over(self) -> bool:
        """None of its containers runs any more, or will."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.conditions if each.kind == kind), None)

    def container(self, name: str) -> Container | None:
        return next((each for each in (*self.prepares, *self.containers) if each.name == name), None)


class Taint(Noun, frozen=True, kw_only=True):
    """Of a node."""

    key: str
    value: str = ""
    effect: str = ""


class ClusterNode(Noun, frozen=True, kw_only=True):
    """One node."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def ready(self) -> Condition | None:
        return next((each for each in self.conditions if each.kind == "Ready"), None)

    @property
    def away(self) -> bool:
        """Its kubelet does not answer, or says that the node is not ready."""
        return self.ready is not None and not self.ready.true

    @property
    def silent(self) -> bool:
        """Its kubelet does not answer."""
        return self.ready is not None and self.ready.status == "Unknown"


class Event(Noun, frozen=True, kw_only=True):
    """What a part of Kubernetes says of an object."""

    uid: str = ""
    #: `FailedScheduling`, `Preempted`, `TaintManagerEviction`
    reason: str = ""
    message: str = ""
    warning: bool = False
    #: Of the object.
    kind: str = ""
    name: str = ""
    #: The object's uid.
    of: str = ""
    #: `default-scheduler`, `kubelet`
    by: str = ""
    count: int = 1
    at: float = 0.0


def pod(item: Any) -> Pod:
    """One pod as the API server sends it."""
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
        address=_text(status, "podIP"),
        phase=PodPhase(phase) if phase in tuple(PodPhase) else PodPhase.UNKNOWN,
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        deleting=bool(_text(meta, "deletionTimestamp")),
        delete_grace_s=_number(meta, "deletionGracePeriodSeconds"),
        conditions=_conditions(status),
        prepares=tuple(_container(each, images) for each in _list(status, "initContainerStatuses")),
        containers=tuple(_container(each, images) for each in _list(status, "containerStatuses")),
    )


def node(item: Any) -> ClusterNode:
    """One node as the API server sends it."""
    meta, spec, status = _part(item, "metadata"), _part(item, "spec"), _part(item, "status")
    taints = [
        Taint(key=_text(each, "key"), value=_text(each, "value"), effect=_text(each, "effect"))
        for each in _list(spec, "taints")
    ]
    return ClusterNode(
        name=_text(meta, "name"),
        uid=_text(meta, "uid"),
        labels=_texts(meta, "labels"),
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple(taints),
        conditions=_conditions(status),
    )


def event(item: Any) -> Event:
    """One event of v1 as the API server sends it."""
    meta, about = _part(item, "metadata"), _part(item, "involvedObject")
    series = _part(item, "series")
    source = _part(item, "source")
    return Event(
        uid=_text(meta, "uid"),
        reason=_text(item, "reason"),
        message=_text(item, "message"),
        warning=_text(item, "type") == "Warning",
        kind=_text(about, "kind"),
        name=_text(about, "name"),
        of=_text(about, "uid"),
        by=_text(source, "component") or _text(item, "reportingComponent"),
        count=int(_number(item, "count") or _number(series, "count") or 1),
        at=max(
            api_time(_text(item, "lastTimestamp")),
            api_time(_text(series, "lastObservedTime")),
            api_time(_text(item, "eventTime")),
            api_time(_text(meta, "creationTimestamp")),
        ),
    )


def api_time(text: str) -> float:
    """Seconds since the epoch of `2026-11-22T21:30:00Z`; 0: there is none."""
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
        # The status has what it was resolved to; a person knows what he has typed.
        image=images.get(name) or _text(status, "image"),
        waiting=_text(waiting, "reason"),
        message=_text(waiting, "message"),
        running="running" in state,
        end=_end(state.get("terminated")),
        last=_end(_part(status, "lastState").get("terminated")),
        restarts=int(_number(status, "restartCount") or 0),
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
