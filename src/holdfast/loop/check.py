"""The door to pre-checks: plan them, run a round of them, watch some of them during a job.

`CheckRound` and `CheckWatch` never wait. Whoever waits (the supervisor, or `run_round` for the command line) polls
their `fileno()` up to `next_wake()` and calls `handle_ready(now)`. Every check runs in a forked process of its own.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any

import msgspec

from holdfast.decide.gate import Answered, Gate, GatePlan, Instruction, Kill, Progress, Start, Step, TimePassed
from holdfast.errors import BadUsage
from holdfast.loop import check_child
from holdfast.loop.check_process import CheckProcess, scout
from holdfast.model.base import Noun
from holdfast.model.checks import ActionKind, Answer, CheckChoice, CheckInfo, Finding, InconclusivePolicy, Site
from holdfast.model.events import ChecksFinished
from holdfast.model.faults import Assertion, FaultEvent, Severity
from holdfast.model.jobs import JobSpec
from holdfast.plugins import COMMON, DEFAULT, Profile, Shelf, validated

__all__ = [
    "CheckPlan",
    "CheckRound",
    "CheckWatch",
    "PlannedCheck",
    "Progress",
    "catalogue",
    "choices_from_text",
    "choices_from_value",
    "during_job",
    "plan_checks",
    "run_round",
]


class PlannedCheck(Noun, frozen=True, kw_only=True):
    """One check with everything settled: what to load, with which parameters, how long, how often."""

    profile: Profile
    params: dict[str, Any] = {}
    step: Step

    @property
    def name(self) -> str:
        return self.profile.info.name


class CheckPlan(Noun, frozen=True, kw_only=True):
    """The checks of a job, in order. Empty: DISABLED."""

    checks: tuple[PlannedCheck, ...] = ()

    @property
    def disabled(self) -> bool:
        return not self.checks


class DuringJob(Noun, frozen=True, kw_only=True):
    """A check of the plan that also runs during the job, every `interval_s` seconds."""

    check: PlannedCheck
    interval_s: float


def choices_from_text(text: str, where: str = "--checks") -> tuple[CheckChoice, ...]:
    """`disk,memory` or `disk:min_free=50GB;paths=/data,memory`: the value of `--checks`.

    Raises BadUsage on anything else.
    """
    choices: list[CheckChoice] = []
    for part in text.split(","):
        if not part.strip():
            continue
        name, _, rest = part.strip().partition(":")
        params: dict[str, Any] = {}
        for setting in rest.split(";") if rest else ():
            key, equals, value = setting.partition("=")
            if not equals or not key.strip():
                raise BadUsage(f"{where}: `{part.strip()}`: expected NAME:PARAMETER=VALUE;PARAMETER=VALUE")
            params[key.strip()] = value.strip()
        choices.append(CheckChoice(name=name, params=params))
    if not choices:
        raise BadUsage(f"{where}: expected names of checks, found nothing", hint="holdfast check --list")
    return tuple(choices)


def choices_from_value(value: object, where: str = "checks") -> tuple[CheckChoice, ...]:
    """A job file's `checks:` list: each entry a name, or `{name: {parameter: value}}`. `where` is the file and path.

    Raises BadUsage naming the entry.
    """
    if isinstance(value, str):
        return choices_from_text(value, where)
    if not isinstance(value, list | tuple):
        raise BadUsage(
            f"{where}: expected a list of checks, found {type(value).__name__}", hint="holdfast check --list"
        )
    choices: list[CheckChoice] = []
    for number, entry in enumerate(value):
        at = f"{where}[{number}]"
        if isinstance(entry, str):
            choices.append(CheckChoice(name=entry))
        elif isinstance(entry, dict) and len(entry) == 1:
            ((name, params),) = entry.items()
            if params is not None and not isinstance(params, dict):
                raise BadUsage(f"{at}.{name}: expected parameters as a mapping, found {type(params).__name__}")
            choices.append(CheckChoice(name=str(name), params={str(key): item for key, item in (params or {}).items()}))
        else:
            raise BadUsage(f"{at}: expected the name of a check, or one name with its parameters, found {entry!r}")
    return tuple(choices)


def plan_checks(
    choices: Sequence[CheckChoice] | None,
    *,
    plugins: Iterable[str | PathLike[str]] = (),
    timeout_s: float | None = None,
    inconclusive: InconclusivePolicy = InconclusivePolicy.WARN,
    where: str = "",
) -> CheckPlan:
    """Settle which checks run, before anything starts.

    `choices` None: the default set and whatever `plugins` bring; (): none. `timeout_s` bounds each check with its
    retries. Raises BadUsage on an unknown name or parameter (naming the nearest), and on a plugin that does not load.
    """
    shelf = Shelf(plugins, scout=scout)
    if choices is None:
        choices = (*DEFAULT, *(CheckChoice(name=name) for name in shelf.from_plugins))
    planned: list[PlannedCheck] = []
    for choice in choices:
        try:
            found = shelf.profile(choice.name)
        except BadUsage as error:
            raise BadUsage(f"{where}: {error.message}" if where else error.message, hint=error.hint) from None
        own = validated(found, choice.params, where)
        common = {key: value for key, value in choice.params.items() if key in COMMON and key not in own}
        limit_s = float(common.get("timeout", timeout_s if timeout_s is not None else found.info.limit_s))
        planned.append(
            PlannedCheck(
                profile=found,
                params=own,
                step=Step(
                    name=choice.name,
                    retries=int(common.get("retries", found.retries)),
                    interval_s=float(common.get("interval", found.interval_s)),
                    limit_s=limit_s,
                    alone=found.alone,
                    inconclusive=InconclusivePolicy(common.get("inconclusive") or found.inconclusive or inconclusive),
                ),
            )
        )
    return CheckPlan(checks=tuple(planned))


def catalogue(plugins: Iterable[str | PathLike[str]] = ()) -> list[CheckInfo]:
    """Every check that can be chosen, for `holdfast check --list`. An entry point that does not load is left out."""
    shelf = Shelf(plugins, scout=scout)
    found = []
    for name in shelf.names():
        try:
            found.append(shelf.profile(name, in_full=True).info)
        except BadUsage as error:
            found.append(CheckInfo(name=name, question=f"(cannot be loaded: {error.message})", source="entry point"))
    return found


class CheckRound:
    """One round of a job's checks. Poll `fileno()` until `next_wake()`; then `handle_ready(now)`; until `result()`."""

    def __init__(
        self,
        plan: CheckPlan,
        *,
        site: Site,
        now: float,
        attempt: int = 1,
        round: int = 1,  # noqa: A002 - the word of RunChecks and ChecksFinished
        nodes: Sequence[str] = (),
        job: JobSpec | None = None,
        deadline_s: float | None = None,
        needed: int = 1,
        keep_going: bool = False,
    ) -> None:
        self._plan = plan
        self._job, self._site, self._attempt = job, site, attempt
        self._nodes = tuple(nodes) or (site.node,)
        # The round answers before whoever asked gives it up.
        within = deadline_s - min(1.0, deadline_s / 10) if deadline_s is not None else None
        self._gate = Gate(
            GatePlan(
                attempt=attempt,
                round=round,
                nodes=self._nodes,
                steps=tuple(check.step for check in plan.checks),
                needed=needed,
                deadline_s=within,
                keep_going=keep_going,
            ),
            now,
        )
        self._epoll = select.epoll()
        self._running: dict[int, tuple[int, CheckProcess]] = {}
        self._follow(self._gate.start(now), now)

    def fileno(self) -> int:
        """Readable when a check has something to say."""
        return self._epoll.fileno()

    def next_wake(self) -> float | None:
        """When `handle_ready` is due even though nothing is readable; None: never, or the round is over."""
        return self._gate.next_wake()

    def handle_ready(self, now: float) -> None:
        """Take in what is there, and do what is due."""
        if self._epoll.closed:
            return
        self._epoll.poll(0)
        for number, (tried, process) in list(self._running.items()):
            process.advance()
            if not process.over:
                continue
            del self._running[number]
            finding = process.finding(self._plan.checks[number].name, self._site)
            process.close()
            finding = msgspec.structs.replace(finding, check=self._plan.checks[number].step.name)
            self._follow(self._gate.handle(Answered(step=number, tried=tried, finding=finding), now), now)
        wake = self._gate.next_wake()
        if wake is not None and wake <= now:
            self._follow(self._gate.handle(TimePassed(), now), now)
        if self._gate.finished() is not None:
            self.kill()

    def result(self) -> ChecksFinished | None:
        """The round's answer; None while it is CHECKING."""
        return self._gate.finished()

    def progress(self) -> list[tuple[Step, Progress, int, Finding | None]]:
        """Each check in order: where it stands, how often it ran, and its last answer."""
        return self._gate.progress()

    def pids(self) -> frozenset[int]:
        """The processes of this round: children of the caller that are nobody else's to reap."""
        return frozenset(process.pid for _, process in self._running.values())

    def kill(self) -> None:
        """End every check that runs, with its children. The round gives no answer after that unless it had one."""
        for _, process in self._running.values():
            process.close()
        self._running.clear()
        self._epoll.close()

    def _follow(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            match instruction:
                case Start():
                    check = self._plan.checks[instruction.step]
                    self._running[instruction.step] = (instruction.tried, self._fork(check))
                case Kill():
                    running = self._running.pop(instruction.step, None)
                    if running is not None:
                        running[1].close()

    def _fork(self, check: PlannedCheck) -> CheckProcess:
        return CheckProcess(
            _body(check, job=self._job, nodes=self._nodes, attempt=self._attempt, site=self._site), self._epoll
        )


def _body(
    check: PlannedCheck, *, job: JobSpec | None, nodes: Sequence[str], attempt: int, site: Site
) -> Callable[[int], None]:
    def body(fd: int) -> None:
        check_child.run(check.profile.door, check.params, job=job, nodes=nodes, attempt=attempt, site=site, fd=fd)

    return body


def run_round(round_: CheckRound, clock: Callable[[], float]) -> ChecksFinished:
    """Wait for a round to end: for callers that have nothing else to wait for. They die with an exception."""
    poll = select.poll()
    poll.register(round_.fileno(), select.POLLIN)
    try:
        while (answer := round_.result()) is None:
            wake = round_.next_wake()
            poll.poll(None if wake is None else max(0.0, (wake - clock()) * 1000 + 1))
            round_.handle_ready(clock())
        return answer
    finally:
        round_.kill()


def during_job(plan: CheckPlan) -> list[DuringJob]:
    """The checks of a plan that may also run during the job, with their intervals in seconds."""
    return [
        DuringJob(check=check, interval_s=check.profile.info.interval_s)
        for check in plan.checks
        if check.profile.info.during_job
    ]


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
                    finding = process.finding(item.check.name, self._site)
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
                body = _body(item.check, job=self._job, nodes=(self._site.node,), attempt=0, site=self._site)
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
