"""The agent process of a node. It connects to the owner, performs the owner's commands, and ends its workers if it
loses the owner.

After a broken connection the agent connects again and repeats its state. When its lease ends (`decide/agent.py`), it
ends its workers. If it cannot reach the owner for some more time, it writes a report and exits.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act.console import open_consoles
from holdfast.act.rendezvous_ports import own_loopback
from holdfast.clock import Clock
from holdfast.errors import BadUsage
from holdfast.model import events as ev
from holdfast.node.agent.admitted_node import AdmittedNode
from holdfast.node.agent.end_report import EndReporter
from holdfast.node.agent.fault_news_listener import FaultNews
from holdfast.node.agent.local_node import launch_here, without_effect
from holdfast.node.agent.owner_connection import AgentIdentity, OwnerConnection
from holdfast.node.agent.owner_timeout import OwnerTimeout
from holdfast.node.node_part import NodePart
from holdfast.observe.output_places import OutputPlaces
from holdfast.platforms.platform import PLATFORM_SIGNALS, QUEUED_AGAIN
from holdfast.platforms.platform_registry import leave_to_platform, on_platform
from holdfast.reactor import Reactor
from holdfast.record.job_directory import JobPlace, part
from holdfast.safe_text import own_lines
from holdfast.wire.guard_messages import GuardWords, from_node
from holdfast.wire.node_messages import Bye, Finished, ReadFaults, Welcome

if TYPE_CHECKING:
    from holdfast.act.guarded_children import ChildContext
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.model.evidence import MemoryKill
    from holdfast.wire.link_interface import Request
    from holdfast.wire.node_messages import Question, Refused

_OF_THE_WORKERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
#: At the first this many stop signals, the agent asks the owner to stop the job. At the next one, the agent exits.
STOPS_ASKED = 2
#: Seconds that an owner on this node may take to stop its workers and end the job after the guard has died.
STOPPED_S = 5.0
#: Seconds that the agent's last message may take.
LAST_WORD_S = 2.0


def serve(
    launch: LaunchSpec,
    order: NodesOrder,
    clock: Clock,
    guard_link: ChildContext,
    *,
    agent_id: str,
    boot: int,
    port: int,
    owners_place: JobPlace | None,
    memory_kill: MemoryKill | None = None,
) -> int:
    """Run this node's part of the job in this process; return the exit status.

    `order`: how this node takes part in the job. `guard_link`: the guard's data for this process. `agent_id`: the id of
    this node's guard. `boot`: the agent's start number, higher than that of any earlier agent of this node. `port`: the
    owner's port. `owners_place`: the job's directory if the owner is on this node, else None. `memory_kill`: the OOM
    kill that ended the previous agent, or None.
    """
    gc.enable()
    # An owner on this node listens on every address, and the loopback address needs no name resolution.
    host = order.host if owners_place is None else own_loopback()
    agent = _AgentProcess(launch, order, clock, guard_link, AgentIdentity(agent_id, boot, memory_kill), owners_place)
    try:
        return agent.carry(host, port)
    finally:
        agent.drain()


class _AgentProcess:
    """Runs one node's part of one job. It handles the messages of the owner and of the guard."""

    def __init__(
        self,
        launch: LaunchSpec,
        order: NodesOrder,
        clock: Clock,
        guard_link: ChildContext,
        agent: AgentIdentity,
        owners_place: JobPlace | None,
    ) -> None:
        self._launch = launch
        self._order = order
        self._guard_link = guard_link
        self._owners_place = owners_place
        self._clock = clock
        self._stdout, self._stderr = open_consoles()
        self._reactor = Reactor(clock.now)
        self._agent = agent
        self._end_reporter = EndReporter(
            launch,
            self._reactor.now,
            self._stdout,
            self._stderr,
            self._say,
            quiet=owners_place is not None or order.quiet,
        )
        self._part: AdmittedNode | None = None
        #: Listens for changes of the fault log. None until the owner has admitted this agent.
        self._news: FaultNews | None = None
        self._stops = 0
        self._platform = on_platform(os.environ)
        #: Whether the owner has stopped answering, and this agent has asked the platform to restart or end the job.
        self._orphaned = False
        self._code: int | None = None
        self._last_word: Bye | ev.NodeLeft | None = None

    def carry(self, host: str, port: int) -> int:
        """Run until the node's part is over; return the exit status. The agent connects to the owner at `host` and
        `port`.
        """
        self._dialling = OwnerConnection(
            self._launch,
            self._order,
            self._reactor,
            self,
            agent=self._agent,
            host=host,
            port=port,
        )
        self._patience = OwnerTimeout(
            self._dialling,
            self._reactor.now(),
            self._say,
            join_s=self._launch.spec.nodes.join_s,
            owner_wait_s=self._order.owner_wait_s,
        )
        GuardWords(self._guard_link.fd, self._reactor, heard=self._heard, over=self._over, gone=self._gone)
        self._reactor.deadlines(self._next_wake, self._tick)
        if (starter := self._order.starter_fd) is not None:
            self._starter = self._reactor.watch(starter, self._starter_gone)
        try:
            while self._code is None:
                self._reactor.wait(self._take)
                acts_by = self._part.acts_by if self._part is not None else None
                self._guard_link.promise.make(acts_by)
                self._dialling.hurry(acts_by is not None)
        finally:
            # Close everything even after a bug of holdfast, so that no process of the job remains.
            if self._news is not None:
                self._news.close()
            if self._part is not None:
                self._part.close()
        self._say_last()
        return self._code

    def drain(self) -> None:
        """Write the buffered output of stdout and stderr."""
        self._stdout.drain()
        self._stderr.drain()

    def _say_last(self) -> None:
        """Send the last message, and wait until the owner has read it and closed the connection."""
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
            assert self._part is not None, "a node that was not let in has no station that says anything"
            self._part.link.report(from_node(event, self._name))

    @property
    def _name(self) -> str:
        return self._part.welcome.node if self._part is not None else os.uname().nodename

    # ------------------------------------------------------------------------- methods that handle the owner's messages

    def welcomed(self, welcome: Welcome, now: float) -> None:
        """Handle the owner's welcome, which arrives after each connection."""
        if self._part is None:
            try:
                self._part = self._begin(welcome, now)
            except BadUsage as error:
                self._cannot_take_part(welcome, error)
                return
            self._guard_link.settled()
        elif self._part.welcome.job_id != welcome.job_id:
            self._owner_is_lost(self._part, now)
            return
        self._part.welcomed(welcome, now)

    def _begin(self, welcome: Welcome, now: float) -> AdmittedNode:
        launch, place = launch_here(self._launch, self._order, welcome), self._place(welcome, now)
        assert launch.nodes is not None, "a job over nodes"
        self._patience.owner_wait_s = launch.nodes.owner_wait_s
        self._end_reporter.at(launch, place, owner=welcome.owner)
        if self._owners_place is None:
            self._dialling.note(place.directory, welcome)
        if place.trouble:
            self._say(place.trouble)
        # Print this only on a terminal of this node. On a shared terminal the owner prints "has joined".
        if self._owners_place is None and not self._order.quiet and self._guard_link.number == 1:
            self._say(
                f"job {welcome.job_id} ({launch.spec.name}): this node is {welcome.node}, the owner is on "
                f"{welcome.owner}, logs of this node's workers in {place.logs}"
            )
        if note := without_effect(self._launch, welcome):
            self._say(note)
        self._news = FaultNews(place.directory, self._reactor, lambda now: self.asked(ReadFaults(), now))
        return AdmittedNode(
            NodePart(launch, place, replace(self._dialling.node, name=welcome.node)),
            # With --json or --events, stdout carries only JSON.
            OutputPlaces(self._stderr if launch.prints_json else self._stdout, self._stderr, self._say),
            welcome,
            clock=self._clock,
            reactor=self._reactor,
            dialling=self._dialling,
            end_reporter=self._end_reporter,
        )

    def _cannot_take_part(self, welcome: Welcome, error: BadUsage) -> None:
        """Leave the job: a file that the owner's settings name is missing or wrong on this node. Send the owner the
        reason.
        """
        self._say(f"{error.message}\n  try: {error.hint}")
        reason = f"it cannot use the settings of the job: {error.message}"
        self._leave(
            error.exit_status, ev.NodeLeft(node=welcome.node, boot=self._agent.boot, reason=reason, fenced=True)
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
        """Carry out a request from the owner."""
        if self._part is not None:  # without `_part`, this agent cannot use the job's settings, and exits soon
            self._part.asked(request, now)

    def questioned(self, question: Question) -> None:
        """Answer a request to read a log or run a command on this node. It comes from a user, or from the owner, which
        reads the logs of failed ranks.
        """
        if self._part is not None:
            self._part.answers.answer(question)

    def refused(self, refused: Refused, now: float) -> None:
        """Print the owner's reason for refusing this agent, and leave the job."""
        self._say(f"{refused.reason}\n  try: {refused.hint}")
        self._leave(refused.code)

    def finished(self, finished: Finished, now: float) -> None:
        """Write the report of the finished job, and leave the job."""
        self._leave(self._end_reporter.tell(finished.report), Bye())

    def requeued(self, now: float) -> None:
        """Leave the job silently: the job is queued again, and the owner has informed the user."""
        self._leave(QUEUED_AGAIN, Bye())

    # ----------------------------------------------------------------------------------- methods that check time limits

    def _next_wake(self) -> float | None:
        return self._patience.next_wake(self._part) if self._code is None and not self._orphaned else None

    def _tick(self, now: float) -> None:
        if self._part is not None:
            if self._patience.is_over(self._part, now):
                self._owner_is_lost(self._part, now)
        elif self._patience.starter_gone:
            self._leave(1)
        elif report := self._patience.absent(now):
            self._leave(self._end_reporter.alone(self._launch.spec.name, report))

    def _owner_is_lost(self, part: AdmittedNode, now: float) -> None:
        if self._orphaned:
            return
        code = self._end_reporter.alone(part.welcome.job_id, self._patience.lost(part, now))
        self._orphaned = leave_to_platform(self._reactor, self._say, os.environ, lambda: self._leave(code))
        if not self._orphaned:
            self._leave(code)

    def _starter_gone(self, fd: int, now: float) -> None:
        """Handle the end of the starter's pipe: the process that started this agent has exited or is unreachable. The
        pipe carries no data.
        """
        self._starter.close()
        self._patience.starter_gone = True

    # ------------------------------------------------------------------------- methods that handle the guard's messages

    def _heard(self, number: int, typed: bool, now: float) -> None:
        """Handle a signal that the guard received: forward it to the workers, or ask the owner to end the job. `typed`:
        the user typed it at the terminal.
        """
        asked = self._platform and number in PLATFORM_SIGNALS
        if asked and self._part is not None and self._dialling.connected:
            # Stay in the job. The owner asks the platform about the signal, and may let the workers save first.
            self._part.link.report(ev.NodeSignalled(node=self._name, boot=self._agent.boot, number=number))
            if number not in _OF_THE_WORKERS:
                return
        if number not in _OF_THE_WORKERS:
            self._stops += 1
            if self._part is None or not self._dialling.connected or self._stops > STOPS_ASKED:
                name = signal.Signals(number).name
                self._leave(128 + number, self._farewell_word(f"its `holdfast run` got {name}"))
                return
        if self._part is not None:
            self._part.signalled(number, typed)

    def _over(self, now: float) -> None:
        """Leave the job, because the owner on this node has exited. If it had ended the job, its last message came
        before.
        """
        self._leave(1)

    def _gone(self, now: float) -> None:
        """Leave the job, because the guard is dead. An owner on this node also notices that and reports it, so wait
        until it has stopped the job.
        """
        if self._owners_place is not None and self._dialling.connected:
            self._reactor.at(now + STOPPED_S, self._leave_now)
        else:
            self._leave_now(now)

    def _leave_now(self, now: float) -> None:
        self._leave(128 + signal.SIGKILL, self._farewell_word("its `holdfast run` process was killed from outside"))

    def _farewell_word(self, reason: str) -> ev.NodeLeft | None:
        if self._part is None:
            return None
        return ev.NodeLeft(node=self._name, boot=self._agent.boot, reason=reason, fenced=True)

    def _say(self, text: str) -> None:
        self._stderr.say("\n".join(own_lines(text)), self._reactor.now())
