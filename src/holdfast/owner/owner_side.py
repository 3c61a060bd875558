"""The owner's side of a job. It writes each event to the journal, lets the gang decide, and performs the gang's
actions.

The node's side (`node/node_side.py`) runs a machine's workers. A link (`wire/`) joins the two sides; on one machine the
link is a function call.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, assert_never

import msgspec

from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.decide.phases import Phase
from holdfast.model import actions as do
from holdfast.model import events as ev
from holdfast.model.decisions import JobReport
from holdfast.model.gang_protocol import Report
from holdfast.node.explain_warmup import ExplainWarmup
from holdfast.owner.control_server import ControlServer
from holdfast.owner.external_events import ExternalEvents
from holdfast.platforms.platform_registry import watch_of
from holdfast.wire.link_interface import Seen
from holdfast.wire.node_messages import Moved, ReadFaults, Recorded

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.owner.job_outputs import JobOutputs
    from holdfast.owner.job_records import JobRecords
    from holdfast.reactor import Reactor
    from holdfast.wire.link_interface import NodesLink, Word


class OwnerPrinter(msgspec.Struct, frozen=True):
    """The functions by which the owner writes to the terminal."""

    #: Prints a message for the user on stderr.
    say: Callable[[str], None]
    #: Writes a line to stdout, from the line and the time.
    out: Callable[[str, float], None]


class OwnerSide:
    """Runs one job from its submission to its report.

    `link`: reaches the nodes. `records`: the journal and the reports. `spare_time(now)`: yields small steps of other
    work for times when the owner is idle. `owner`: the owner of a multi-node job. None: owner and node share a process,
    so no node can fall silent.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        reactor: Reactor,
        link: NodesLink,
        records: JobRecords,
        spare_time: Callable[[float], Iterator[object]],
        printer: OwnerPrinter,
        owner: Owner | None = None,
    ) -> None:
        self._owner = owner or Owner(Gang(launch.catalogue))
        self._gang = self._owner.gang
        #: Returns the gang's present state. A call is slow in a large gang, because it looks at every rank.
        self.view = self._gang.view
        self._reactor = reactor
        self._link = link
        self._say = say = printer.say
        self._records = records
        self._spare_time = spare_time
        #: Imports the code that explains failures while the job runs well; None until all workers have been up once.
        self._warmup: ExplainWarmup | None = None
        #: Serves other holdfast commands, such as `holdfast stop`.
        self.control = ControlServer(
            reactor, records.place, launch, self.report, lambda: link.send_all(ReadFaults()), say
        )
        self._to_answer: list[Report] = []
        self._events: deque[ev.Event] = deque()
        watch = watch_of(launch.spec, reactor, say, os.environ)
        self.outside = ExternalEvents(reactor, watch, records.place, say, self._outputs(launch, printer))
        self._finished: JobReport | None = None

    def _outputs(self, launch: LaunchSpec, printer: OwnerPrinter) -> JobOutputs | None:
        if not launch.as_events and launch.metrics_path is None and launch.notices is None:
            return None
        from holdfast.owner.job_outputs import JobOutputs  # imported late, because most runs have no such outputs

        records = self._records
        return JobOutputs(launch, records.place, self._reactor, printer.say, printer.out, lambda: records.unsaved_bytes)

    # ------------------------------------------------------------------------------- begin and end of the job

    def begin(self, first: Iterable[ev.Event], undone: Iterable[do.Action] = ()) -> None:
        """Begin the job, or continue it under a new owner. `first`: the owner's first events. `undone`: the actions
        that the earlier owner may have left undone.
        """
        earlier = self._gang.ended()
        for action in undone:
            self._act(action, self._reactor.now())
        self._reactor.deadlines(self._owner.next_wake, self._owner.due)
        self.take(first)
        self.take(self.outside.begin(self.view, self._reactor.now(), earlier, self._owner.heard_at))

    def run(self) -> JobReport | None:
        """Run until the job's report is final, and return the report. Return None if the job goes on in another run."""
        while self._finished is None and self.outside.asked is None and not self.outside.handed_over:
            self._reactor.wait(self.take)
        self.outside.finish(self._finished, self.take)
        return self._finished

    def close(self) -> None:
        self.outside.close()
        self.control.close()
        self._records.close()

    # -------------------------------------------------------------------------------------- events that come in

    def report(self, word: Word) -> None:
        """Queue a message of a node. The owner handles it before the reactor waits again."""
        if isinstance(word, Report):
            if (heard := self._owner.hear(word, self._reactor.now())) is not None:
                self._events.append(heard)
            self._to_answer.append(word)
        elif not isinstance(word, Seen):  # `NodeQueries` handles `Seen`, a node's answer to a query
            self._events.append(word)

    def take(self, events: Iterable[ev.Event] | None) -> None:
        """Handle the events from one callback of the reactor before the next callback runs. A worker's error then stops
        the other workers soon.
        """
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
                    self._warm_up(now)
            for action in actions:
                self._act(action, now)
            self._events.extend(self.outside.follows(event, self._gang.attempt, now))

    def _warm_up(self, now: float) -> None:
        """Begin to import the code that explains failures. All workers are up, and the owner is idle."""
        if self._warmup is None:
            self._warmup = ExplainWarmup(lambda: self._gang.phase is Phase.RUNNING, self._spare_time, self._say)
            self._reactor.deadlines(self._warmup.next_wake, self._warmup.tick)
        self._warmup.begin(now)

    # ---------------------------------------------------------------------------------------- performing actions

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
