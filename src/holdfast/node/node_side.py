"""The node's side of a job: it watches one machine, carries out the owner's requests and reports facts.

The owner's side (`owner/owner_side.py`) decides about restarts and the job's end. A link (`wire/`) connects the two
sides; on one machine it is a function call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.act.cgroups import ControlGroups
from holdfast.act.guard import end_all
from holdfast.act.host import LocalHost
from holdfast.act.time_limited import given_up
from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.decide.placement import names_here
from holdfast.decide.placement import place as place_ranks
from holdfast.model.faults import DeviceStanding
from holdfast.node.checkpoint_watch import CheckpointPoller
from holdfast.node.devices.device_faults import DeviceFaults, DeviceUse
from holdfast.node.devices.run_fault_sources import WatchedJob
from holdfast.node.evidence_collector import MachineLog
from holdfast.node.leftover_notice import LeftoverNotice
from holdfast.node.node_part import NodePart
from holdfast.node.node_requests import AgentDriver, NodeParts, NodeRequests
from holdfast.node.optional_parts import checks_during, disk_cleaner, rendezvous_store, sides_of, torch_timers
from holdfast.node.prechecks.attempt_checks import AttemptChecks
from holdfast.node.signal_handler import SignalHandler
from holdfast.node.signal_pipe import Signals
from holdfast.node.stop_files import StopFiles
from holdfast.node.unended_ranks import UnendedRanks
from holdfast.node.worker_context import kept_out, nurseries, setting_of, streams
from holdfast.node.worker_output import WorkerOutput, watch_above
from holdfast.observe.kernel_log import KernelLog
from holdfast.observe.output_places import OutputPlaces
from holdfast.reactor import Reactor
from holdfast.record.job_directory import NOWHERE

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord
    from holdfast.model.evidence import AttemptEvidence
    from holdfast.wire.link_interface import OwnerLink


class NodeSide:
    """Runs one job on one machine: creates the node's parts and connects them."""

    def __init__(
        self,
        part: NodePart,
        out: OutputPlaces,
        *,
        agent: Agent,
        clock: Clock,
        reactor: Reactor,
        link: OwnerLink,
        write_agg: Callable[[AttemptRecord, AttemptEvidence], None],
    ) -> None:
        """Create the node's parts.

        `agent`: the node's agent. `link`: the connection to the owner. `write_agg`: writes OpenPAI's exit file
        (`runtime.pai.agg.error`) of an attempt.
        """
        launch, place, node = part.launch, part.place, part.node
        self._launch, self._place, self._node = launch, place, node
        self._reactor, self._say, self._logs = reactor, out.say, out.logs
        say = out.say
        agent_driver = AgentDriver(agent, reactor, link.report)
        self._groups = ControlGroups.make(place.tree or place.job_id)
        self._kernel = KernelLog(launch.faults.kernel_log, clock)
        self._out = WorkerOutput(launch, reactor, out, keeps_logs=place.home != NOWHERE)
        self._streams = streams(launch)
        self._store = rendezvous_store(launch, reactor, lambda: self._host.processes(), say)
        self._host = LocalHost(
            setting_of(launch, place, self._streams),
            reactor,
            self._out,
            agent_driver.learn,
            groups=self._groups,
            warm=nurseries(launch, reactor, say, place.home),
            store=self._store,
        )
        beside = sides_of(part, out, self._host, reactor, agent_driver.learn, link.report)
        agent_driver.serve(beside or self._host)
        site = launch.site(node.name, place.home)
        checks = AttemptChecks(
            launch.checks, launch.spec, site, reactor, say, self._host.ports.hold, launch.environment
        )
        self._faults = DeviceFaults(
            WatchedJob(launch.spec, launch.faults, node, place.home, place.directory),
            DeviceUse(
                placements=lambda: self._requests.view.placements,
                avoided=lambda: names_here(self._requests.view.avoid, self._node.name),
                rank_of=self._host.workers.rank_of,
            ),
            checker=checks,
            reactor=reactor,
            clock=clock,
            say=say,
        )
        during = checks_during(launch, site, reactor, lambda: self.running, say)
        timers = torch_timers(part, reactor, self._host, say)
        orders = StopFiles(reactor, place.logs, launch.catalogue, say)
        heard_at, pids = lambda: self._out.pump.heard_at, self._host.workers.pids
        saving = CheckpointPoller(heard_at, pids, (place.home, place.logs), reactor.now)
        grace_s = launch.spec.timers.grace_s
        self._signals = SignalHandler(Signals(), reactor, self._host, say, grace_s=grace_s, node=node.name)
        parts = NodeParts(
            host=self._host,
            groups=self._groups,
            machine=MachineLog(node.name, self._groups, self._kernel),
            output=self._out,
            store=self._store,
            signals=self._signals,
            checks=checks,
            faults=self._faults,
            checkpoints=saving,
            stops=orders,
            during=during,
            sidecars=beside,
        )
        self._requests = NodeRequests(part, parts, reactor, link, agent_driver, write_agg, say)
        #: Carries out a request from the owner now.
        self.take = self._requests.take
        #: Reserves the rendezvous port of an attempt and returns its address. The host in it is empty if only other
        #: nodes know this node's address.
        self.meet = self._host.meet
        #: Starts the sources of device faults in short steps, while nothing else is to do.
        self.listen = self._faults.listen
        unended = UnendedRanks(
            self._out.pump,
            lambda: self._host.workers.alive,
            self._requests.sampler,
            launch.spec.timers.leftover_s,
            lambda: self.running,
            reactor.now(),
            say,
        )
        #: The node's parts, in the order of closing.
        self._stations = (beside, self._store, self._requests, orders, timers, checks, self._faults, during, unended)
        left = LeftoverNotice(self._host.leftovers, say)
        timed = (checks, self._faults, during, self._host, self._out.pump, saving, unended, left)
        for station in (*timed, disk_cleaner(part, self._host, reactor.now(), say)):
            if station is not None:
                reactor.deadlines(station.next_wake, station.tick)

    def watch_guard(self, fd: int) -> None:
        """Watch the pipe with the guard's signals, and the outer process if there is one."""
        watch_above(fd, self._launch.outer, self._reactor, self._signals.by_guard, self._say)

    def open(self, now: float, *, knows_faults: bool) -> tuple[DeviceStanding, ...]:
        """Open the sources of device faults before the job is submitted. Return the devices that the job may not use.

        `knows_faults`: whether the fault log has entries.
        """
        self._faults.open(now)
        return kept_out(self._faults, self._place.home, self._node, now, self._say) if knows_faults else ()

    def warm_up(self, now: float) -> None:
        """If the user chose warm starts, start the processes that do the first attempt's imports during the
        pre-checks.
        """
        if (
            self._launch.warm is not None
            and (placements := place_ranks(self._launch.spec, (self._node,), ())) is not None
        ):
            self._host.warm_up(placements, now)

    @property
    def running(self) -> int | None:
        """Return the attempt whose workers are all up; None between attempts."""
        return self._requests.view.running

    def close(self) -> None:
        """End all processes of the job on this node, and close the node's parts."""
        # Do not kill the process that writes the logs: it exits after the last log is written.
        end_all(given_up() | ({self._logs.pid} if self._logs is not None else set()))
        for station in self._stations:
            if station is not None:
                station.close()
        self._groups.kill()
        self._groups.remove()
        self._kernel.close()
        self._out.pump.close(self._reactor.now())
        self._streams.close()
