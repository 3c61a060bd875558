"""The door of `holdfast run`: wires the stations together for one job on this machine, and carries it to its report."""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.act.console import Console, open_consoles
from holdfast.act.guard import end_all, guarded
from holdfast.act.local import Local, Setting
from holdfast.decide.agent import Agent
from holdfast.loop.check import CheckPlan
from holdfast.loop.checking import Checking
from holdfast.loop.clock import Clock
from holdfast.loop.control import Control
from holdfast.loop.evidence import Collector
from holdfast.loop.signals import Signals
from holdfast.loop.stations import Door, GuardWatch, Output, Processes, SignalDesk
from holdfast.loop.supervisor import Supervisor
from holdfast.model import events as ev
from holdfast.model.checks import Site
from holdfast.model.decisions import AttemptRecord, JobReport
from holdfast.model.exits import Blame
from holdfast.model.jobs import JobSpec, NodeInfo, Seat
from holdfast.observe.output import Pump, line_prefix
from holdfast.observe.std import StdChoice, shown
from holdfast.record import report_file
from holdfast.record.journal import Journal
from holdfast.record.places import JobPlace, claim


class Launch(msgspec.Struct, frozen=True):
    """What a run needs besides the job itself."""

    spec: JobSpec
    home: Path
    cwd: Path
    environment: Mapping[str, str]
    checks: CheckPlan
    redirects: StdChoice
    tee: StdChoice
    shown_ranks: frozenset[int] | None = None
    """Local ranks whose output goes to the terminal; None: all."""
    log_dir: Path | None = None
    report_path: Path | None = None
    as_json: bool = False
    run_id: str = ""
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    notes: tuple[str, ...] = ()
    """Lines to say first: options that have no meaning here."""


def run(launch: Launch) -> int:
    """Run the job under guard; the job's final code."""
    return guarded(lambda guard_fd: _supervise(launch, guard_fd))


def _supervise(launch: Launch, guard_fd: int) -> int:
    clock = Clock()
    place = claim(launch.home, name=launch.spec.name, now=clock.now())
    stdout, stderr = open_consoles()
    try:
        return _Run(launch, place, clock, guard_fd, stdout, stderr).carry()
    finally:
        for console in {stdout, stderr}:
            console.drain()
            console.close()
        place.lock.release()


class _WorkerOutput:
    """The platform's view of the pump: which of a worker's streams are shown, under which prefix."""

    def __init__(self, pump: Pump, launch: Launch) -> None:
        self._pump = pump
        self._launch = launch

    def add(self, seat: Seat, stdout_fd: int, stderr_fd: int, directory: Path) -> None:
        launch = self._launch
        out, err = shown(launch.redirects, launch.tee, seat.local_rank)
        visible = launch.shown_ranks is None or seat.local_rank in launch.shown_ranks
        self._pump.add(
            seat.rank,
            seat.role,
            stdout_fd,
            stderr_fd,
            directory,
            show_stdout=out and visible,
            show_stderr=err and visible,
            prefix=line_prefix(seat.role, seat.rank, seat.local_rank, launch.environment),
        )

    def finish(self, rank: int, now: float) -> None:
        self._pump.finish(rank, now)

    def tail(self, rank: int) -> str:
        return self._pump.tail(rank)


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
        self._node = socket.gethostname()
        self._selector = selectors.DefaultSelector()
        self._journal = Journal.open(place.home)
        self._logs = (launch.log_dir / place.job_id) if launch.log_dir else place.directory
        self._pump = Pump(self._selector, stdout, stderr, self._say, workers=launch.spec.world_size)
        site = Site(node=self._node, cwd=str(launch.cwd), home=str(place.home), workers=launch.spec.world_size)
        self._checking = Checking(launch.checks, launch.spec, site, self._selector)
        self._supervisor = self._wire(guard_fd)

    def _wire(self, guard_fd: int) -> Supervisor:
        launch, place = self._launch, self._place
        collector = Collector(
            self._logs,
            last_output_at=self._pump.last_output_at,
            memory_kills=lambda evidence: (),
            kernel_lines=lambda evidence: (),
        )
        supervisor = Supervisor(
            journal=self._journal,
            job_id=place.job_id,
            selector=self._selector,
            clock=self._clock,
            agent=Agent(self._node, boot=1),
            checker=self._checking,
            collect=collector.collect,
            say=self._say,
            on_record=self._recorded,
            on_finish=self._finished,
        )
        stdin = os.open(os.devnull, os.O_RDONLY) if sys.stdin is None or os.isatty(0) else 0
        platform = Local(
            Setting(
                spec=launch.spec,
                job_id=place.job_id,
                run_id=launch.run_id or place.job_id,
                home=place.home,
                logs=self._logs,
                cwd=launch.cwd,
                environment=launch.environment,
                master_addr=launch.master_addr,
                master_port=launch.master_port,
                stdin_fd=stdin,
            ),
            self._selector,
            _WorkerOutput(self._pump, launch),
            ours=self._checking.pids,
        )
        supervisor.platform = platform
        signals = Signals(self._selector)
        guard = GuardWatch(guard_fd, self._selector)
        door = Door(supervisor.post, self._clock.now)
        try:
            door.control = Control(place.directory, self._selector, door.take)
        except OSError as error:
            self._say(f"`holdfast stop {place.job_id}` will not reach this job ({error}); Ctrl-C and SIGTERM do")
        supervisor.attach(self._checking, self._checking)
        supervisor.attach(Processes(platform, supervisor.learn), platform)
        supervisor.attach(Output(self._pump), self._pump)
        supervisor.attach(SignalDesk(signals, platform, supervisor.learn), signals)
        supervisor.attach(guard, guard)
        supervisor.attach(door, *([door.control] if door.control else []))
        return supervisor

    def carry(self) -> int:
        """Run the job to its end; its final code."""
        launch, place, now = self._launch, self._place, self._clock.now()
        spec = launch.spec
        self._journal.create_job(place.job_id, spec, now=now, host=self._node, pid=os.getpid())
        for trouble in (place.trouble, self._journal.take_news(), *launch.notes):
            if trouble:
                self._say(trouble)
        self._say(f"job {place.job_id} ({spec.name}): {spec.world_size} workers, logs in {self._logs}")
        submitted = ev.JobSubmitted(
            job_id=place.job_id,
            spec=spec,
            nodes=(NodeInfo(name=self._node, slots=spec.world_size),),
            seed=secrets.randbits(32),
        )
        try:
            report = self._supervisor.run(submitted)
        finally:
            # Whatever went wrong above, a bug of ours included: nothing of the job is left behind.
            end_all()
            self._supervisor.close()
            self._pump.close(self._clock.now())
            self._journal.close()
            if news := self._journal.take_news():
                self._say(news)
        self._show(report)
        return report.report.code

    # ------------------------------------------------------------------------------------------ what is done when

    def _say(self, text: str) -> None:
        for line in text.splitlines():
            self._stderr.say(f"holdfast: {line}", self._clock.now())

    def _recorded(self, record: AttemptRecord) -> None:
        if record.report.blame in (Blame.HARDWARE, Blame.PLATFORM, Blame.NETWORK, Blame.STORAGE):
            self._checking.distrust()
        if record.report.code != 0:
            self._write_agg(record)

    def _write_agg(self, record: AttemptRecord) -> None:
        """`runtime.pai.agg.error`, for whoever reads OpenPAI's exit files."""
        from holdfast.explain.agg import agg_error_file  # only a failure needs it

        path = self._logs / f"attempt-{record.attempt}" / "runtime.pai.agg.error"
        evidence = self._supervisor.last_evidence
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(agg_error_file(record.report, evidence))
        except OSError as error:
            self._say(f"{path}: not written: {error.strerror}")

    def _finished(self, report: JobReport) -> None:
        try:
            report_file.write(self._place.home, report)
        except OSError as error:
            self._say(f"{self._place.directory}/report.json: not written: {error.strerror}")
        if self._launch.report_path is not None:
            try:
                report_file.write_to(self._launch.report_path, report)
            except OSError as error:
                self._say(f"{self._launch.report_path}: not written: {error.strerror}")

    def _show(self, report: JobReport) -> None:
        from holdfast.show.report import render

        if self._launch.as_json:
            text = msgspec.json.encode(report_file.to_json_object(report)).decode()
            self._stdout.say(text, self._clock.now())
            return
        colour = os.isatty(2) and "NO_COLOR" not in os.environ
        width = shutil.get_terminal_size((100, 24)).columns
        self._stderr.say(render(report, width=width, colour=colour), self._clock.now())
