"""The owner's side of a job: what judges it. Events are journaled, handled by the gang, and acted on.

What looks at a machine is the node's side (`loop/node.py`). A link (`wire/`) joins the two; on one machine it is a
function call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.loop.aside import Aside
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
from holdfast.model.commands import Report
from holdfast.model.decisions import JobReport
from holdfast.record.local_time import local
from holdfast.wire.messages import Moved, ReadFaults, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.decide.roundup import Roundup
    from holdfast.loop.order import Launch
    from holdfast.loop.records import Records
    from holdfast.reactor import Reactor
    from holdfast.record.places import JobPlace
    from holdfast.wire.link import ToNodes, Word


class OwnerSide:
    """Carries one job from its submission to its report. `spare_time`: see `Aside`."""

    def __init__(
        self,
        launch: Launch,
        place: JobPlace,
        reactor: Reactor,
        link: ToNodes,
        records: Records,
        spare_time: Callable[[float], Iterator[object]],
        say: Callable[[str], None],
    ) -> None:
        # Owner and agent share this process and die together: nothing is silent, and nothing is acknowledged.
        self._owner = Owner(Gang(launch.catalogue))
        self._gang = self._owner.gang
        self._reactor = reactor
        self._link = link
        self._say = say
        self._records = records
        self.aside = Aside(
            launch,
            place,
            reactor,
            self._gang,
            spare_time,
            report=self.report,
            read_faults=lambda: self._send_all(ReadFaults()),
            say=say,
        )
        self._nodes: tuple[str, ...] = ()
        self._roundup = self._of_many() if launch.spec.nodes.many else None
        self._events: deque[ev.Event] = deque()
        self._finished: JobReport | None = None

    # ------------------------------------------------------------------------------------------ a job's life

    def submit(self, job: ev.JobSubmitted) -> None:
        """The job begins, on these nodes."""
        self._nodes = tuple(node.name for node in job.nodes)
        self._reactor.deadlines(self._owner.next_wake, self._owner.due)
        self.take((job,))

    def run(self) -> JobReport:
        """Until the job's one report is final. Returns it; a bug of ours is raised."""
        while self._finished is None:
            self._reactor.wait(self.take)
        return self._finished

    def close(self) -> None:
        self.aside.close()
        self._records.close()

    # ------------------------------------------------------------------------------------------ events in

    def report(self, word: Word, node: str = "") -> None:
        """A node has something to say. It is handled before the reactor waits again.

        `node`: whose connection it came on; empty where there is one node.
        """
        if isinstance(word, Report):
            heard = self._owner.hear(word, self._reactor.now())
            if heard is not None:
                self._events.append(heard)
        else:
            whole = word if self._roundup is None else self._roundup.hear(node, word, self._reactor.now())
            if whole is not None:
                self._events.append(whole)

    def take(self, events: Iterable[ev.Event] | None) -> None:
        """What one callback has led to. A death with evidence of its own stops the others before the next callback."""
        for event in events or ():
            self._events.append(event)
            self._digest()
        self._digest()

    def _digest(self) -> None:
        while self._events:
            event = self._events.popleft()
            now = self._reactor.now()
            event, before = self._records.write(event, now), self._gang.phase
            self._owner.expect(event, now)
            actions = self._gang.handle(event, now)
            if self._gang.phase is not before:
                self._moved()
                if self._gang.phase is Phase.RUNNING:
                    self.aside.rehearse(now)
            for action in actions:
                self._act(action, now)
            if self._roundup is not None and isinstance(event, ev.NodeSilent | ev.NodeFenced | ev.NodeLeft):
                self._events.extend(self._roundup.gone(event.node))

    # ------------------------------------------------------------------------------------------ actions out

    def _act(self, action: Action, now: float) -> None:
        match action:
            case Send():
                self._link.send(action.node, action.command)
            case RunChecks() | CollectEvidence():
                self._moved()
                self._ask(action, now)
            case Secure():
                trouble = self._records.secure()
                self._events.append(ev.JournalSecured(attempt=action.attempt, trouble=trouble, cause=action.cause))
            case RecordAttempt():
                self._records.attempt(action.record)
                self._send_all(Recorded(record=action.record))
            case FinishJob():
                self._records.finish(action.report, now)
                self._finished = action.report
            case Say():
                self._say(action.text)
            case Avoid():
                verb = "is" if len(action.names) == 1 else "are"
                self._say(f"{', '.join(action.names)} {verb} left out from now on: {action.reason}")
                self._moved()
            case _:
                assert_never(action)

    def _of_many(self) -> Roundup:
        """What makes one answer of those of several nodes."""
        from holdfast.decide.roundup import Roundup  # one node answers for itself

        roundup = Roundup()
        self._reactor.deadlines(roundup.next_wake, roundup.due)
        return roundup

    def _ask(self, question: RunChecks | CollectEvidence, now: float) -> None:
        if self._roundup is None:
            self._send_all(question)
            return
        if isinstance(question, CollectEvidence):
            zone = local(self._gang.view().started_at)
            question = replace(question, evidence=replace(question.evidence, utc_offset_s=zone))
        for node, part in self._roundup.ask(question, now):
            self._link.send(node, part)

    def _moved(self) -> None:
        self._send_all(Moved(view=self._gang.view()))

    def _send_all(self, request: RunChecks | CollectEvidence | Moved | ReadFaults | Recorded) -> None:
        for node in self._nodes:
            self._link.send(node, request)
