"""Writes an owner's records: each event (with secrets masked), a report for each attempt, and a report for the job.

It also creates the owner's first events: the job's submission, or its continuation after the platform has started it
again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.explain.text.secret_filter import collected_without_secrets, without_secrets
from holdfast.model import events as ev
from holdfast.model.events import Event, JobResumed, JobSubmitted
from holdfast.model.human_format import counted
from holdfast.record.journal import Journal
from holdfast.record.local_time import local
from holdfast.wire.fault_news import SOCKET_NAME

if TYPE_CHECKING:
    from holdfast.decide.owner import Owner
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.faults import DeviceStanding
    from holdfast.model.job_spec import NodeInfo, NodePlan
    from holdfast.node.report_writer import ReportWriter
    from holdfast.record.job_directory import JobPlace


class JobRecords:
    """The journal and the reports of one job.

    `place`: the job's directory. `clock()`: seconds since the epoch. `writer()`: creates the report writer, when the
    first report is written. `say`: prints a message.
    """

    def __init__(
        self,
        place: JobPlace,
        clock: Callable[[], float],
        writer: Callable[[], ReportWriter],
        say: Callable[[str], None],
    ) -> None:
        self.place = place
        self._writer = writer
        self._say = say
        self._journal = Journal.open(place.home, clock=clock)
        self._journal.of_run(place.job_id, place.run)

    @property
    def unsaved_bytes(self) -> int:
        """The number of journal bytes that are only in memory, because the journal's file could not be written."""
        return self._journal.unsaved_bytes

    def begin(self, launch: LaunchSpec, now: float, host: str) -> None:
        """Record the job in the journal, and print the messages that come before its start.

        `launch`: the job to run. `host`: the name of this machine.
        """
        spec, job_id = launch.spec, self.place.job_id
        self._journal.create_job(job_id, without_secrets(spec), now=now, host=host, pid=os.getpid())
        for trouble in (self.place.trouble, self._journal.take_news(), *launch.notes):
            if trouble:
                self._say(trouble)
        workers = counted(spec.world_size, "worker")
        if spec.nodes.names:
            # Do not print the number of workers, because it may differ between the listed hosts.
            workers = f"on {_nodes(spec.nodes)}"
        elif spec.nodes.many:
            workers += f" on {'each of ' if spec.roles[0].per_node else ''}{_nodes(spec.nodes)}"
        self._say(f"job {job_id} ({spec.name}): {workers}, logs in {self.place.logs}")

    def begin_again(self, launch: LaunchSpec, now: float, host: str, attempt: int) -> None:
        """Continue the records of the job's earlier runs.

        `launch`: the job to run. `host`: the name of this machine. `attempt`: the number of the last attempt so far.
        """
        self._journal.begin_run(self.place.job_id, self.place.run, host=host, pid=os.getpid())
        for trouble in (self._journal.take_news(), *launch.notes):
            if trouble:
                self._say(trouble)
        after = f"after attempt {attempt}" if attempt else "before its first attempt"
        self._say(f"job {self.place.job_id} ({launch.spec.name}) goes on {after}, logs in {self.place.logs}")

    def knows_faults(self) -> bool:
        """Return whether the state directory has a record of any fault of this machine's devices."""
        return self._journal.holds_faults()

    def write(self, event: ev.Event, now: float) -> ev.Event:
        """Write an event to the journal before the owner handles it. Return the event with secrets masked; the owner
        handles this one.
        """
        kept = collected_without_secrets(event) if isinstance(event, ev.EvidenceCollected) else without_secrets(event)
        self._journal.append(self.place.job_id, now, kept)
        self._tell_news()
        # The owner needs the job's command line with its secrets, so this event is not masked.
        return event if isinstance(event, ev.JobSubmitted) else kept

    def history(self) -> Iterator[tuple[float, ev.Event]]:
        """Return all journaled events of the job with their times, those of earlier owners included."""
        return self._journal.events(self.place.job_id)

    def secure(self) -> str:
        """Flush the journal to disk, so that it survives a power cut. Return why that failed; empty if it worked."""
        if self._journal.is_taken_over(self.place.job_id):
            return "a later run of this job has taken its journal over"
        return self._journal.secure()

    def attempt(self, record: AttemptRecord) -> None:
        self._journal.record_attempt(self.place.job_id, record)

    def finish(self, report: JobReport, now: float) -> None:
        self._journal.finish(report, now=now)
        if self.place.lock.supervisor.platform is not None and self._journal.is_taken_over(self.place.job_id):
            self._say("a later run of this job has taken it over: this run's report is not the job's")
            return
        self._writer().finished(report)

    def close(self) -> None:
        self._journal.close()
        self._tell_news()

    def _tell_news(self) -> None:
        if news := self._journal.take_news():
            self._say(news)


def _nodes(plan: NodePlan) -> str:
    """Describe the number of nodes, for example as `3 nodes` or `2 to 4 nodes and 1 spare`."""
    count = f"{plan.most}" if plan.least == plan.most else f"{plan.least} to {plan.most}"
    spares = f" and {plan.spares} spare{'s'[: plan.spares != 1]}" if plan.spares else ""
    return f"{count} node{'s'[: plan.most != 1]}{spares}"


# --------------------------------------------------------------------------------------- the first events of an owner


def first_events(
    launch: LaunchSpec,
    place: JobPlace,
    records: JobRecords,
    owner: Owner,
    now: float,
    nodes: tuple[NodeInfo, ...] = (),
    kept_out: Callable[[], tuple[DeviceStanding, ...]] = tuple,
) -> list[Event]:
    """Record in the journal that the job begins or continues, and return the owner's first events.

    `nodes`: the nodes that are present from the start. `kept_out()`: their devices that may take no work.
    """
    host = os.uname().nodename
    if place.resumed and (history := list(records.history())):
        # imported late, because only a restarted job has a history
        from holdfast.platforms.job_takeover import resumption

        # The earlier run created this socket file, and nothing listens on it now.
        (place.directory / SOCKET_NAME).unlink(missing_ok=True)
        owner.recover(history, now)
        view = owner.gang.view()
        records.begin_again(launch, now, host, view.attempt)
        return resumption(launch, place, view, history, nodes=nodes, kept_out=kept_out())
    records.begin(launch, now, host=host)
    submitted = JobSubmitted(
        job_id=place.job_id,
        spec=launch.spec,
        nodes=nodes,
        kept_out=kept_out(),
        seed=int.from_bytes(os.urandom(4)),
        utc_offset_s=local(now),
        run=place.run,
    )
    return [submitted]


def of_this_run(history: Sequence[tuple[float, Event]], run: int) -> Sequence[Event]:
    """Return the events of this run of the job; none if no owner has started in this run."""
    for index, (_, event) in enumerate(history):
        if isinstance(event, JobSubmitted | JobResumed) and event.run == run:
            return [event for _, event in history[index:]]
    return []
