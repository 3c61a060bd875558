"""The owner process of a multi-node job. It makes the decisions, and the agents run the workers.

If the owner is killed, the guard restarts it, and the new owner reads the journal. The guard keeps the listening
socket, the job's number and directory, and the lock for it.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from holdfast.act.console import Console, open_consoles
from holdfast.act.workers import Workers
from holdfast.clock import Clock
from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.model import events as ev
from holdfast.model.actions import RecordAttempt
from holdfast.model.evidence import TURNED_AWAY, StopRequest, StopSource
from holdfast.model.gang_protocol import Report
from holdfast.model.phrases import Phrase
from holdfast.node.exit_status import status_of
from holdfast.node.report_writer import ReportWriter
from holdfast.node.signal_handler import SignalHandler
from holdfast.node.signal_pipe import Signals
from holdfast.node.worker_output import guard_is_dead
from holdfast.owner.job_records import JobRecords, first_events, of_this_run
from holdfast.owner.node_queries import NodeQueries
from holdfast.owner.nodes.agent_admission import AgentAdmission
from holdfast.owner.nodes.node_members import NodeMembers
from holdfast.owner.nodes.operator_service import OperatorService
from holdfast.owner.nodes.rival_owner import RivalOwner
from holdfast.owner.nodes.starter_events import StarterPipeReader
from holdfast.owner.owner_side import OwnerPrinter, OwnerSide
from holdfast.platforms.platform import QUEUED_AGAIN
from holdfast.platforms.platform_registry import exit_status
from holdfast.reactor import Reactor
from holdfast.record.job_directory import NOWHERE, JobPlace
from holdfast.safe_text import own_lines
from holdfast.wire.admission import TOO_FEW_DEVICES
from holdfast.wire.connection_troubles import stranger
from holdfast.wire.control_socket import Reply, StopLine
from holdfast.wire.fault_news import SOCKET_NAME
from holdfast.wire.guard_messages import GuardWords, from_node
from holdfast.wire.job_key import Key
from holdfast.wire.link_interface import Seen
from holdfast.wire.node_messages import Asked, Bye, Finished, Foreign, Hello, LogRead, Refused, Requeued, VerbDone
from holdfast.wire.owner_listener import OwnerListener, Peer

if TYPE_CHECKING:
    from holdfast.act.guarded_children import ChildContext
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.reactor import News
    from holdfast.wire.tls_channel import ChannelEnd

#: Seconds that the connected nodes may take to confirm the job's report.
FAREWELL_S = 10.0
#: The job's end waits for users who follow logs of other nodes: this many seconds for a user's next request, and
#: `MOST_FOLLOWED_S` in total.
FOLLOWERS_S = 2.0
MOST_FOLLOWED_S = 20.0

#: The terminal shows at most this many refused peers without the job's key, because it is for the job's output.
STRANGERS = 20


def run_owner(
    launch: LaunchSpec,
    order: NodesOrder,
    place: JobPlace,
    listening: socket.socket,
    clock: Clock,
    guard_link: ChildContext,
    *,
    agent_id: str,
) -> int:
    """Run the job up to its report, or continue it if an earlier owner was killed. Return the job's exit code.

    `listening`: the socket of the owner. `guard_link`: the link to this process's guard. `agent_id`: the id of the
    agent on this node. `order`: the multi-node options. `clock`: the clock of the journal.
    """
    gc.enable()
    stdout, stderr = open_consoles()
    try:
        inherited = OwnerInheritance(place, listening, clock, agent_id)
        return _OwnerProcess(launch, order, inherited, guard_link, stdout, stderr).carry()
    finally:
        stdout.drain()
        stderr.drain()


class OwnerInheritance(msgspec.Struct, frozen=True):
    """The objects that the guard keeps open for each restarted owner of the job."""

    #: The job's directory, with its lock.
    place: JobPlace
    #: The socket to which nodes connect to reach the owner.
    listening: socket.socket
    #: The clock for the times in the journal.
    clock: Clock
    #: The id of the agent on this node.
    agent_id: str


class _OwnerProcess:
    """One process that runs the owner of one job."""

    def __init__(
        self,
        launch: LaunchSpec,
        order: NodesOrder,
        inherited: OwnerInheritance,
        guard_link: ChildContext,
        stdout: Console,
        stderr: Console,
    ) -> None:
        place, listening = inherited.place, inherited.listening
        self._launch = launch
        self._order = order
        self._port = int(listening.getsockname()[1])
        self._place = place
        self._guard_link = guard_link
        self._agent_id = inherited.agent_id
        #: Why the owner refused the agent on its own node; None: it has not refused it.
        self._refused_here: Refused | None = None
        self._stdout = stdout
        self._stderr = stderr
        self._reactor = reactor = Reactor(inherited.clock.now)
        self._members = NodeMembers(lambda request: self._operators.told(request))
        self._questions = NodeQueries(
            self._members,
            reactor,
            launch.spec if launch.checks is not None else replace(launch.spec, checks=()),
            lambda word: self._side.report(word),
            lambda node: self._letting_in.address_of(node),
            (self._say, place.logs),
        )
        self._records = JobRecords(place, reactor.now, self._writer, self._say)
        self._owner = Owner(Gang(launch.catalogue), Liveness(launch.spec.timers))
        self._side = OwnerSide(
            launch,
            reactor,
            self._questions,
            self._records,
            lambda now: iter(()),
            OwnerPrinter(self._say, stdout.say),
            self._owner,
        )
        self._operators = OperatorService(
            reactor,
            place,
            ask=self._members.ask,
            nodes=lambda: self._members.names,
            view=self._side.view,
            stop=self._asked_to_stop,
        )
        self._letting_in = AgentAdmission(launch, order, place, os.uname().nodename)
        self._key = Key(order.key, Path(order.key_from))
        #: The number of refused peers without the job's key that the terminal has shown.
        self._strangers = 0
        self._listener = OwnerListener(
            reactor,
            listening,
            self._key,
            self._on_message,
            self._gone,
            self._strange,
            lease_s=launch.spec.timers.lease_s,
        )
        self._desk = SignalHandler(
            Signals(),
            reactor,
            _Elsewhere(),
            self._say,
            grace_s=launch.spec.timers.grace_s,
            node=os.uname().nodename,
        )
        GuardWords(guard_link.fd, reactor, heard=self._signalled, over=self._agent_is_over, gone=guard_is_dead)
        self._starter_words = self._hear(order)
        if order.elsewhere and not order.starter:
            RivalOwner(launch, order, place.job_id, reactor)

    def _hear(self, order: NodesOrder) -> StarterPipeReader | None:
        if order.starter is None or order.starter.news_fd < 0:
            return None
        return StarterPipeReader(
            order.starter.news_fd,
            self._reactor,
            self._launch.spec.nodes,
            lambda: self._side.view().attempt,
            self._say,
        )

    def carry(self) -> int:
        """Run until the job's report is final and its nodes have received it. Return the exit status."""
        try:
            now = self._reactor.now()
            self._begin(now)
            self._operators.note(self._order, self._launch.spec.name, self._port, now)
            # Tell the guard that the replay of the journal has worked. If the owner crashes later, the journal is not
            # the cause.
            self._guard_link.settled()
            report = self._side.run()
            if self._starter_words is not None:
                self._starter_words.close()
            if report is None and self._side.outside.handed_over:
                self._operators.close()
                return QUEUED_AGAIN
            if report is None:
                self._operators.close()
                self._bid_farewell(Requeued())
                return QUEUED_AGAIN
            self._writer().show(report)
            self._wait_while(lambda: self._operators.fetching)
            self._wait_for_followers()
            self._operators.close()
            self._bid_farewell(Finished(report=report))
        finally:
            self._listener.close()
            self._side.close()
        return exit_status(status_of(report.report, self._launch.users_status), self._launch.environment)

    def _begin(self, now: float) -> None:
        before = self._guard_link.number > 1 or self._place.resumed
        history = list(self._records.history()) if before else []
        if history:
            # The earlier owner's socket file is left, and nothing listens on it.
            (self._place.directory / SOCKET_NAME).unlink(missing_ok=True)
            mine = of_this_run(history, self._place.run)
            if mine or not self._place.resumed:
                self._letting_in.remember(mine)
                self._take_over(history)
                return
        self._side.begin(first_events(self._launch, self._place, self._records, self._owner, now))

    def _take_over(self, history: list[tuple[float, ev.Event]]) -> None:
        """Continue the job of a killed owner from the end of its journal.

        The running attempt goes on if the agents report it.
        """
        *_, last = self._owner.recover(history, self._reactor.now())
        # Repeat the last event's `RecordAttempt`. The earlier owner may have died after it journaled the event, but
        # before it wrote the record.
        self._side.begin((ev.OwnerRecovered(),), [action for action in last if isinstance(action, RecordAttempt)])

    def _bid_farewell(self, finished: Finished | Requeued) -> None:
        """Send the job's end to the connected nodes, and wait until each has confirmed it. The run then ends on each
        node.
        """
        self._members.finish(finished)
        self._wait_while(lambda: any(not self._owner.is_lost(node) for node in self._members.unfinished))

    def _wait_for_followers(self) -> None:
        """Wait for users who follow logs of other nodes (see `FOLLOWERS_S`)."""
        until = self._reactor.now() + MOST_FOLLOWED_S
        while self._operators.followed and (left := until - self._reactor.now()) > 0:
            read = self._operators.logs_read
            self._wait_while(lambda: self._operators.followed, min(FOLLOWERS_S, left))
            if self._operators.logs_read == read:
                return

    def _wait_while(self, wanted: Callable[[], bool], within_s: float = FAREWELL_S) -> None:
        until = self._reactor.now() + within_s
        self._reactor.at(until, lambda now: None)
        while wanted() and self._reactor.now() < until:
            self._reactor.wait(self._side.take)

    # ------------------------------------------------------------------------------- handling messages of the nodes

    def _on_message(self, peer: Peer, message: Any, now: float) -> News:
        match message:
            case Hello() | Foreign():
                return self._hello(peer, message, now)
            case Bye():
                self._members.has_finished(peer.name)
                peer.close()
            case Report() if message.node == peer.name:
                self._side.report(message)
            case Report():
                pass  # ignore the event: a node may only report about itself
            case Asked():
                self._operators.asked(peer, message)
            case LogRead() | VerbDone():
                self._operators.answered(peer.name, message)
            case _ if peer.name:
                if isinstance(message, ev.EvidenceCollected):
                    self._operators.collected(peer.name, message)
                self._members.answered(peer.name, message)
                self._questions.report(self._placed(message, peer.name), peer.name)
        return None

    def _hello(self, peer: Peer, hello: Hello | Foreign, now: float) -> News:
        answer = self._letting_in.answer(
            hello,
            peer.address,
            self._owner.term,
            self._members.is_connected,
            self._owner.is_lost,
            self._side.outside.labels,
        )
        if answer.refused is not None:
            if isinstance(hello, Hello) and hello.hosts:
                self._say(f"{answer.refused.reason}: {hello.node.name} is refused")
            elif isinstance(hello, Hello) and hello.agent == self._agent_id:
                self._refused_here = answer.refused
            else:
                self._turned_away(peer.address, answer.refused.reason, answer.refused.hint)
            peer.dismiss(answer.refused)
            return None
        if answer.welcome is None or answer.joined is None:
            peer.close()
            return None
        peer.name = answer.welcome.node
        peer.send(answer.welcome)
        self._members.joined(peer.name, peer)
        if (news := self._owner.welcome(answer.joined)) is not None:
            self._side.report(news)
        self._operators.node_joined()
        return None

    def _placed(self, event: ev.Event | Seen, node: str) -> ev.Event | Seen:
        """Add the node's address to a rendezvous.

        A node knows only the port that it has reserved; the owner knows the address by which peers reach the node.
        """
        if isinstance(event, ev.ChecksFinished) and event.meeting is not None and not event.meeting.address:
            address = self._letting_in.address_of(node)
            return replace(event, meeting=replace(event.meeting, address=address))
        return event

    def _gone(self, peer: Peer, end: ChannelEnd, now: float) -> News:
        if peer.name:
            self._members.left(peer.name, peer)
            self._members.has_finished(peer.name)
            self._operators.node_left(peer.name)
        else:
            self._operators.person_left(peer)
        return None

    def _strange(self, address: str, end: ChannelEnd) -> None:
        """Report a peer without the job's key, because a user may wait for this node."""
        if found := stranger(end, os.uname().nodename, self._key):
            self._turned_away(address, *found)

    def _turned_away(self, address: str, why: str, hint: str) -> None:
        """Print why a node is not admitted. While the first attempt waits for its nodes, the reason is also
        evidence.
        """
        if self._strangers >= STRANGERS:
            return
        self._strangers += 1
        self._say(f"a node at {address} is not let in: {why}" + (f"\n  try: {hint}" if hint else ""))
        words = f"a node at {address}: {why}"
        self._side.report(ev.PlatformSaid(attempt=0, subject=TURNED_AWAY, words=words, command=hint))

    def _asked_to_stop(self, line: StopLine) -> Reply:
        control = self._side.control
        return control.take(line) if control.started else Reply(False, "the owner is just starting: try again")

    def _signalled(self, number: int, typed: bool, now: float) -> News:
        """Handle a signal that this node's guard has received. `typed`: whether the signal was typed at a terminal."""
        return [from_node(event, os.uname().nodename) for event in self._desk.by_guard(number, typed, now)]

    def _agent_is_over(self, now: float) -> News:
        if (refused := self._refused_here) is not None:
            request = StopRequest(
                reason=f"the owner's own node does not take part: {refused.reason}",
                solution=f"Try: {refused.hint}",
                source=StopSource.SUPERVISOR,
                phrase=Phrase.CHECK_FAILED if refused.code == TOO_FEW_DEVICES else Phrase.STOPPED_BY_OPERATOR,
                code=refused.code,
                at=now,
            )
        else:
            request = StopRequest(
                reason="the agent of the owner's own node has ended by itself",
                solution="What it has said stands above; a bug of holdfast leaves a traceback there.",
                source=StopSource.SUPERVISOR,
                at=now,
            )
        return [ev.StopRequested(request=request)]

    # --------------------------------------------------------------------------------- printing messages for the user

    def _say(self, text: str) -> None:
        if self._place.home == NOWHERE and str(NOWHERE) in text:
            return  # print nothing: an earlier line already said that no files are kept
        self._stderr.say("\n".join(own_lines(text)), self._reactor.now())

    def _writer(self) -> ReportWriter:
        return ReportWriter(self._launch, self._place, self._reactor.now, self._stdout, self._stderr, self._say)


class _Elsewhere:
    """Stands in for the workers in the signal handler, because the owner's process has no workers."""

    def __init__(self) -> None:
        self.workers = Workers()

    def reap(self, now: float) -> None:
        """Do nothing: each part of the owner that starts a helper process reaps it."""

    def resized(self) -> None:
        """Do nothing: the node's agent handles the size of the terminal."""
