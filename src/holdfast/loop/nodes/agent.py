"""The agent of a node: it dials the owner, does what the owner asks, and ends its workers when no owner is left.

A connection that breaks means nothing by itself: the agent dials again, and state is repeated. What decides is the
lease (`decide/agent.py`): when it ends, the agent ends its workers; when no owner has come back a while later, the
agent leaves with a report of its own.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act.console import Console, open_consoles
from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.explain.owner_away import explain_owner_absent, explain_owner_lost
from holdfast.loop.node import NodeSide
from holdfast.loop.nodes.answers import NodeAnswers
from holdfast.loop.nodes.dialling import Dialling
from holdfast.loop.nodes.farewell import Farewell
from holdfast.loop.nodes.guard_words import GuardWords, from_node
from holdfast.loop.nodes.here import launch_here
from holdfast.loop.nodes.log_process import LogProcess
from holdfast.loop.nodes.node_link import NodeLink
from holdfast.loop.rehearsal import Rehearsal
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence
from holdfast.plain import own_lines
from holdfast.reactor import Reactor
from holdfast.record.places import JobPlace, part
from holdfast.wire.messages import Bye, Finished, Moved, Welcome

if TYPE_CHECKING:
    from holdfast.act.wards import Birth
    from holdfast.loop.order import Launch, NodesOrder
    from holdfast.wire.link import Request
    from holdfast.wire.messages import Question, Refused

_OF_THE_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
STOPS_ASKED = 2
"""So many signals ask the owner to stop the job; at the next one the node leaves by itself."""
NOTICE_S, NOTICE_EVERY_S = 2.0, 10.0
"""When a node that no owner has let in says so first, and how often it says what has changed."""
STOPPED_S = 5.0
"""How long an owner without a guard may take to stop the workers beside it, and to end the job."""
LOGS_S = 5.0
"""How long a disk may take at the end for what it has not taken so far."""
LAST_WORD_S = 2.0
"""How long the agent's last word may take to leave."""


def serve(
    launch: Launch,
    order: NodesOrder,
    clock: Clock,
    birth: Birth,
    *,
    agent_id: str,
    boot: int,
    port: int,
    owners_place: JobPlace | None,
) -> int:
    """This node's part of the job, in a process of its own; the exit status.

    `boot`: higher than that of any agent that this node had before. `owners_place`: of an owner on this node.
    """
    gc.enable()
    stdout, stderr = open_consoles()
    # The owner on this node listens on every address: loopback needs no name service.
    host = order.host if owners_place is None else "127.0.0.1"
    agent = _AgentProcess(launch, order, clock, birth, boot, owners_place, stdout, stderr)
    try:
        return agent.carry(host, port, agent_id)
    finally:
        stdout.drain()
        stderr.drain()


class _AgentProcess:
    """One node's part of one job."""

    def __init__(
        self,
        launch: Launch,
        order: NodesOrder,
        clock: Clock,
        birth: Birth,
        boot: int,
        owners_place: JobPlace | None,
        stdout: Console,
        stderr: Console,
    ) -> None:
        self._launch = launch
        self._order = order
        self._birth = birth
        self._owners_place = owners_place
        self._clock = clock
        self._stdout = stdout
        self._stderr = stderr
        self._reactor = Reactor(clock.now)
        self._boot = boot
        self._farewell = Farewell(
            launch,
            self._reactor.now,
            stdout,
            stderr,
            self._say,
            quiet=owners_place is not None or order.starter_fd is not None,
        )
        self._began = self._reactor.now()
        self._waits = True
        """For an owner that does not answer; no longer when what has started this node is gone."""
        self._notice_at = self._began + NOTICE_S
        self._noticed = ""
        self._welcome: Welcome | None = None
        self._welcome_at = 0.0
        self._link: NodeLink | None = None
        self._agent: Agent | None = None
        self._node: NodeSide | None = None
        self._logs: LogProcess | None = None
        self._rehearsal: Rehearsal | None = None
        self._stops = 0
        self._code: int | None = None
        self._last_word: Bye | ev.NodeLeft | None = None
        self._to_node = -1
        self._answers: NodeAnswers | None = None

    def carry(self, host: str, port: int, agent_id: str) -> int:
        """Until the node's part is over; the exit status. The owner is dialled at `host` and `port`."""
        self._dialling = Dialling(
            self._launch,
            self._order,
            self._reactor,
            self,
            boot=self._boot,
            agent_id=agent_id,
            host=host,
            port=port,
        )
        GuardWords(self._birth.fd, self._reactor, heard=self._heard, over=self._over, gone=self._gone)
        self._reactor.deadlines(self._next_wake, self._tick)
        if (starter := self._order.starter_fd) is not None:
            self._starter = self._reactor.watch(starter, self._starter_gone)
        try:
            while self._code is None:
                self._reactor.wait(self._take)
                acts_by = self._acts_by()
                self._birth.promise.make(acts_by)
                self._dialling.hurry(acts_by is not None)
        finally:
            # Whatever went wrong above, a bug of ours included: nothing of the job is left behind.
            if self._answers is not None:
                self._answers.close()
            if self._node is not None:
                self._node.close()
            if self._logs is not None:
                self._logs.close(LOGS_S)
        self._say_last()
        return self._code

    def _acts_by(self) -> float | None:
        """When the workers are ended, unless the owner is heard: where this process cannot, its guard does it."""
        agent = self._agent
        return agent.lease.until if agent is not None and agent.crew.alive() and not agent.stopping.killed else None

    def _say_last(self) -> None:
        """The owner closes the connection when it has heard an agent's last word."""
        now = self._reactor.now()
        if self._last_word is not None and self._dialling.connected:
            self._dialling.send(self._last_word)
            self._reactor.at(now + LAST_WORD_S, lambda now: None)
            while self._dialling.connected and self._reactor.now() < now + LAST_WORD_S:
                self._reactor.wait()
        self._dialling.close()

    def _leave(self, code: int, last_word: Bye | ev.NodeLeft | None = None) -> None:
        if self._code is None:
            self._code, self._last_word = code, last_word

    def _take(self, events: Iterable[ev.Event] | None) -> None:
        for event in events or ():
            assert self._link is not None, "a node that was not let in has no station that says anything"
            self._link.report(from_node(event, self._name))

    @property
    def _name(self) -> str:
        return self._welcome.node if self._welcome is not None else os.uname().nodename

    # ------------------------------------------------------------------------------------------ the owner's words

    def welcomed(self, welcome: Welcome, now: float) -> None:
        """The owner has let this agent in, for the first time or after a connection that broke."""
        if self._welcome is not None and self._welcome.job_id != welcome.job_id:
            self._owner_is_lost(now)
            return
        first = self._welcome is None
        self._welcome, self._welcome_at = welcome, now
        if first:
            self._begin(welcome, now)
            self._birth.settled()
        assert self._link is not None and self._agent is not None
        self._link.connected()
        # An owner that has just come back knows nothing of this node, and the lease goes on only when it answers.
        self._agent.next_beat = now

    def _begin(self, welcome: Welcome, now: float) -> None:
        launch, place = launch_here(self._launch, self._order, welcome), self._place(welcome, now)
        timers = launch.spec.timers
        self._agent = Agent(welcome.node, self._boot, lease_s=timers.lease_s, beat_s=timers.beat_s)
        self._link = NodeLink(self._dialling, welcome.node)
        reader, self._to_node = os.pipe()
        self._logs = LogProcess(self._reactor, self._say)
        self._farewell.at(launch, place, owner=welcome.owner)
        self._node = NodeSide(
            launch,
            place,
            replace(self._dialling.node, name=welcome.node),
            agent=self._agent,
            clock=self._clock,
            reactor=self._reactor,
            link=self._link,
            # With --json our stdout holds one JSON object and nothing else.
            stdout=self._stderr if launch.as_json else self._stdout,
            stderr=self._stderr,
            guard_fd=reader,
            write_agg=self._farewell.write_agg,
            say=self._say,
            logs=self._logs,
        )
        self._link.meet = self._node.meet
        self._answers = NodeAnswers(self._reactor, place, welcome.node, self._dialling.send)
        self._dialling.note(place.directory, welcome, keep_key=self._owners_place is not None)
        self._node.open(now, knows_faults=True)
        idle = self._is_idle
        self._rehearsal = Rehearsal(idle, self._node.listen, self._say)
        self._reactor.deadlines(self._rehearsal.next_wake, self._rehearsal.tick)
        if place.trouble:
            self._say(place.trouble)
        if self._owners_place is None and self._birth.number == 1:
            self._say(
                f"job {welcome.job_id} ({launch.spec.name}): this node is {welcome.node}, the owner is on "
                f"{welcome.owner}, logs of this node's workers in {place.logs}"
            )

    def _place(self, welcome: Welcome, now: float) -> JobPlace:
        home = self._launch.home if self._owners_place is None else self._owners_place.home
        return part(
            home,
            welcome.job_id,
            node=welcome.node,
            name=welcome.spec.name,
            now=now,
            log_dir=self._launch.log_dir,
        )

    def asked(self, request: Request, now: float) -> None:
        """The owner asks for something."""
        assert self._link is not None and self._node is not None and self._rehearsal is not None, "it was let in"
        todo, logs, node = self._link.asked(request), self._logs, self._node
        if isinstance(todo, CollectEvidence) and logs is not None:
            # It reads the logs: a disk that does not take them would not give them back either.
            logs.when_written(lambda now: node.take(todo), now)
        else:
            node.take(todo)
        if isinstance(request, Moved) and self._answers is not None:
            self._answers.moved(request.view)
        if isinstance(request, Moved) and request.view.running is not None:
            self._rehearsal.begin(now)

    def _is_idle(self) -> bool:
        return self._node is not None and self._node.running is not None

    def questioned(self, question: Question) -> None:
        """A person at some node, or the owner for the job's directory, wants to know something of this one."""
        if self._answers is not None:
            self._answers.answer(question)

    def refused(self, refused: Refused, now: float) -> None:
        """The owner does not let this agent in."""
        self._say(f"{refused.reason}\n  try: {refused.hint}")
        self._leave(refused.code)

    def finished(self, finished: Finished, now: float) -> None:
        """The job is over."""
        self._leave(self._farewell.tell(finished.report), Bye())

    # ------------------------------------------------------------------------------------------ time

    def _next_wake(self) -> float | None:
        if self._code is not None:
            return None
        if self._welcome is None:
            return min(self._notice_at, self._began + self._launch.spec.nodes.join_s) if self._waits else self._began
        return self._lease_ends + self._dials_on_s

    @property
    def _dials_on_s(self) -> float:
        """How long it dials on when its lease is over: where its starter is gone too, the job is over."""
        return self._order.owner_wait_s if self._waits else 0.0

    def _starter_gone(self, fd: int, now: float) -> None:
        """Nothing is ever written there: its end means that the starter, or the way to it, is gone."""
        self._starter.close()
        self._waits = False

    def _tick(self, now: float) -> None:
        if self._welcome is None and not self._waits:
            self._leave(1)
        elif self._welcome is None:
            waited_s = self._launch.spec.nodes.join_s
            if now < self._began + waited_s:
                self._notice(now)
                return
            report = explain_owner_absent(self._dialling.place, waited_s=waited_s, last=self._dialling.trouble)
            self._leave(self._farewell.alone(self._launch.spec.name, report))
        else:
            self._owner_is_lost(now)

    def _notice(self, now: float) -> None:
        """No owner has let this node in so far: say what is seen, and again when it is something else."""
        said = self._dialling.trouble or f"the owner at {self._dialling.place} has not answered so far"
        if said != self._noticed:
            self._noticed = said
            until_s = self._began + self._launch.spec.nodes.join_s - now
            hint = f"\n  try: {self._dialling.hint}" if self._dialling.hint else ""
            self._say(f"{said}; it is dialled for another {until_s:.0f} s{hint}")
        self._notice_at = now + NOTICE_EVERY_S

    @property
    def _lease_ends(self) -> float:
        """When the lease ends, or ended, that this agent had last."""
        assert self._welcome is not None and self._link is not None
        last = self._link.acknowledged_at
        begun = self._welcome_at if last is None else max(last, self._welcome_at)
        return begun + self._welcome.spec.timers.lease_s

    def _owner_is_lost(self, now: float) -> None:
        welcome, agent = self._welcome, self._agent
        assert welcome is not None and agent is not None
        lease_s = welcome.spec.timers.lease_s
        report = explain_owner_lost(
            welcome.job_id,
            welcome.node,
            welcome.owner,
            silent_s=now - self._lease_ends + lease_s,
            waited_s=self._dials_on_s,
            attempt=agent.attempt,
            workers=len(agent.crew.hands),
        )
        self._leave(self._farewell.alone(welcome.job_id, report))

    # ------------------------------------------------------------------------------------------ the guard's words

    def _heard(self, number: int, typed: bool, now: float) -> None:
        """A signal: for the workers, or to ask for the end of the job."""
        if number not in _OF_THE_WORKERS:
            self._stops += 1
            if self._node is None or not self._dialling.connected or self._stops > STOPS_ASKED:
                name = signal.Signals(number).name
                self._leave(128 + number, self._farewell_word(f"its `holdfast run` got {name}"))
                return
        if self._node is not None:
            os.write(self._to_node, bytes((number, typed)))

    def _over(self, now: float) -> None:
        """The owner on this node has ended by itself; if it ended the job, its last word has come before this."""
        self._leave(1)

    def _gone(self, now: float) -> None:
        """The guard is dead. An owner beside this agent sees it too, and has the job stopped and explained."""
        if self._owners_place is not None and self._dialling.connected:
            self._reactor.at(now + STOPPED_S, self._leave_now)
        else:
            self._leave_now(now)

    def _leave_now(self, now: float) -> None:
        self._leave(128 + signal.SIGKILL, self._farewell_word("its `holdfast run` process was killed from outside"))

    def _farewell_word(self, reason: str) -> ev.NodeLeft | None:
        if self._welcome is None:
            return None
        return ev.NodeLeft(node=self._welcome.node, boot=self._boot, reason=reason, fenced=True)

    def _say(self, text: str) -> None:
        self._stderr.say("\n".join(own_lines(text)), self._reactor.now())
