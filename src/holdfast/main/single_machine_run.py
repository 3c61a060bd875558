"""Implements `holdfast run` on one machine: connects the owner and the node of one job, and runs it to its report."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from holdfast.act.console import Console, open_consoles
from holdfast.clock import Clock
from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.owner import Owner
from holdfast.errors import HoldfastError
from holdfast.launch.launch_spec import LaunchSpec
from holdfast.main.job_preparation import job_directory_for, refuse
from holdfast.node.devices.visible_devices import devices_here, node_info
from holdfast.node.node_part import NodePart
from holdfast.node.node_side import NodeSide
from holdfast.observe.output_places import OutputPlaces
from holdfast.owner.idle_reporter import IdleReporter
from holdfast.owner.job_records import JobRecords, first_events
from holdfast.owner.node_queries import NodeQueries
from holdfast.owner.owner_side import OwnerPrinter, OwnerSide
from holdfast.platforms.platform import QUEUED_AGAIN
from holdfast.platforms.platform_registry import node_called
from holdfast.reactor import Reactor
from holdfast.record.job_directory import NOWHERE, JobPlace
from holdfast.safe_text import own_lines
from holdfast.wire.in_process_link import InProcess

if TYPE_CHECKING:
    from holdfast.node.report_writer import ReportWriter
    from holdfast.owner.node_queries import NodeQueries


def run(launch: LaunchSpec, guard_fd: int) -> int:
    """Run the job in this guarded process. Return the job's final code."""
    gc.freeze()  # the garbage collector then never scans the objects that exist now
    gc.enable()
    clock = Clock()
    try:
        place = job_directory_for(launch, clock.now())
    except HoldfastError as error:
        return refuse(error)
    stdout, stderr = open_consoles()
    try:
        return _SingleMachineJob(launch, place, clock, stdout, stderr).carry(guard_fd)
    finally:
        stdout.drain()
        if stdout is not stderr and (missing := stdout.missing()):
            stderr.say(f"holdfast: {missing}; all of it is in {place.logs}, the report in {place.directory}")
        stderr.drain()
        for console in {stdout, stderr}:
            console.close()
        place.lock.release()


class _SingleMachineJob:
    """One job with everything that owner and node share: a directory, a terminal and a reactor."""

    def __init__(self, launch: LaunchSpec, place: JobPlace, clock: Clock, stdout: Console, stderr: Console) -> None:
        self._launch = launch
        self._place = place
        self._clock = clock
        self._reactor = Reactor(clock.now)
        self._stdout = stdout
        self._stderr = stderr

    def carry(self, guard_fd: int) -> int:
        """Run the job to its end. Return its final code."""
        launch, place, reactor, now = self._launch, self._place, self._reactor, self._reactor.now()
        link, name = InProcess(), node_called(launch.environment) or os.uname().nodename
        machine = node_info(name, launch.spec, devices_here(launch.environment))
        records = JobRecords(place, reactor.now, self._writer, self._say)
        questions: NodeQueries | IdleReporter | None = None
        if launch.spec.hang_timeout_s is not None:
            questions = NodeQueries(link, reactor, launch.spec, lambda word: owner.report(word))
        elif after_s := launch.spec.hang_warning_s:
            questions = IdleReporter(link, reactor, after_s, lambda word: owner.report(word), self._say, place.logs)
        judge = Owner(Gang(launch.catalogue))
        ears = questions or link
        printer = OwnerPrinter(self._say, self._stdout.say)
        owner = OwnerSide(launch, reactor, ears, records, lambda now: node.listen(now), printer, judge)
        # With --json or --events, stdout is only for JSON.
        shown = self._stderr if launch.prints_json else self._stdout
        node = NodeSide(
            NodePart(launch, place, machine),
            OutputPlaces(stdout=shown, stderr=self._stderr, say=self._say),
            agent=Agent(name, boot=1 + place.run),  # later runs of the job get higher boot numbers
            clock=self._clock,
            reactor=reactor,
            link=link,
            write_agg=lambda record, evidence: self._writer().write_agg(record, evidence),
        )
        node.watch_guard(guard_fd)
        link.join((questions or owner).report, {name: node.take})
        opened = ((machine,), lambda: node.open(now, knows_faults=records.knows_faults()))
        first = first_events(launch, place, records, judge, now, *opened)
        node.warm_up(now)
        try:
            owner.begin(first)
            report = owner.run()
        finally:
            # Close both even after an internal error, so that no process of the job is left.
            node.close()
            owner.close()
        if report is None:
            return QUEUED_AGAIN
        return self._writer().show(report)

    def _say(self, text: str) -> None:
        if self._place.home == NOWHERE and str(NOWHERE) in text:
            return  # the first line of output has already warned the user that no files are kept
        self._stderr.say("\n".join(own_lines(text)), self._reactor.now())

    def _writer(self) -> ReportWriter:
        from holdfast.node.report_writer import ReportWriter  # imported late: a start does not need it

        return ReportWriter(self._launch, self._place, self._reactor.now, self._stdout, self._stderr, self._say)
