"""Runs checks during a job: one at a time, each at its interval, with only CPU time that no worker wants."""

from __future__ import annotations

import select

import msgspec
from msgspec.structs import replace

from holdfast.decide.check_wording import failure_of
from holdfast.launch.check_plan import CheckPlan, DuringJob, during_job
from holdfast.model.check_results import ActionKind, CheckOutcome, Finding, Site
from holdfast.model.evidence import CheckFailure
from holdfast.model.job_spec import JobSpec
from holdfast.model.noun_base import Noun
from holdfast.node.prechecks.check_process import CheckProcess, check_body


class CheckChange(Noun, frozen=True, kw_only=True):
    """A check began to fail, was inconclusive, or passes again."""

    text: str
    #: The failure that stops the job; None if only `text` is printed.
    failure: CheckFailure | None = None


class CheckWatch:
    """Runs checks during a job: one at a time, each at its interval, with only CPU time that no worker wants.

    It reports a `CheckChange` once when a check begins to fail, and once when it passes again.
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
        """Read the available answers, and do what is due."""
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
        # The mildest action is enough, as before the start.
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
        """Forget old failures, so that they are reported again: a new attempt runs."""
        self._failing.clear()

    def kill(self) -> None:
        """Kill the running check, and run no more."""
        if self._running is not None:
            self._running[1].close()
            self._running = None
        self._due.clear()
        self._epoll.close()
