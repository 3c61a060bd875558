"""Checks during a job as a station of the supervisor: what they find is a fault like any other."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.model.checks import Site
from holdfast.model.faults import FaultEvent
from holdfast.model.jobs import JobSpec

if TYPE_CHECKING:
    from holdfast.loop.check import CheckPlan, CheckWatch


class DuringChecks:
    """Runs the plan's during-job checks while the gang runs. Registered in `selector` with this object as `data`.

    `running`: whether all workers are up; between attempts no check begins. `note`: takes what is found.
    """

    def __init__(
        self,
        plan: CheckPlan,
        spec: JobSpec,
        site: Site,
        selector: selectors.BaseSelector,
        running: Callable[[], bool],
        note: Callable[[Sequence[FaultEvent], float], list[ev.Event]],
    ) -> None:
        self._plan = plan
        self._spec = spec
        self._site = site
        self._selector = selector
        self._running = running
        self._note = note
        self._watch: CheckWatch | None = None

    def begin(self, now: float) -> None:
        """All workers are up; the first check of each kind runs one interval later."""
        if self._watch is None:
            from holdfast.loop.check import CheckWatch as Watch

            self._watch = Watch(self._plan, site=self._site, now=now, job=self._spec)
            self._selector.register(self._watch.fileno(), selectors.EVENT_READ, self)

    def pids(self) -> frozenset[int]:
        """Children of the supervisor that belong to a check."""
        return frozenset() if self._watch is None else self._watch.pids()

    def next_wake(self) -> float | None:
        if self._watch is None or not (self._running() or self._watch.pids()):
            return None
        return self._watch.next_wake()

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        return self.tick(now)

    def tick(self, now: float) -> list[ev.Event]:
        if self._watch is None or not (self._running() or self._watch.pids()):
            return []
        return self._note(self._watch.handle_ready(now, now), now)

    def close(self) -> None:
        if self._watch is not None:
            self._selector.unregister(self._watch.fileno())
            self._watch.kill()
            self._watch = None


def during(plan: CheckPlan | None) -> CheckPlan | None:
    """The plan, where any of its checks also runs during a job."""
    if plan is None or plan.disabled:
        return None
    from holdfast.loop.check import during_job

    return plan if during_job(plan) else None
