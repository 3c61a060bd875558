"""The one place the stations meet.

Facts come in from processes, pipes, signals, the control socket and checks; each becomes an event; every event is
written to the journal, then handled by the gang, then acted on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from holdfast.act.local import Local
from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.explain import read_workers
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
from holdfast.reactor import Reactor
from holdfast.record.journal import Journal

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue


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
        reactor: Reactor,
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
        self._reactor = reactor
        self.platform: Local | None = None
        self._journal = journal
        self._job_id = job_id
        self._agent = agent
        self._checker = checker
        self._collect = collect
        self._catalogue = catalogue
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
        self._reactor.deadlines(self._agent.next_wake, lambda now: self._perform(self._agent.tick(now), now))
        self._reactor.deadlines(self._owner.next_wake, self._owner.due)
        self.post(submitted)
        self._digest()
        while self._finished is None:
            self._reactor.wait(self._take)
        return self._finished

    def post(self, event: ev.Event) -> None:
        """Put an event in line. It is journaled, handled and acted on before the supervisor waits again."""
        self._events.append(event)

    def _take(self, events: Iterable[ev.Event] | None) -> None:
        """What one callback has led to. A death with evidence of its own stops the others before the next callback."""
        for event in events or ():
            self._events.append(event)
            self._digest()
        self._digest()

    def _digest(self) -> None:
        while self._events:
            event = self._events.popleft()
            now = self._reactor.now()
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
        completed = self.gang.view().completed
        try:
            evidence = self._collect(action.evidence, completed)
        except Exception as error:  # a bug in reading logs must cost neither the report nor the next attempt
            self._say(f"a bug of holdfast: evidence is incomplete: {type(error).__name__}: {error}")
            evidence = action.evidence
        self.last_evidence = evidence
        if not completed:
            # Logs stay on their node: what travels, and is journaled, is what their words say.
            evidence = read_workers(without_secrets(evidence), self._catalogue)
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
