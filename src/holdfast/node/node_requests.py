"""Carries out the owner's requests on a node: commands for its agent, evidence, checks, and phases of the gang.

`AgentDriver` connects the agent and the host (the code that manages processes): the host carries out the agent's
instructions, and the agent receives facts about processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.decide.gang_view import GangView
from holdfast.decide.phases import Phase
from holdfast.explain import read_workers
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Blame
from holdfast.model.gang_protocol import ClosePort, LookAtRanks, MeasurePeer, OpenPort, RanksSeen, WantLastWords
from holdfast.model.phrases import Phrase
from holdfast.model.process_messages import Fact, Instruction, SendReport
from holdfast.node import rare_parts
from holdfast.node.evidence_collector import Collector, first_to_die
from holdfast.node.optional_parts import forget_logs
from holdfast.node.worker_context import surroundings_of
from holdfast.wire.node_messages import Moved, ReadFaults, Recorded

if TYPE_CHECKING:
    from holdfast.act.cgroups import ControlGroups
    from holdfast.act.host import Host, LocalHost
    from holdfast.act.store.store_process import Store
    from holdfast.decide.agent import Agent
    from holdfast.model.decisions import AttemptRecord
    from holdfast.model.gang_protocol import Command, Report
    from holdfast.node.checkpoint_watch import CheckpointPoller
    from holdfast.node.devices.device_faults import DeviceFaults
    from holdfast.node.evidence_collector import MachineLog
    from holdfast.node.node_part import NodePart
    from holdfast.node.owner_probes import HangSampler, LinkProbe
    from holdfast.node.prechecks.attempt_checks import AttemptChecks
    from holdfast.node.prechecks.checks_during_job import DuringChecks
    from holdfast.node.sidecars.node_sidecars import NodeSidecars
    from holdfast.node.signal_handler import SignalHandler
    from holdfast.node.stop_files import StopFiles
    from holdfast.node.worker_output import WorkerOutput
    from holdfast.reactor import Reactor
    from holdfast.wire.link_interface import OwnerLink, Request

#: These blames are for failures of the machine. After one the next attempt repeats the pre-checks, even if they have
#: just passed.
_OF_A_MACHINE = (Blame.HARDWARE, Blame.PLATFORM, Blame.NETWORK, Blame.STORAGE)


class AgentDriver:
    """Passes commands and facts to a node's agent, and the agent's instructions to the host, which runs the processes.
    `report`: sends the agent's reports to the owner.
    """

    def __init__(self, agent: Agent, reactor: Reactor, report: Callable[[Report], None]) -> None:
        self._agent = agent
        self._report = report
        self._host: Host | None = None
        reactor.deadlines(agent.next_wake, lambda now: self._perform(agent.tick(now), now))

    def serve(self, host: Host) -> None:
        """Set the host that runs the job's processes. Call this before the first command."""
        self._host = host

    def obey(self, command: Command, now: float) -> None:
        self._perform(self._agent.obey(command, now), now)

    def learn(self, facts: list[Fact], now: float) -> None:
        """Pass facts about processes to the agent, and carry out its instructions."""
        for fact in facts:
            self._perform(self._agent.learn(fact, now), now)

    def _perform(self, instructions: list[Instruction], now: float) -> None:
        """Carry out instructions. If one yields facts at once, pass them to the agent."""
        queue = deque(instructions)
        while queue:
            instruction = queue.popleft()
            if isinstance(instruction, SendReport):
                self._report(instruction.report)
                continue
            assert self._host is not None, "served before the first command"
            for fact in self._host.perform(instruction, now):
                queue.extend(self._agent.learn(fact, now))


class NodeParts(msgspec.Struct, frozen=True):
    """The parts of a node that carry out the owner's requests."""

    host: LocalHost
    #: The job's control groups.
    groups: ControlGroups
    #: Finds OOM kills and kernel log lines.
    machine: MachineLog
    #: Shows the workers' output.
    output: WorkerOutput
    #: The workers' rendezvous store; None if the job has none.
    store: Store | None
    #: Handles signals.
    signals: SignalHandler
    #: Runs the pre-checks.
    checks: AttemptChecks
    faults: DeviceFaults
    #: Looks for checkpoints.
    checkpoints: CheckpointPoller
    #: Requests the job's stop if a stop file demands it.
    stops: StopFiles
    #: Runs checks during the job; None if there are none.
    during: DuringChecks | None
    sidecars: NodeSidecars | None


class NodeRequests:
    """Carries out the owner's requests with a node's parts.

    `link`: the connection to the owner. `agent_driver`: passes commands to the node's agent. `write_agg`: writes
    OpenPAI's exit file (`runtime.pai.agg.error`) of an attempt. `say`: prints a message.
    """

    def __init__(
        self,
        part: NodePart,
        parts: NodeParts,
        reactor: Reactor,
        link: OwnerLink,
        agent_driver: AgentDriver,
        write_agg: Callable[[AttemptRecord, AttemptEvidence], None],
        say: Callable[[str], None],
    ) -> None:
        self._launch = part.launch
        self._logs = part.place.logs
        self._parts = parts
        self._reactor = reactor
        self._link = link
        self._agent_driver = agent_driver
        self._write_agg = write_agg
        self._say = say
        #: The last printed message about memory limits.
        self._unlimited = ""
        self._hanging: HangSampler | None = None
        self._peering: LinkProbe | None = None
        #: The gang's state in the owner's latest message.
        self.view = GangView(phase=Phase.CHECKING, attempt=0)
        #: The last attempt's evidence with its logs, to explain its failure.
        self._last = AttemptEvidence()

    def take(self, request: Request) -> None:
        """Carry out a request from the owner now."""
        now = self._reactor.now()
        match request:
            case Moved():
                self._moved(request.view, now)
            case RunChecks():
                self._tell(self._parts.faults.begin(request, now))
            case CollectEvidence():
                self._tell(self._collected(request, now))
            case RunHooks() if self._parts.sidecars is not None:
                self._parts.sidecars.follow(request, now)
            case RunHooks():
                self._link.report(ev.HooksFinished(attempt=request.attempt, cause=request.cause))
            case ReadFaults():
                self._tell(self._parts.faults.refresh(now))
            case Recorded():
                self._recorded(request.record)
            case LookAtRanks() if request.attempt == self.view.running:
                self._hanging = self._hanging or self.sampler(self._link.report)
                self._hanging.look(request, now)
            case LookAtRanks():
                pass  # ignore the request to sample ranks, because the attempt has ended
            case WantLastWords():
                self._parts.host.want_last_words(request.attempt)
            case OpenPort() | MeasurePeer() | ClosePort():
                self._peering = self._peering or self._link_probe()
                self._peering.take(request, now)
            case _:
                self._agent_driver.obey(request, now)

    def close(self) -> None:
        """Stop sampling ranks, and stop serving peers."""
        if self._hanging is not None:
            self._hanging.close()
            self._hanging = None
        if self._peering is not None:
            self._peering.close()
            self._peering = None

    def sampler(self, tell: Callable[[RanksSeen], None]) -> HangSampler:
        """Return a new sampler of this node's ranks, which the caller closes. `tell`: gets the samples."""
        names = {placement.rank: f"{placement.role}-{placement.rank}" for placement in self.view.placements}
        return rare_parts.owner_probes.HangSampler(
            self._reactor,
            tell,
            self._parts.host.workers,
            self._parts.output.pump,
            lambda attempt, rank: self._logs / f"attempt-{attempt}" / names[rank] / "progress",
            self._launch.spec.hang_timeout_s,
        )

    def _link_probe(self) -> LinkProbe:
        among = self._launch.nodes.port_range if self._launch.nodes is not None else None
        return rare_parts.owner_probes.LinkProbe(self._reactor, among, self._link.report)

    def _recorded(self, record: AttemptRecord) -> None:
        # After a failure of the machine, or of a check during the job, an earlier pass of the pre-checks proves
        # nothing.
        if record.report.blame in _OF_A_MACHINE or record.report.phrase == Phrase.CHECK_FAILED:
            self._parts.checks.distrust()
        if record.report.code != 0:
            self._write_agg(record, self._last)

    def _moved(self, view: GangView, now: float) -> None:
        before, self.view = self.view.phase, view
        if view.phase is before:
            return
        self._parts.checkpoints.entered(view.phase, now)
        self.close()
        match view.phase:
            case Phase.PREPARING:
                self._parts.machine.begin()
                if self._launch.kept_attempts:
                    forget_logs(self._logs, view.attempt - self._launch.kept_attempts)
            case Phase.STARTING if self._parts.groups.unlimited not in ("", self._unlimited):
                self._unlimited = self._parts.groups.unlimited
                self._say(self._unlimited)
            case Phase.RUNNING:
                if self._parts.during is not None:
                    self._parts.during.begin(now)
        self._parts.stops.entered(view.phase, view.attempt, now)
        self._tell(self._parts.faults.entered(view.phase, now))

    def _tell(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            self._link.report(event)

    def _collected(self, order: CollectEvidence, now: float) -> list[ev.Event]:
        """Return the collected evidence as an event, after the events of newly found device faults."""
        view, since = self.view, self.view.started_at
        try:
            evidence = self._collect(order.evidence, view.completed, since)
            found = [] if view.completed else self._parts.faults.last_words(now)
            if not view.completed:
                evidence = self._parts.faults.complete(evidence, since, now)
        except Exception as error:  # catch every bug, because it must not prevent the report and the next attempt
            self._say(f"a bug of holdfast: evidence is incomplete: {type(error).__name__}: {error}")
            found, evidence = [], order.evidence
        self._last = evidence
        if not view.completed:
            # Logs stay on their node. Only findings from the logs are sent and journaled.
            told = read_workers(without_secrets(evidence), self._launch.catalogue)
            ranks = first_to_die(evidence.workers)
            evidence = rare_parts.source_lines.with_sources(told, evidence, self._launch.cwd, ranks)
        return [*found, ev.EvidenceCollected(attempt=order.attempt, evidence=evidence, cause=order.cause)]

    def _collect(self, known: AttemptEvidence, completed: bool, since: float) -> AttemptEvidence:
        parts = self._parts
        trouble = parts.store.trouble if parts.store is not None else lambda attempt: ""
        collector = Collector(self._launch, self._logs, parts.output.pump, parts.machine, trouble)
        evidence = collector.collect(known, completed, since)
        if left := parts.host.leftovers.ended_by_force():
            evidence = replace(evidence, leftovers=without_secrets(left))
        if completed:
            return evidence
        roles = {name: value for role in self._launch.spec.roles for name, value in role.env.items()}
        environment = {**self._launch.environment, **roles}
        ranks = [worker.rank for worker in evidence.workers]
        return replace(
            evidence,
            flights=rare_parts.flight_dumps.read_flights(environment, self._launch.cwd, ranks, since),
            passed_on=parts.signals.passed_on(since),
            surroundings=surroundings_of(evidence, self._launch, parts.output.taken_ports.take()),
            checkpoints=parts.checkpoints.finished(),
            beside=parts.sidecars.failures(known.attempt) if parts.sidecars is not None else (),
        )
