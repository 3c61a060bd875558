"""Find out why pods are being deleted when Kubernetes has not said so: `kubectl delete`, or a node without an answer.

The explaining event may come late. None comes if the kubelet had not reported the pod as ready before its node fell
silent. Then the agent shows the cause: a working kubelet sends it a signal and it keeps sending heartbeats, while an
agent on a silent node sends nothing more.
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

#: How long after the first sign of a pod's end to wait for an event with the reason, in seconds.
SOON_S = 1.0


class _Doubt:
    def __init__(self, since: float) -> None:
        self.since = since
        #: The timer for the next look at the pod.
        self.moment: DueCall | None = None


class DeletedPods:
    """Finds the reasons for the deletion of one owner's pods."""

    def __init__(
        self,
        reactor: Reactor,
        patience: GangPatience,
        look: Callable[[str, float], News],
    ) -> None:
        """Start without any open question.

        `patience`: says when an agent was last heard, and when it is silent. `look(name, now)`: called when a pod must
        be examined again.
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
        """Return why a pod ends or has ended.

        None: it goes on, or the reason is still open; then `look` is called later.
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
        """Return why a pod's object is gone."""
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
