"""Detects silent nodes from the arrival times of heartbeats. Pure: callers pass in `now`, and get events.

A node counts as silent one lease after its agent's last heartbeat. The owner then stops an attempt that uses the node.
A little later the node counts as fenced: it certainly has no live process of the job. The extra time covers the drift
of the clocks, and one interval between heartbeats, in which the agent kills its processes. By then the agent's lease is
over too, because it counts from the sending of a heartbeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model.events import NodeFenced, NodeSilent
from holdfast.model.job_spec import Timers

#: The number of heartbeats before the last one whose times are kept for each node.
HISTORY = 3


class _LastHeartbeat(msgspec.Struct):
    """The last heartbeat of one node's agent.

    `said_at`: when the silence since this heartbeat was last reported as an event (seconds); None: not yet.
    """

    boot: int
    heard_at: float
    said_at: float | None = None
    #: When the heartbeats before the last one arrived. The report about a lost node shows these times.
    before: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=HISTORY))


class Liveness:
    """Watches the nodes of one job. All times are seconds on the owner's clock.

    A silence is reported again at every heartbeat interval, so that an attempt that begins meanwhile gets the event
    too.
    """

    def __init__(self, timers: Timers) -> None:
        self._beat_s = timers.beat_s
        self.silent_s = timers.lease_s
        self.fence_s = timers.lease_s + timers.drift_s + timers.beat_s
        self._heartbeats: dict[str, _LastHeartbeat] = {}
        self._wake: float | None = None

    def expect(self, nodes: Iterable[str], now: float, boots: Mapping[str, int] | None = None) -> None:
        """Expect heartbeats of these nodes from now on, also after the owner was away.

        `boots`: node → the last known boot number of its agent. The gang ignores a `NodeFenced` event with another
        number.
        """
        for node in nodes:
            heartbeat = self._heartbeats.get(node)
            known = (boots or {}).get(node, 0)
            self._heartbeats[node] = _LastHeartbeat(max(known, heartbeat.boot if heartbeat else 0), now)
        self._look_again()

    def heard(self, node: str, boot: int, now: float) -> bool:
        """Record an agent's report. Return False if the agent has been replaced; the owner must not acknowledge such a
        report.
        """
        heartbeat = self._heartbeats.get(node)
        if heartbeat is None:
            heartbeat = self._heartbeats[node] = _LastHeartbeat(boot, now)
            self._wake = self._next(heartbeat) if self._wake is None else min(self._wake, self._next(heartbeat))
            return True
        if boot < heartbeat.boot:
            return False
        heartbeat.before.append(heartbeat.heard_at)
        heartbeat.boot, heartbeat.heard_at, heartbeat.said_at = boot, now, None
        return True

    def heard_at(self, node: str) -> float | None:
        """Return when a node's agent last reported; None: the node is not watched."""
        heartbeat = self._heartbeats.get(node)
        return heartbeat.heard_at if heartbeat is not None else None

    def forget(self, node: str, boot: int) -> None:
        """Stop watching a node, because its agent and all its processes have ended."""
        heartbeat = self._heartbeats.get(node)
        if heartbeat is not None and heartbeat.boot <= boot:
            # `_wake` may now be too early. An early call of `due` costs less than a scan of all nodes.
            del self._heartbeats[node]

    def next_wake(self) -> float | None:
        """Return when `due` may have an event, in seconds; None if no node is watched."""
        return self._wake

    def due(self, now: float) -> list[NodeSilent | NodeFenced]:
        """Return an event for each silent node, and for each node whose lease has certainly ended. The events repeat at
        every heartbeat interval.
        """
        if self._wake is None or now < self._wake:
            return []
        if now > self._wake + self._beat_s:
            # If the owner was suspended or starved, it has not read the reports that arrived meanwhile. So count no
            # node as silent yet.
            for heartbeat in self._heartbeats.values():
                heartbeat.heard_at = max(heartbeat.heard_at, now - self.silent_s + self._beat_s)
        found: list[NodeSilent | NodeFenced] = []
        for node, heartbeat in self._heartbeats.items():
            if now < self._next(heartbeat):
                continue
            words = [round(now - at, 1) for at in (heartbeat.heard_at, *reversed(heartbeat.before))]
            found.append(
                NodeSilent(node=node, boot=heartbeat.boot, silent_s=now - heartbeat.heard_at, words_s=tuple(words))
            )
            if now >= heartbeat.heard_at + self.fence_s:
                found.append(NodeFenced(node=node, boot=heartbeat.boot))
            heartbeat.said_at = now
        self._look_again()
        return found

    def _next(self, heartbeat: _LastHeartbeat) -> float:
        """Return when the next event about this node is due. `heartbeat`: the node's last heartbeat."""
        if heartbeat.said_at is None:
            return heartbeat.heard_at + self.silent_s
        again, fence = heartbeat.said_at + self._beat_s, heartbeat.heard_at + self.fence_s
        return min(again, fence) if heartbeat.said_at < fence else again

    def _look_again(self) -> None:
        # A heartbeat can only postpone an event, so this minimum is never too late.
        self._wake = min(map(self._next, self._heartbeats.values()), default=None)
