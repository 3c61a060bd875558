"""Which node has gone silent: watches when each node's agent was last heard. Pure: `now` comes in, events go out.

Two moments matter after an agent's last heartbeat. One lease later its node counts as silent, and the owner stops an
attempt that uses it. One lease, the clocks' drift and one beat later the node is fenced: any acknowledgement it got
answered a heartbeat sent before the last one heard here, so its lease is over, and it has had a beat to kill its
processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model.events import NodeFenced, NodeSilent
from holdfast.model.job_spec import Timers

#: How many heartbeats before the last one are remembered for each node.
HISTORY = 3


class _Word(msgspec.Struct):
    """The last heartbeat of one agent. `said_at`: when its silence was last reported (seconds), or None."""

    boot: int
    heard_at: float
    said_at: float | None = None
    #: When the heartbeats before it arrived: the report of a lost node shows them.
    before: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=HISTORY))


class Liveness:
    """The watcher of one job's nodes. All times are seconds on the owner's clock.

    Silence is reported again every beat for as long as it lasts, like all state in the protocol: so an attempt that
    begins while a node is silent learns of it too.
    """

    def __init__(self, timers: Timers) -> None:
        self._beat_s = timers.beat_s
        self.silent_s = timers.lease_s
        self.fence_s = timers.lease_s + timers.drift_s + timers.beat_s
        self._words: dict[str, _Word] = {}
        self._wake: float | None = None

    def expect(self, nodes: Iterable[str], now: float, boots: Mapping[str, int] | None = None) -> None:
        """Expect heartbeats of these nodes from now on; also after the owner was away and could hear no agent.

        `boots`: the agent of each node that the owner's journal heard last. A fence of any other agent would fence
        nothing.
        """
        for node in nodes:
            word = self._words.get(node)
            known = (boots or {}).get(node, 0)
            self._words[node] = _Word(max(known, word.boot if word else 0), now)
        self._look_again()

    def heard(self, node: str, boot: int, now: float) -> bool:
        """An agent was heard. False: it is an earlier agent of the node, and the owner must not acknowledge it."""
        word = self._words.get(node)
        if word is None:
            word = self._words[node] = _Word(boot, now)
            self._wake = self._next(word) if self._wake is None else min(self._wake, self._next(word))
            return True
        if boot < word.boot:
            return False
        word.before.append(word.heard_at)
        word.boot, word.heard_at, word.said_at = boot, now, None
        return True

    def heard_at(self, node: str) -> float | None:
        """When a node's agent was last heard; None: the node is not watched."""
        word = self._words.get(node)
        return word.heard_at if word is not None else None

    def forget(self, node: str, boot: int) -> None:
        """This agent has ended with all its processes: its silence means nothing."""
        word = self._words.get(node)
        if word is not None and word.boot <= boot:
            del self._words[node]  # an early wake costs less than a look at all others

    def next_wake(self) -> float | None:
        """When `due` may have an event, in seconds; None while no node is watched."""
        return self._wake

    def due(self, now: float) -> list[NodeSilent | NodeFenced]:
        """The nodes that are silent now, and those whose lease has surely ended; each again after a beat."""
        if self._wake is None or now < self._wake:
            return []
        if now > self._wake + self._beat_s:
            # The owner itself was away (suspended, starved) and has yet to read what arrived: accuse no node.
            for word in self._words.values():
                word.heard_at = max(word.heard_at, now - self.silent_s + self._beat_s)
        found: list[NodeSilent | NodeFenced] = []
        for node, word in self._words.items():
            if now < self._next(word):
                continue
            words = [round(now - at, 1) for at in (word.heard_at, *reversed(word.before))]
            found.append(NodeSilent(node=node, boot=word.boot, silent_s=now - word.heard_at, words_s=tuple(words)))
            if now >= word.heard_at + self.fence_s:
                found.append(NodeFenced(node=node, boot=word.boot))
            word.said_at = now
        self._look_again()
        return found

    def _next(self, word: _Word) -> float:
        """When this node's silence is to be reported next."""
        if word.said_at is None:
            return word.heard_at + self.silent_s
        again, fence = word.said_at + self._beat_s, word.heard_at + self.fence_s
        return min(again, fence) if word.said_at < fence else again

    def _look_again(self) -> None:
        # Between two looks a heartbeat can only move its node's moment later: the earliest seen now stays early enough.
        self._wake = min(map(self._next, self._words.values()), default=None)
