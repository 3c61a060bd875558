"""The door of `holdfast run`: wires the stations together for one job on this machine, and carries it to its report."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from holdfast.act.bounded import given_up
from holdfast.act.cgroups import Groups
from holdfast.act.console import Console, open_consoles
from holdfast.act.guard import end_all
from holdfast.act.linux import descendants
from holdfast.act.local import Local
from holdfast.act.setting import Setting
from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.decide.phases import Phase
from holdfast.decide.placement import place as place_ranks
from holdfast.errors import HoldfastError
from holdfast.loop.desk import SignalDesk
from holdfast.loop.devices.station import FaultStation
from holdfast.loop.devices.visible_devices import devices_here, kept_out_here, node_info
from holdfast.loop.given import place_for, refuse
from holdfast.loop.hosting import store_for
from holdfast.loop.order import Launch
from holdfast.loop.orders import KillOrders
from holdfast.loop.prechecks.station import Checking
from holdfast.loop.saving import Saving
from holdfast.loop.signals import Signals
from holdfast.loop.stations import Door, GuardWatch, WorkerOutput
from holdfast.loop.supervisor import Supervisor, without_secrets
from holdfast.loop.workplace import nurseries, streams, surroundings_of, timers_of, with_timers
from holdfast.model import events as ev
from holdfast.model.decisions import AttemptRecord
from holdfast.model.evidence import AttemptEvidence, MemoryKill
from holdfast.model.exits import Blame, Evidence
from holdfast.model.faults import DeviceStanding
from holdfast.observe.kernel_log import KernelLog
from holdfast.observe.memory import MemoryWatch
from holdfast.observe.output import Pump
from holdfast.plain import own_lines
from holdfast.reactor import Reactor, Timed
from holdfast.record.journal import Journal
from holdfast.record.local_time import local
from holdfast.record.places import NOWHERE, JobPlace

if TYPE_CHECKING:
    from holdfast.loop.cleaning import Cleaning, Limit
    from holdfast.loop.control import Control
    from holdfast.loop.hanging import Hanging
    from holdfast.loop.prechecks.during import DuringChecks
    from holdfast.loop.rehearsal import Rehearsal
    from holdfast.loop.telling import Telling
    from holdfast.model.checks import Site


T = TypeVar("T", bound=Timed)


def run(launch: Launch, guard_fd: int) -> int:
    """Run the job in this process, which is under guard; the job's final code."""
    gc.freeze()  # what is there now stays, and is never looked through again
    gc.enable()
    clock = Clock()
    try:
        place = place_for(launch, clock.now())
    except HoldfastError as error:
        return refuse(error)
    stdout, stderr = open_consoles()
    try:
        return _Run(launch, place, clock, guard_fd, stdout, stderr).carry()
    finally:
        stdout.drain()
        if stdout is not stderr and (missing := stdout.missing()):
            stderr.say(f"holdfast: {missing}; all of it is in {place.logs}, the report in {place.directory}")
        stderr.drain()
        for console in {stdout, stderr}:
            console.close()
        place.lock.release()


class _Run:
    """One job's stations, and what is done when an attempt or the job is over."""

    def __init__(
        self, launch: Launch, place: JobPlace, clock: Clock, guard_fd: int, stdout: Console, stderr: Console
    ) -> None:
        self._launch = launch
        self._place = place
        self._clock = clock
        self._stdout = stdout
        self._stderr = stderr
        self._node = os.uname().nodename
        self._reactor = Reactor(clock.now)
        self._journal = Journal.open(place.home, clock=clock.now)
        self._logs = place.logs
        self._groups = Groups.make(place.job_id)
        self._kernel = KernelLog(launch.faults.kernel_log, clock)
        self._memory: MemoryWatch | None = None
        self._hanging: Hanging | None = None
        self._rehearsal: Rehearsal | None = None
        self._place_info = node_info(self._node, launch.spec, devices_here(launch.environment))
        shown = stderr if launch.as_json else stdout  # with --json our stdout holds one JSON object and nothing else
        self._pump = Pump(self._reactor, shown, stderr, self._say, workers=launch.spec.world_size)
        site = launch.site(self._node, place.home)
        self._checking = Checking(launch.checks, launch.spec, site, self._reactor, self._say)
        self._during = self._checks_during(site)
        self._supervisor = self._wire(guard_fd)

    def _wire(self, guard_fd: int) -> Supervisor:
        launch, place = self._launch, self._place
        self._faults = FaultStation(
            launch.faults,
            home=place.home,
            job_dir=place.directory,
            node=self._place_info,
            spec=launch.spec,
            checker=self._checking,
            reactor=self._reactor,
            clock=self._clock,
            seats=lambda: self._supervisor.gang.view().seats,
            avoided=lambda: set(self._supervisor.gang.view().avoid),
            rank_of=self._rank_of,
            say=self._say,
        )
        supervisor = Supervisor(
            catalogue=launch.catalogue,
            journal=self._journal,
            job_id=place.job_id,
            reactor=self._reactor,
            agent=Agent(self._node, boot=1),
            checker=self._faults,
            collect=self._collect,
            say=self._say,
            on_phase=self._entered,
            on_record=self._recorded,
            on_finish=lambda report: self._telling().finished(report),
        )
        self._streams = streams(launch)
        warm = nurseries(launch, self._reactor, self._say, place.home)
        self._store = store_for(launch, self._reactor, lambda: self._platform.processes(), self._say)
        platform = Local(
            Setting(
                spec=launch.spec,
                job_id=place.job_id,
                run_id=launch.run_id or place.job_id,
                home=place.home,
                logs=self._logs,
                cwd=launch.cwd,
                environment=with_timers(launch, self._place.directory),
                master_addr=launch.master_addr,
                master_port=launch.master_port,
                virtual_local_rank=launch.virtual_local_rank,
                streams=self._streams,
            ),
            self._reactor,
            WorkerOutput(self._pump, launch),
            supervisor.learn,
            groups=self._groups,
            warm=warm,
            store=self._store,
        )
        self._platform = platform
        if launch.disk_limit is not None:
            self._timed(self._cleaner(platform, launch.disk_limit))
        if launch.spec.hang_timeout_s is not None:
            self._hanging = self._timed(self._hang_station(supervisor, platform, launch.spec.hang_timeout_s))
        supervisor.platform = platform
        ours = (str(place.home), str(self._logs))
        self._saving = self._timed(Saving(lambda: self._pump.heard_at, platform.pids, ours, self._clock.now))
        signals = Signals()
        self._orders = KillOrders(self._reactor, self._logs, launch.catalogue, self._say)
        self._timers = timers_of(launch, place.directory, platform, self._reactor, self._rank_of, self._say)
        self._timed(self._checking)
        self._timed(self._faults)
        if self._during is not None:
            self._timed(self._during)
        self._timed(platform)
        self._timed(self._pump)
        self._desk = SignalDesk(signals, self._reactor, platform, self._say, grace_s=launch.spec.timers.grace_s)
        GuardWatch(guard_fd, self._reactor, self._desk.by_guard)
        self._door = Door(
            self._control, self._reactor, supervisor.post, supervisor.gang, self._faults.refresh, launch.catalogue
        )
        return supervisor

    def _timed(self, station: T) -> T:
        """Have the reactor ask for its deadlines."""
        self._reactor.deadlines(station.next_wake, station.tick)
        return station

    def _close(self) -> None:
        """Give back what the stations hold."""
        stations = (self._store, self._hanging, self._orders, self._timers, self._checking, self._faults, self._during)
        for station in (*stations, self._door):
            if station is not None:
                station.close()

    def _control(self, door: Door) -> Control | None:
        from holdfast.loop.control import Control as Socket

        try:
            made = Socket(self._place.directory, self._reactor, door.take)
        except OSError as error:
            job = self._place.job_id
            self._say(f"`holdfast stop {job}` will not reach this job ({error}); Ctrl-C and SIGTERM do")
            return None
        return made

    def _cleaner(self, platform: Local, limit: Limit) -> Cleaning:
        from holdfast.loop.cleaning import Cleaning

        return Cleaning.of_job(
            limit, self._place, self._launch.cwd, platform.processes, now=self._clock.now(), say=self._say
        )

    def _hang_station(self, supervisor: Supervisor, platform: Local, timeout_s: float) -> Hanging:
        from holdfast.loop.hanging import Hanging as Station

        gang = supervisor.gang
        names = self._launch.names()
        return Station(
            timeout_s,
            self._reactor,
            running=lambda: gang.view().running,
            pids=platform.pids,
            last_output_at=self._pump.last_output_at,
            progress_file=lambda attempt, rank: self._logs / f"attempt-{attempt}" / names[rank] / "progress",
            held_back=lambda: self._pump.paused,
            want_last_words=platform.want_last_words,
        )

    def _checks_during(self, site: Site) -> DuringChecks | None:
        if self._launch.checks is None:
            return None
        from holdfast.loop.prechecks.during import DuringChecks, during

        plan = during(self._launch.checks)
        if plan is None:
            return None
        return DuringChecks(plan, self._launch.spec, site, self._reactor, self._running_attempt, self._say)

    def carry(self) -> int:
        """Run the job to its end; its final code."""
        launch, place, now = self._launch, self._place, self._clock.now()
        spec = launch.spec
        self._journal.create_job(place.job_id, without_secrets(spec), now=now, host=self._node, pid=os.getpid())
        for trouble in (place.trouble, self._journal.take_news(), *launch.notes):
            if trouble:
                self._say(trouble)
        workers = "1 worker" if spec.world_size == 1 else f"{spec.world_size} workers"
        self._say(f"job {place.job_id} ({spec.name}): {workers}, logs in {self._logs}")
        self._faults.open(now)
        submitted = ev.JobSubmitted(
            job_id=place.job_id,
            spec=spec,
            nodes=(self._place_info,),
            kept_out=self._kept_out(now),
            seed=int.from_bytes(os.urandom(4)),
            utc_offset_s=local(now),
        )
        if launch.warm is not None and (seats := place_ranks(spec, submitted.nodes, ())) is not None:
            self._platform.warm_up(seats, now)
        try:
            report = self._supervisor.run(submitted)
        finally:
            # Whatever went wrong above, a bug of ours included: nothing of the job is left behind.
            end_all(given_up())
            self._close()
            self._groups.kill()
            self._groups.remove()
            self._kernel.close()
            self._pump.close(self._clock.now())
            self._streams.close()
            self._journal.close()
            if news := self._journal.take_news():
                self._say(news)
        self._telling().show(report)
        return report.report.code

    # ------------------------------------------------------------------------------------------ what is done when

    def _say(self, text: str) -> None:
        if self._place.home == NOWHERE and str(NOWHERE) in text:
            return  # the first line said that no file is kept: each file that is missing is no news
        self._stderr.say("\n".join(own_lines(text)), self._clock.now())

    def _entered(self, phase: Phase) -> None:
        gang, now = self._supervisor.gang, self._clock.now()
        self._saving.entered(phase, now)
        if phase is Phase.PREPARING:  # what the counters of memory kills say now is where this attempt begins
            self._memory = MemoryWatch(self._groups.container, self._kernel)
        elif phase is Phase.STARTING:
            if self._groups.unlimited:
                self._say(self._groups.unlimited)
        elif phase is Phase.RUNNING:
            self._rehearse(now)
            if self._hanging is not None:
                self._hanging.begin(gang.attempt, now)
            if self._during is not None:
                self._during.begin(now)
        self._orders.entered(phase, gang.attempt, now)
        for event in self._faults.entered(phase, now):
            self._supervisor.post(event)

    def _rehearse(self, now: float) -> None:
        if self._rehearsal is None:
            from holdfast.loop.rehearsal import Rehearsal  # no start needs it

            self._rehearsal = Rehearsal(self._is_running, self._faults.listen, self._say)
            self._timed(self._rehearsal)
        self._rehearsal.begin(now)

    def _telling(self) -> Telling:
        from holdfast.loop.telling import Telling  # no start needs it

        return Telling(self._launch, self._place, self._clock.now, self._stdout, self._stderr, self._say)

    def _kept_out(self, now: float) -> tuple[DeviceStanding, ...]:
        if not self._journal.holds_faults():
            return ()
        try:
            found = kept_out_here(self._place.home, self._place_info, now)
        except HoldfastError as error:
            self._say(f"what is known of this machine's devices cannot be read: {error.message}")
            return ()
        reset_first = self._faults.awaiting_reset([stands.device for stands in found], now)
        for stands in found:
            if stands.device in reset_first:
                self._say(f"{stands.device} is {stands.standing} and is reset before the start: {stands.reason}")
        return tuple(stands for stands in found if stands.device not in reset_first)

    def _rank_of(self, pid: int) -> int | None:
        """The rank whose process this is, or was in this attempt."""
        for member in self._supervisor.gang.view().members:
            if member.exit is not None and member.exit.pid == pid:
                return member.seat.rank
        tops = self._platform.pids()
        return next((rank for rank, top in tops.items() if pid == top or pid in descendants(top)), None)

    def _running_attempt(self) -> int | None:
        return self._supervisor.gang.view().running

    def _is_running(self) -> bool:
        return self._supervisor.gang.phase is Phase.RUNNING

    def _collect(self, known: AttemptEvidence, completed: bool) -> AttemptEvidence:
        """All that is known, with the faults that overlapped the attempt, those included that are read only now."""
        from holdfast.loop.evidence import Collector  # no start needs it

        collector = Collector(
            self._logs,
            first_output_at=self._pump.first_output_at,
            last_output_at=self._pump.last_output_at,
            memory_kills=self._memory_kills,
            kernel_lines=self._kernel_lines,
            store_trouble=self._store.trouble if self._store is not None else lambda attempt: "",
        )
        since = self._supervisor.gang.view().started_at
        evidence = collector.collect(known, completed, since)
        if completed:
            return evidence
        around = surroundings_of(evidence, self._launch)
        evidence = replace(
            evidence, passed_on=self._desk.passed_on(since), surroundings=around, checkpoints=self._saving.finished()
        )
        for event in self._faults.last_words(self._clock.now()):
            self._supervisor.post(event)
        return self._faults.complete(evidence, since, self._clock.now())

    def _memory_kills(self, evidence: AttemptEvidence) -> tuple[MemoryKill, ...]:
        groups = self._groups.memory_groups(evidence.attempt)
        assert self._memory is not None, "whatever ended was prepared"
        kills = self._memory.kills(self._pids_of(evidence), self._supervisor.gang.view().started_at, groups)
        self._groups.remove()
        return tuple(replace(kill, node=self._node) for kill in kills)

    def _kernel_lines(self, evidence: AttemptEvidence) -> tuple[Evidence, ...]:
        pids = frozenset(pid for known in self._pids_of(evidence).values() for pid in known)
        lines = self._kernel.lines(self._supervisor.gang.view().started_at, pids=pids)
        return tuple(replace(line, node=self._node) for line in lines)

    def _pids_of(self, evidence: AttemptEvidence) -> dict[int, frozenset[int]]:
        return {
            worker.rank: frozenset({worker.exit.pid})
            for worker in evidence.workers
            if worker.exit is not None and worker.exit.pid is not None
        }

    def _recorded(self, record: AttemptRecord) -> None:
        if record.report.blame in (Blame.HARDWARE, Blame.PLATFORM, Blame.NETWORK, Blame.STORAGE):
            self._checking.distrust()
        if record.report.code != 0:
            self._telling().write_agg(record, self._supervisor.last_evidence)
