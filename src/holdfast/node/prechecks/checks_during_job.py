"""The checks that run during a job on this node. A failure stops this job, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.launch.check_plan import during_job
from holdfast.model import events as ev
from holdfast.model.check_results import Site
from holdfast.model.job_spec import JobSpec
from holdfast.node.prechecks.check_scheduler import CheckWatch

if TYPE_CHECKING:
    from holdfast.launch.check_plan import CheckPlan
    from holdfast.reactor import Reactor


class DuringChecks:
    """Runs the plan's during-job checks while the gang runs.

    `running()`: the attempt whose workers are all up, or None; between attempts no check begins. `say` prints one
    line. `site`: facts about this node.
    """

    def __init__(
        self,
        plan: CheckPlan,
        spec: JobSpec,
        site: Site,
        reactor: Reactor,
        running: Callable[[], int | None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._spec = spec
        self._site = site
        self._reactor = reactor
        self._running = running
        self._say = say
        self._attempt: int | None = None
        self._watch: CheckWatch | None = None

    def begin(self, now: float) -> None:
        """Start the schedule once all workers are up. The first check of each kind runs one interval later."""
        if self._watch is None:
            self._watch = CheckWatch(self._plan, site=self._site, now=now, job=self._spec)
            self._reactor.watch(self._watch.fileno(), self._ready)

    def next_wake(self) -> float | None:
        if self._watch is None or (self._running() is None and not self._watch.busy):
            return None
        return self._watch.next_wake()

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        return self.tick(now)

    def tick(self, now: float) -> list[ev.Event]:
        if self._watch is None:
            return []
        attempt = self._running()
        if attempt is not None and attempt != self._attempt:
            self._attempt = attempt
            self._watch.forget()
        if attempt is None and not self._watch.busy:
            return []
        found: list[ev.Event] = []
        for noticed in self._watch.handle_ready(now):
            if noticed.failure is None:
                self._say(noticed.text)
            elif attempt is not None:
                found.append(ev.CheckFailedRunning(attempt=attempt, failure=noticed.failure))
        return found

    def close(self) -> None:
        if self._watch is not None:
            self._reactor.forget(self._watch.fileno())
            self._watch.kill()
            self._watch = None


def during(plan: CheckPlan | None) -> CheckPlan | None:
    """Return the plan if any of its checks also runs during a job, else None."""
    if plan is None or plan.disabled:
        return None
    return plan if during_job(plan) else None
