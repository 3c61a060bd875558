"""The one place the stations meet, and the one place that waits.

Facts come in from processes, pipes, signals, the control socket and checks; each becomes an event; every event is
written to the journal, then handled by the gang, then acted on. Time enters here and is passed in everywhere else.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from holdfast.act.local import Local
from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.loop.clock import Clock
from holdfast.model import events as ev
from holdfast.model.actions import (
    Action,
    Avoid,
    CollectEvidence,
    FinishJob,
    RecordAttempt,
    RunChecks,
    Say,
    Secure,
    Send,
)
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.processes import Fact, Instruction, SendReport
from holdfast.model.secret_words import may_hold_anywhere
from holdfast.record.journal import Journal

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue


LONGEST_WAIT_S = 86_400.0


class Station(Protocol):
    """Something with fds in the selector (registered with itself as `data`) that turns readiness into events."""

    def ready(self, fd: int, now: float) -> list[ev.Event]: ...

    def next_wake(self) -> float | None: ...

    def tick(self, now: float) -> list[ev.Event]: ...

    def close(self) -> None: ...


class Checker(Protocol):
    """Whatever runs pre-checks."""

    def begin(self, order: RunChecks, now: float) -> list[ev.Event]: ...


class Supervisor:
    """Carries one job from its submission to its report."""

    def __init__(
        self,
        *,
        journal: Journal,
        job_id: str,
        selector: selectors.BaseSelector,
        clock: Clock,
        agent: Agent,
        checker: Checker,
        collect: Callable[[AttemptEvidence, bool], AttemptEvidence],
        say: Callable[[str], None],
        on_phase: Callable[[Phase], None],
        on_record: Callable[[AttemptRecord], None],
        on_finish: Callable[[JobReport], None],
        catalogue: Catalogue | None = None,
    ) -> None:
        # Owner and agent share this process and die together: nothing is silent, and nothing is acknowledged.
        self._owner = Owner(Gang(catalogue))
        self.gang = self._owner.gang
        self.clock = clock
        self.platform: Local | None = None
        self.guard: object = None
        """What the guard's fd is registered with."""
        self._stations: list[Station] = []
        self._routes: dict[int, Station] = {}
        self._journal = journal
        self._job_id = job_id
        self._selector = selector
        self._agent = agent
        self._checker = checker
        self._collect = collect
        self._say = say
        self._on_phase = on_phase
        self._on_record = on_record
        self._on_finish = on_finish
        self._events: deque[ev.Event] = deque()
        self._finished: JobReport | None = None
        self.last_evidence = AttemptEvidence()
        """What the last attempt was explained from."""

    # ------------------------------------------------------------------------------------------ the loop

    def run(self, submitted: ev.JobSubmitted) -> JobReport:
        """Until the job's one report is final. Returns it; a bug of ours is raised."""
        self.post(submitted)
        while True:
            self._digest()
            if self._finished is not None:
                return self._finished
            self._wait()

    def attach(self, station: Station, *sources: object) -> None:
        """Have `station` asked for its wakes and ticks, and for every fd registered with one of `sources` as data."""
        self._stations.append(station)
        for source in sources:
            self.route(source, station)

    def route(self, source: object, station: Station) -> None:
        """Every fd registered with `source` as data is `station`'s from now on."""
        self._routes[id(source)] = station

    def post(self, event: ev.Event) -> None:
        """Put an event in line. It is journaled, handled and acted on before the supervisor waits again."""
        self._events.append(event)

    def close(self) -> None:
        """Give back what the stations hold."""
        for station in self._stations:
            station.close()

    def _digest(self) -> None:
        while self._events:
            event = self._events.popleft()
            now = self.clock.now()
            # The command line of a job is needed as it is; everything else is masked for the journal and for itself.
            kept = without_secrets(event)
            event = event if isinstance(event, ev.JobSubmitted) else kept
            self._journal.append(self._job_id, now, kept)
            if news := self._journal.take_news():
                self._say(news)
            before = self.gang.phase
            actions = self._owner.take(event, now)
            if self.gang.phase is not before:
                self._on_phase(self.gang.phase)
            for action in actions:
                self._act(action, now)

    def _wait(self) -> None:
        """The only place where holdfast waits: for the first fd that is ready or the first moment that is due."""
        wakes = [self._owner.next_wake(), self._agent.next_wake()]
        wakes += [station.next_wake() for station in self._stations]
        wake = min((at for at in wakes if at is not None), default=None)
        # Bounded: epoll takes no more than 24 days, and a limit may be longer.
        timeout = None if wake is None else min(max(0.0, wake - self.clock.now()), LONGEST_WAIT_S)
        ready = self._selector.select(timeout)
        # A signal that asks for the end comes before the deaths that the same signal has caused, and deaths before the
        # rest: a noisy worker's output must not delay the stop of the others.
        for key, _ in sorted(ready, key=lambda entry: self._turn(entry[0].data)):
            # An fd may have been closed by what an earlier one of this batch led to.
            if self._selector.get_map().get(key.fd) is not key:
                continue
            # The moment is taken anew: a report that seems older than what the last fd led to would teach nothing.
            self._events.extend(self._routes[id(key.data)].ready(key.fd, self.clock.now()))
            # A death with evidence of its own stops the others before anything else of the batch is looked at.
            self._digest()
        now = self.clock.now()
        for station in self._stations:
            due = station.next_wake()
            if due is not None and due <= now:
                self._events.extend(station.tick(now))
        due = self._agent.next_wake()
        if due is not None and due <= now:
            self._perform(self._agent.tick(now), now)
        self._events.extend(self._owner.due(now))

    def _turn(self, source: object) -> int:
        return 0 if source is self.guard else 1 if source is self.platform else 2

    # ------------------------------------------------------------------------------------------ acting

    def _act(self, action: Action, now: float) -> None:
        match action:
            case RunChecks():
                self._events.extend(self._checker.begin(action, now))
            case Send():
                self._perform(self._agent.obey(action.command, now), now)
            case Secure():
                self._events.append(ev.JournalSecured(attempt=action.attempt, trouble=self._journal.secure()))
            case CollectEvidence():
                self._events.append(self._collected(action))
            case RecordAttempt():
                self._journal.record_attempt(self._job_id, action.record)
                self._on_record(action.record)
            case FinishJob():
                self._journal.finish(action.report, now=now)
                self._on_finish(action.report)
                self._finished = action.report
            case Say():
                self._say(action.text)
            case Avoid():
                verb = "is" if len(action.names) == 1 else "are"
                self._say(f"{', '.join(action.names)} {verb} left out from now on: {action.reason}")
            case _:
                assert_never(action)

    def _collected(self, action: CollectEvidence) -> ev.EvidenceCollected:
        try:
            evidence = self._collect(action.evidence, self.gang.view().completed)
        except Exception as error:  # a bug in reading logs must cost neither the report nor the next attempt
            self._say(f"a bug of holdfast: evidence is incomplete: {type(error).__name__}: {error}")
            evidence = action.evidence
        self.last_evidence = evidence
        return ev.EvidenceCollected(attempt=action.attempt, evidence=evidence)

    def _perform(self, instructions: list[Instruction], now: float) -> None:
        """Have the machine do what the agent says; what follows from it at once goes straight back to the agent."""
        queue = deque(instructions)
        while queue:
            instruction = queue.popleft()
            if isinstance(instruction, SendReport):
                heard = self._owner.hear(instruction.report, now)
                if heard is not None:
                    self._events.append(heard)
                continue
            assert self.platform is not None
            for fact in self.platform.perform(instruction, now):
                queue.extend(self._agent.learn(fact, now))

    def learn(self, facts: list[Fact], now: float) -> None:
        """Facts about processes go to the agent, and what it says to do is done at once."""
        for fact in facts:
            self._perform(self._agent.learn(fact, now), now)


T = TypeVar("T")


def without_secrets(value: T) -> T:
    """`value` with the secrets in its texts masked. Most events hold none, and load no pattern."""
    if not may_hold_anywhere(value):
        return value
    from holdfast.explain.masking import masked  # a run without a suspicious word does without it

    return masked(value)
