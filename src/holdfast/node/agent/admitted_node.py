"""A node's part in a job after the owner has admitted its agent: it runs workers, writes logs and answers the owner's
requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.model.actions import CollectEvidence
from holdfast.node.agent.log_requests import LogReader
from holdfast.node.agent.log_writer import LogProcess
from holdfast.node.agent.node_link import NodeLink
from holdfast.node.agent.remote_verbs import VerbRunner
from holdfast.node.explain_warmup import ExplainWarmup
from holdfast.node.node_side import NodeSide
from holdfast.wire.node_messages import ForgetLog, Moved, NodeAnswer, Question, ReadLog, RunVerb, VerbDone

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.node.agent.end_report import EndReporter
    from holdfast.node.agent.owner_connection import OwnerConnection
    from holdfast.node.node_part import NodePart
    from holdfast.observe.output_places import OutputPlaces
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace
    from holdfast.wire.link_interface import Request
    from holdfast.wire.node_messages import Welcome


#: Seconds that writing the remaining logs may take at the end.
LOGS_S = 5.0


class AdmittedNode:
    """This node's part of the job, from the owner's first welcome until the node leaves or the job ends. The connection
    to the owner may break and come back in between.

    `welcome`: the owner's latest welcome message.
    """

    def __init__(
        self,
        part: NodePart,
        out: OutputPlaces,
        welcome: Welcome,
        *,
        clock: Clock,
        reactor: Reactor,
        dialling: OwnerConnection,
        end_reporter: EndReporter,
    ) -> None:
        """Set up this node's part of the job. Raises OSError.

        `part`: the owner's job with this node's commands and directories. `out`: the terminal. `dialling`: the
        connection to the owner. `end_reporter`: writes the end report and the exit files.
        """
        timers, now = part.launch.spec.timers, reactor.now()
        self._reactor = reactor
        self._dialling = dialling
        self.welcome = welcome
        self._welcome_at = now
        self.agent = Agent(welcome.node, dialling.agent.boot, lease_s=timers.lease_s, beat_s=timers.beat_s)
        self.link = NodeLink(dialling, welcome.node)
        self.answers = NodeAnswers(reactor, part.place, welcome.node, dialling.send)
        self._logs = LogProcess(reactor, out.say, part.launch.rotation)
        reader, self._to_node = os.pipe()
        self._node = NodeSide(
            part,
            replace(out, logs=self._logs),
            agent=self.agent,
            clock=clock,
            reactor=reactor,
            link=self.link,
            write_agg=end_reporter.write_agg,
        )
        self._node.watch_guard(reader)
        self.link.meet = self._node.meet
        self._node.open(now, knows_faults=True)
        self._rehearsal = ExplainWarmup(lambda: self._node.running is not None, self._node.listen, out.say)
        reactor.deadlines(self._rehearsal.next_wake, self._rehearsal.tick)

    def welcomed(self, welcome: Welcome, now: float) -> None:
        """Handle the owner's welcome, which arrives after each connection."""
        self.welcome, self._welcome_at = welcome, now
        self.answers.forget()
        self.link.connected()
        # Send a report at once. A restarted owner has no state of this node, and only its acknowledgement renews the
        # lease.
        self.agent.next_beat = now

    def asked(self, request: Request, now: float) -> None:
        """Carry out a request from the owner."""
        todo = self.link.asked(request)
        if isinstance(todo, CollectEvidence):
            # Wait until all output is in the log files, because the collector reads the evidence from them.
            self._logs.when_written(lambda now: self._node.take(todo), now)
        else:
            self._node.take(todo)
        if isinstance(request, Moved):
            self.answers.moved(request.view)
            if request.view.running is not None:
                self._rehearsal.begin(now)

    def signalled(self, number: int, typed: bool) -> None:
        """Forward a signal that this node's guard has received (SIGUSR1, SIGUSR2 or SIGWINCH) to the workers. `typed`:
        the user typed it at the terminal. `number`: the signal.
        """
        os.write(self._to_node, bytes((number, typed)))

    @property
    def acts_by(self) -> float | None:
        """Return when the lease ends and this process kills its workers; None if no worker lives. If this process
        hangs, the guard kills the workers then.
        """
        agent = self.agent
        return agent.lease.until if agent.workers.alive() and not agent.stopping.killed else None

    @property
    def lease_ends(self) -> float:
        """Return when this agent's latest lease ends, which may be in the past."""
        last = self.link.acknowledged_at
        begun = self._welcome_at if last is None else max(last, self._welcome_at)
        return begun + self.welcome.spec.timers.lease_s

    def close(self) -> None:
        """Stop and close every part. No process or descriptor of the job remains."""
        self.answers.close()
        self._node.close()
        # Keep only the connection and the process that writes logs, because the reactor must not call closed parts.
        self._reactor.only({self._dialling.fd, self._logs.fd})
        self._logs.close(LOGS_S)


class NodeAnswers:
    """Answers the owner's requests to read a log or to run a command on this node.

    `place`: the directory of this node's part of the job. `node`: this node's name. `send`: sends an answer. A broken
    connection loses it.
    """

    def __init__(self, reactor: Reactor, place: JobPlace, node: str, send: Callable[[NodeAnswer], object]) -> None:
        self._send = send
        self._logs = LogReader(reactor, place.logs, node, send)
        self._verbs = VerbRunner(reactor, place.home, os.environ)

    def answer(self, question: Question) -> None:
        """Answer a request from the owner to read a log or to run a command."""
        match question:
            case ReadLog():
                self._logs.read(question)
            case ForgetLog():
                self._logs.forget(question.id)
            case RunVerb():
                self._verbs.run(question.verb, question.words, partial(self._done, question.id))
            case _:
                assert_never(question)

    def forget(self) -> None:
        """Drop all unanswered requests, because the connection broke. The owner sends them again."""
        self._logs.close()

    def moved(self, view: GangView) -> None:
        """Look for new log output for waiting readers, because the gang's phase has changed."""
        self._logs.moved(view)

    def close(self) -> None:
        self._logs.close()
        self._verbs.close()

    def _done(self, number: int, ok: bool, text: str) -> None:
        self._send(VerbDone(id=number, ok=ok, text=text))
