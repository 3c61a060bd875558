"""Runs checks on this node during a job. A failure of one stops only this job."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.decide.gate import failure_of
from holdfast.launch.check_plan import CheckPlan, DuringJob, during_job
from holdfast.model import events as ev
from holdfast.model.check_results import ActionKind, CheckOutcome, Finding, Site
from holdfast.model.evidence import CheckFailure
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.node.prechecks.check_process import CheckProcess, check_body

if TYPE_CHECKING:
    from holdfast.reactor import Reactor


class DuringChecks:
    """Runs the plan's checks that repeat during the job, while all workers are up.

    `running()`: the attempt whose workers are all up, or None; between attempts no check begins. `say`: prints one
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
        """Start the schedule, because all workers are up. Each check first runs after one interval."""
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
    """Return the plan if one of its checks repeats during a job, else None."""
    if plan is None or plan.disabled:
        return None
    return plan if during_job(plan) else None


class CheckChange(Noun, frozen=True, kw_only=True):
    """A change of a check's result: it began to fail, was inconclusive, or passes again."""

    text: str
    #: The failure that stops the job; None if the change is only printed (as `text`).
    failure: CheckFailure | None = None


class CheckWatch:
    """Runs checks during a job, one at a time, each at its interval. They use only CPU time that no worker needs.

    It reports a `CheckChange` when a check begins to fail, and another when the check passes again.
    """

    def __init__(self, plan: CheckPlan, *, site: Site, now: float, job: JobSpec | None = None) -> None:
        self._site = msgspec.structs.replace(site, running=True)
        self._job = job
        self._due = [(now + item.interval_s, item) for item in during_job(plan)]
        self._epoll = select.epoll()
        self._running: tuple[DuringJob, CheckProcess, float] | None = None
        self._failing: set[str] = set()

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def busy(self) -> bool:
        """Return whether a check is running."""
        return self._running is not None

    def next_wake(self) -> float | None:
        if self._running is not None:
            return self._running[2]
        return min((due for due, _ in self._due), default=None)

    def handle_ready(self, now: float) -> list[CheckChange]:
        """Read the answers that have come, and run the checks that are due."""
        if self._epoll.closed:
            return []
        self._epoll.poll(0)
        noticed: list[CheckChange] = []
        if self._running is not None:
            item, process, deadline = self._running
            process.advance()
            if process.over or now >= deadline:
                finding = None
                if process.over:
                    finding = next(iter(process.take()), None) or process.died(item.check.name, self._site)
                process.close()
                self._running = None
                self._due.append((now + item.interval_s, item))
                noticed = self._judge(item, finding)
        if self._running is None:
            ready = [entry for entry in self._due if entry[0] <= now]
            if ready:
                entry = min(ready, key=lambda entry: entry[0])
                self._due.remove(entry)
                item = entry[1]
                work = [(item.check.profile.ref, item.check.params)]
                body = check_body(work, job=self._job, nodes=(self._site.node,), attempt=0, site=self._site)
                self._running = (item, CheckProcess(body, self._epoll), now + item.check.step.limit_s)
        return noticed

    def _judge(self, item: DuringJob, finding: Finding | None) -> list[CheckChange]:
        name = item.check.name
        if finding is None or finding.answer is CheckOutcome.INCONCLUSIVE:
            limit_s = item.check.step.limit_s
            text = finding.message if finding else f"{self._site.node}: no answer within {limit_s:g} s; it was stopped"
            return self._say_once(name, f"check {name} during the job is inconclusive: {text}")
        if finding.answer is CheckOutcome.GOOD:
            if name not in self._failing:
                return []
            self._failing.discard(name)
            return [CheckChange(text=f"check {name} passes again: {finding.message}")]
        harsh = [action for action in finding.actions if action.kind >= ActionKind.AVOID]
        if item.check.step.only_warn or not harsh:
            return self._say_once(name, f"check {name} during the job: {finding.message}")
        if name in self._failing:
            return []
        self._failing.add(name)
        # A check may request several severe actions. The mildest is enough, as before the start.
        action = min(harsh, key=lambda action: action.kind)
        failure = replace(
            failure_of(name, finding, action),
            nodes=finding.nodes or (self._site.node,),
            running=True,
            ends_job=action.kind is ActionKind.STOP,
        )
        return [CheckChange(text=f"check {name} failed during the job: {finding.message}", failure=failure)]

    def _say_once(self, name: str, text: str) -> list[CheckChange]:
        if name in self._failing:
            return []
        self._failing.add(name)
        return [CheckChange(text=text)]

    def forget(self) -> None:
        """Forget old failures, so that they are reported again in the new attempt."""
        self._failing.clear()

    def kill(self) -> None:
        """Kill the running check, and start no more."""
        if self._running is not None:
            self._running[1].close()
            self._running = None
        self._due.clear()
        self._epoll.close()
