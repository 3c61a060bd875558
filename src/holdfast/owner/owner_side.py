"""The owner's side of a job: it journals each event, the gang judges it, and the owner carries out the result.

The node's side (`node/node_side.py`) watches a machine. A link (`wire/`) joins the two; on one machine it is a
function call.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.model import actions as do
from holdfast.model import events as ev
from holdfast.model.decisions import JobReport
from holdfast.model.gang_protocol import Report
from holdfast.owner.external_events import ExternalEvents
from holdfast.owner.owner_background import OwnerBackground
from holdfast.platforms.platform_registry import watch_of
from holdfast.wire.link_interface import Seen
from holdfast.wire.node_messages import Moved, ReadFaults, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.owner.job_records import JobRecords
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace
    from holdfast.wire.link_interface import NodesLink, Word


class OwnerSide:
    """Runs one job from its submission to its report.

    `link` reaches the nodes. `records`: the journal and the reports. `spare_time`: see `OwnerBackground`. `say`
    prints a message. `out` writes lines to stdout. `owner`: None if owner and node share a process; then no node
    falls silent, and no report is acknowledged.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        place: JobPlace,
        reactor: Reactor,
        link: NodesLink,
        records: JobRecords,
        spare_time: Callable[[float], Iterator[object]],
        say: Callable[[str], None],
        owner: Owner | None = None,
        out: Callable[[str, float], None] | None = None,
    ) -> None:
        self._owner = owner or Owner(Gang(launch.catalogue))
        self._gang = self._owner.gang
        #: Returns the gang now; each call costs time for every rank.
        self.view = self._gang.view
        self._reactor = reactor
        self._link = link
        self._say = say
        self._records = records
        self.aside = OwnerBackground(
            launch,
            place,
            reactor,
            self._gang,
            spare_time,
            report=self.report,
            read_faults=lambda: link.send_all(ReadFaults()),
            say=say,
        )
        self._to_answer: list[Report] = []
        self._events: deque[ev.Event] = deque()
        watch = watch_of(launch.spec, reactor, say, os.environ)
        self.outside = ExternalEvents(reactor, watch, place, say, launch, out, lambda: records.unsaved_bytes)
        self._finished: JobReport | None = None

    # ------------------------------------------------------------------------------------------ lifetime

    def begin(self, first: Iterable[ev.Event], undone: Iterable[do.Action] = ()) -> None:
        """Begin the job, or continue it under a new owner. `undone`: actions that the earlier owner may not
        have done.
        """
        earlier = self._gang.ended()
        for action in undone:
            self._act(action, self._reactor.now())
        self._reactor.deadlines(self._owner.next_wake, self._owner.due)
        self.take(first)
        self.take(self.outside.begin(self.view, self._reactor.now(), earlier, self._owner.heard_at))

    def run(self) -> JobReport | None:
        """Run until the job's report is final, and return it; None: the job goes on in another run."""
        while self._finished is None and self.outside.asked is None and not self.outside.handed_over:
            self._reactor.wait(self.take)
        self.outside.finish(self._finished, self.take)
        return self._finished

    def close(self) -> None:
        self.outside.close()
        self.aside.close()
        self._records.close()

    # ------------------------------------------------------------------------------------------ events in

    def report(self, word: Word) -> None:
        """Queue a node's message; the owner handles it before the reactor waits again."""
        if isinstance(word, Report):
            if (heard := self._owner.hear(word, self._reactor.now())) is not None:
                self._events.append(heard)
            self._to_answer.append(word)
        elif not isinstance(word, Seen):  # a `Seen` is an answer for `NodeQueries`
            self._events.append(word)

    def take(self, events: Iterable[ev.Event] | None) -> None:
        """Handle the results of one callback, so that a worker's error stops the others before the next callback."""
        for event in events or ():
            self._events.append(event)
            self._digest()
        for event in self.outside.released(self._reactor.now()):
            self._events.append(event)
            self._digest()
        self._digest()
        heard, self._to_answer = self._to_answer, []
        for report in heard:
            for action in self._owner.answer(report):
                self._act(action, self._reactor.now())

    def _digest(self) -> None:
        while self._events:
            event = self._events.popleft()
            now = self._reactor.now()
            if self.outside.holds(event, now):
                continue
            event, before = self._records.write(event, now), self._gang.phase
            self._owner.expect(event, now)
            actions = self._gang.handle(event, now)
            if self._gang.phase is not before:
                self._moved()
                if self._gang.phase is Phase.RUNNING:
                    self.aside.rehearse(now)
            for action in actions:
                self._act(action, now)
            self._events.extend(self.outside.follows(event, self._gang.attempt, now))

    # ------------------------------------------------------------------------------------------ actions out

    def _act(self, action: do.Action, now: float) -> None:
        match action:
            case do.Send():
                self._link.send(action.node, action.command)
            case do.RunChecks() | do.CollectEvidence() | do.RunHooks():
                self._moved()
                self._link.send_all(action)
            case do.Secure():
                self._events.extend(self.outside.secured(action, self._records.secure()))
            case do.RecordAttempt():
                self._records.attempt(action.record)
                self.outside.recorded(action.record)
                self._link.send_all(Recorded(record=action.record))
            case do.FinishJob():
                self._records.finish(action.report, now)
                self._finished = action.report
            case do.Requeue():
                self.outside.requeue(action, self._gang.attempt)
            case do.Say():
                self._say(action.text)
            case do.Avoid():
                self._say(f"excluding {', '.join(action.names)}: {action.reason}")
                self._moved()
            case _:
                assert_never(action)

    def _moved(self) -> None:
        self.outside.moved(self.view)
        self._link.send_all(Moved(view=self._gang.view()))
