"""What a node does for a job once its agent was let in: its side of the job, its logs, its answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.model.actions import CollectEvidence
from holdfast.node.agent.log_writer import LogProcess
from holdfast.node.agent.node_answers import NodeAnswers
from holdfast.node.agent.node_link import NodeLink
from holdfast.node.explain_warmup import ExplainWarmup
from holdfast.node.node_side import NodeSide
from holdfast.wire.node_messages import Moved

if TYPE_CHECKING:
    from holdfast.act.console import Console
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.node.agent.end_report import EndReporter
    from holdfast.node.agent.owner_connection import OwnerConnection
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace
    from holdfast.wire.link_interface import Request
    from holdfast.wire.node_messages import Welcome

#: How long a disk may take at the end for what it has not taken so far.
LOGS_S = 5.0


class AdmittedNode:
    """From the first welcome to the node's end; connections come and go meanwhile. `welcome`: the last one."""

    def __init__(
        self,
        launch: LaunchSpec,
        place: JobPlace,
        welcome: Welcome,
        *,
        boot: int,
        clock: Clock,
        reactor: Reactor,
        dialling: OwnerConnection,
        farewell: EndReporter,
        stdout: Console,
        stderr: Console,
        say: Callable[[str], None],
    ) -> None:
        """`launch` is the owner's job as this node carries it out. Raises OSError."""
        timers, now = launch.spec.timers, reactor.now()
        self._reactor = reactor
        self._dialling = dialling
        self.welcome = welcome
        self._welcome_at = now
        self.agent = Agent(welcome.node, boot, lease_s=timers.lease_s, beat_s=timers.beat_s)
        self.link = NodeLink(dialling, welcome.node)
        self.answers = NodeAnswers(reactor, place, welcome.node, dialling.send)
        self._logs = LogProcess(reactor, say, launch.rotation)
        reader, self._to_node = os.pipe()
        self._node = NodeSide(
            launch,
            place,
            replace(dialling.node, name=welcome.node),
            agent=self.agent,
            clock=clock,
            reactor=reactor,
            link=self.link,
            # With --json and --events our stdout holds JSON and nothing else.
            stdout=stderr if launch.prints_json else stdout,
            stderr=stderr,
            guard_fd=reader,
            write_agg=farewell.write_agg,
            say=say,
            logs=self._logs,
        )
        self.link.meet = self._node.meet
        self._node.open(now, knows_faults=True)
        self._rehearsal = ExplainWarmup(lambda: self._node.running is not None, self._node.listen, say)
        reactor.deadlines(self._rehearsal.next_wake, self._rehearsal.tick)

    def welcomed(self, welcome: Welcome, now: float) -> None:
        """The owner has let the agent in, for the first time or after a connection that broke."""
        self.welcome, self._welcome_at = welcome, now
        self.answers.forget()
        self.link.connected()
        # An owner that has just come back knows nothing of this node, and the lease goes on only when it answers.
        self.agent.next_beat = now

    def asked(self, request: Request, now: float) -> None:
        """The owner asks for something."""
        todo = self.link.asked(request)
        if isinstance(todo, CollectEvidence):
            # It reads the logs: a disk that does not take them would not give them back either.
            self._logs.when_written(lambda now: self._node.take(todo), now)
        else:
            self._node.take(todo)
        if isinstance(request, Moved):
            self.answers.moved(request.view)
            if request.view.running is not None:
                self._rehearsal.begin(now)

    def signalled(self, number: int, typed: bool) -> None:
        """The node's `holdfast run` got a signal."""
        os.write(self._to_node, bytes((number, typed)))

    @property
    def acts_by(self) -> float | None:
        """When the workers are ended, unless the owner is heard: where this process cannot, its guard does it."""
        agent = self.agent
        return agent.lease.until if agent.crew.alive() and not agent.stopping.killed else None

    @property
    def lease_ends(self) -> float:
        """When the lease ends, or ended, that this agent had last."""
        last = self.link.acknowledged_at
        begun = self._welcome_at if last is None else max(last, self._welcome_at)
        return begun + self.welcome.spec.timers.lease_s

    def close(self) -> None:
        """Nothing of the job is left behind."""
        self.answers.close()
        self._node.close()
        # What is closed must not be called any more: the last words and the last logs are all that is left to do.
        self._reactor.only({self._dialling.fd, self._logs.fd})
        self._logs.close(LOGS_S)
