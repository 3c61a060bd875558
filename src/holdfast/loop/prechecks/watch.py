"""Checks during a job: one at a time, each at its interval, only on CPU that no worker wants."""

from __future__ import annotations

import select

import msgspec

from holdfast.loop.prechecks.plan import CheckPlan, DuringJob, during_job
from holdfast.loop.prechecks.process import CheckProcess, check_body
from holdfast.model.checks import ActionKind, Answer, Finding, Site
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.model.jobs import JobSpec


class CheckWatch:
    """The checks that run during a job: one at a time, each at its interval, only on CPU that no worker wants.

    What they find comes out as fault events: raised once when a check begins to fail, cleared when it passes again.
    """

    def __init__(self, plan: CheckPlan, *, site: Site, now: float, job: JobSpec | None = None) -> None:
        self._site = msgspec.structs.replace(site, running=True)
        self._job = job
        self._due = [(now + item.interval_s, item) for item in during_job(plan)]
        self._epoll = select.epoll()
        self._running: tuple[DuringJob, CheckProcess, float] | None = None
        self._raised: dict[str, FaultEvent] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def pids(self) -> frozenset[int]:
        """The process of the check that runs now: a child of this process."""
        return frozenset() if self._running is None else frozenset({self._running[1].pid})

    def next_wake(self) -> float | None:
        if self._running is not None:
            return self._running[2]
        return min((due for due, _ in self._due), default=None)

    def handle_ready(self, now: float, at: float) -> list[FaultEvent]:
        """Take in what is there, and do what is due. `at`: seconds since the epoch, for the faults."""
        if self._epoll.closed:
            return []
        self._epoll.poll(0)
        faults: list[FaultEvent] = []
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
                faults = self._judge(item, finding, at)
        if self._running is None:
            ready = [entry for entry in self._due if entry[0] <= now]
            if ready:
                entry = min(ready, key=lambda entry: entry[0])
                self._due.remove(entry)
                item = entry[1]
                work = [(item.check.profile.door, item.check.params)]
                body = check_body(work, job=self._job, nodes=(self._site.node,), attempt=0, site=self._site)
                self._running = (item, CheckProcess(body, self._epoll), now + item.check.step.limit_s)
        return faults

    def _judge(self, item: DuringJob, finding: Finding | None, at: float) -> list[FaultEvent]:
        code = f"CHECK-{item.check.name.upper()}"
        if finding is None or finding.answer is Answer.INCONCLUSIVE:
            limit_s = item.check.step.limit_s
            text = finding.message if finding else f"{self._site.node}: no answer within {limit_s:g} s; it was stopped"
            return [self._event(f"{code}-INCONCLUSIVE", Assertion.ONCE, at, Severity.INFO, text)]
        raised = self._raised.get(code)
        if finding.answer is Answer.GOOD:
            if raised is None:
                return []
            del self._raised[code]
            return [msgspec.structs.replace(raised, assertion=Assertion.RECOVER, at=at, text=finding.message)]
        if raised is not None:
            return []
        harsh = any(action.kind >= ActionKind.AVOID for action in finding.actions)
        severity = Severity.MAJOR if harsh else Severity.MINOR
        device = finding.devices[0] if finding.devices else self._site.node
        event = self._event(code, Assertion.OCCUR, at, severity, finding.message, device)
        self._raised[code] = event
        return [event]

    def _event(
        self, code: str, assertion: Assertion, at: float, severity: Severity, text: str, device: str = ""
    ) -> FaultEvent:
        return FaultEvent(
            device=device or self._site.node,
            code=code,
            assertion=assertion,
            at=at,
            node=self._site.node,
            severity=severity,
            text=text,
            source="check",
        )

    def kill(self) -> None:
        """End the check that runs, and run none any more."""
        if self._running is not None:
            self._running[1].close()
            self._running = None
        self._due.clear()
        self._epoll.close()
