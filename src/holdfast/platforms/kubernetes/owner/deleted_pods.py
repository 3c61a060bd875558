"""Find out why pods are being deleted if Kubernetes gives no reason: a user typed `kubectl delete`, or the node is
silent.

The event with the reason may come late. No event comes if the node fell silent before its kubelet had reported the pod
as ready. Then the agent's messages show the reason. On a node that works, the kubelet sends the agent a signal, and the
agent goes on sending heartbeats. A silent node sends no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.platforms.kubernetes.objects import api_records
from holdfast.platforms.kubernetes.objects.pod_context import node_name
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason, by_force, pod_end_reason, silent_pod
from holdfast.platforms.kubernetes.owner.node_places import GangPatience

if TYPE_CHECKING:
    from holdfast.reactor import DueCall, News, Reactor

#: How long to wait for the Kubernetes event that gives the reason for a pod's end, in seconds.
SOON_S = 1.0


class _Doubt:
    def __init__(self, since: float) -> None:
        self.since = since
        #: The timer for the next examination of the pod.
        self.moment: DueCall | None = None


class DeletedPods:
    """Determines why pods of one owner are being deleted."""

    def __init__(
        self,
        reactor: Reactor,
        patience: GangPatience,
        look: Callable[[str, float], News],
    ) -> None:
        """Start without pods to examine.

        `patience`: has the time of an agent's last message, and the time limit after which an agent counts as silent.
        `look(name, now)`: called when a pod must be examined again.
        """
        self._reactor = reactor
        self._heard_at = patience.heard_at
        self._silent_s = patience.silent_s
        self._look = look
        self._open: dict[str, _Doubt] = {}
        self._settled: dict[str, PodEndReason] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def why(self, pod: api_records.Pod, events: Sequence[api_records.Event], now: float) -> PodEndReason | None:
        """Return why a pod is ending or has ended.

        Return None if the pod goes on, or if the reason is not known yet. In the latter case `look` is called later.
        """
        found = pod_end_reason(pod, events)
        if found is None or found.certain:
            self._close(pod.name)
            return found
        if (settled := self._settled.get(pod.name)) is not None:
            return settled
        doubt = self._open.get(pod.name)
        if doubt is None:
            doubt = self._open[pod.name] = _Doubt(now)
            self._again(pod.name, doubt, now)
            return None
        heard_at = self._heard_at(node_name(pod.node, pod.name))
        if not pod.over:
            lives = heard_at is None or heard_at > doubt.since
            silent_s = 0.0 if heard_at is None else now - heard_at
            if now < doubt.since + SOON_S or (not lives and silent_s < self._silent_s):
                self._again(pod.name, doubt, now)
                return None
            if not lives:
                found = silent_pod(silent_s)
        self._close(pod.name)
        self._settled[pod.name] = found
        return found

    def removed(self, pod: api_records.Pod, events: Sequence[api_records.Event], now: float) -> PodEndReason:
        """Return why a pod's object no longer exists."""
        self._close(pod.name)
        settled, found = self._settled.pop(pod.name, None), pod_end_reason(pod, events)
        if found is not None and found.certain:
            return found
        if settled is not None:
            return settled
        heard_at = self._heard_at(node_name(pod.node, pod.name))
        if heard_at is not None and now - heard_at >= self._silent_s:
            return silent_pod(now - heard_at)
        return found or by_force()

    def _again(self, name: str, doubt: _Doubt, now: float) -> None:
        if doubt.moment is None:
            doubt.moment = self._reactor.at(now + SOON_S, partial(self._due, name, doubt))

    def _due(self, name: str, doubt: _Doubt, now: float) -> News:
        doubt.moment = None
        return self._look(name, now)

    def _close(self, name: str) -> None:
        doubt = self._open.pop(name, None)
        if doubt is not None and doubt.moment is not None:
            doubt.moment.close()
