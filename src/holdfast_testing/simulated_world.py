"""The seeded world of one simulation: one clock, one queue of future events, and one unreliable network.

Nothing waits in real time: the clock jumps to the next event. The queue holds tuples, because a heap compares tuples
fastest. Two worlds of the same plan have the same events in the same order.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from holdfast_testing.trouble_plan import Plan

#: Number of events after which the simulation counts as stuck in an endless loop, if its clock does not advance.
STUCK_STEPS = 200_000


class Violation(Exception):
    """Raised if an invariant of the gang is broken. `name` is the invariant: I1 … I12, or `budget`, `report` …"""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class World:
    """The world of one simulation: its clock (seconds), queue of events, random generator and trace."""

    def __init__(self, plan: Plan, *, tracing: bool = False) -> None:
        self.plan = plan
        self.now = 0.0
        self.dice = random.Random(f"world {plan.seed}")
        self.events = 0
        self.tracing = tracing
        self.story: list[str] = []
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()

    def at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        """Schedule `act(*args)` at `when` (seconds, not before now)."""
        heapq.heappush(self._queue, (max(when, self.now), next(self._count), act, args))

    def after(self, delay_s: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._count), act, args))

    def run(self, until: float, finished: Callable[[], bool]) -> None:
        """Run events until the queue is empty, `until` is reached, or `finished()` is true."""
        queue, pop, mark, marked_at = self._queue, heapq.heappop, self.events, -1.0
        while queue and queue[0][0] <= until and not finished():
            when, _, act, args = pop(queue)
            self.events += 1
            if when > marked_at:
                mark, marked_at = self.events, when
            elif self.events - mark > STUCK_STEPS:
                raise Violation("I6", f"the clock stands still at {when:.3f} s: something wakes itself for ever")
            self.now = when
            act(*args)

    def say(self, who: str, what: str) -> None:
        """Add a line to the trace of the simulation, if tracing is on."""
        if self.tracing:
            self.story.append(f"{self.now:9.3f}  {who:<10} {what}")


class Network:
    """The network between the owner and each node: delays, reorders, duplicates, loses and cuts, until it heals."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._quiet = not (world.plan.loss or world.plan.duplicate or world.plan.cuts)
        self.lost = self.doubled = 0

    def cut(self, node: str) -> bool:
        """Return whether the owner and this node cannot reach each other now."""
        now = self._world.now
        return any(cut.node == node and cut.start <= now < cut.end for cut in self._plan.cuts)

    def carry(self, node: str, deliver: Callable[..., None], *args: Any) -> None:
        """Carry one message between the owner and `node`, in either direction."""
        world, plan = self._world, self._plan
        if plan.local:
            world.after(0.0, deliver, *args)
            return
        dice = world.dice
        delay = plan.latency_s * (1.0 + plan.jitter * dice.random())
        if not self._quiet and world.now < plan.heal_at:
            if self.cut(node) or dice.random() < plan.loss:
                self.lost += 1
                return
            if dice.random() < plan.duplicate:
                # The second copy of the message arrives late, sometimes several attempts later.
                self.doubled += 1
                late = 20.0 * plan.latency_s if dice.random() < 0.8 else plan.very_late_s
                world.after(delay + late * dice.random(), deliver, *args)
        world.after(delay, deliver, *args)
