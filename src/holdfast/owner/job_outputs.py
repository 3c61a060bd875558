"""The outputs of a run that users choose with options: event lines, notices and a metrics file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.model import events as ev
from holdfast.model.faults import Remedy
from holdfast.owner.event_output import EventLines, Out
from holdfast.owner.metrics_file import MetricsFile
from holdfast.owner.notice_sender import Notices

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace


class JobOutputs:
    """Passes a job's progress to the outputs that the user chose."""

    def __init__(
        self,
        launch: LaunchSpec,
        place: JobPlace,
        reactor: Reactor,
        say: Callable[[str], None],
        out: Out,
        unsaved_bytes: Callable[[], int],
    ) -> None:
        """Create the outputs that the user chose.

        `launch`: the options that choose outputs. `place`: the job's directory. `say`: prints a message. `out`: writes
        lines to stdout. `unsaved_bytes()`: the bytes of the journal that are only in memory.
        """
        self._lines: EventLines | None = None
        if launch.as_events:
            self._lines = EventLines(launch.spec, place, reactor.now, out)
        self._metrics: MetricsFile | None = None
        if launch.metrics_path is not None:
            self._metrics = MetricsFile(place.home, launch.metrics_path, reactor, say, unsaved_bytes)
        self._notices: Notices | None = None
        if launch.notices is not None:
            self._notices = Notices(launch.notices, launch.spec, place, reactor, say)

    def begin(self, earlier: Sequence[AttemptRecord] | None) -> None:
        """Start all outputs. `earlier`: the attempts of a job that this owner continues; None: the job is new."""
        if self._notices is not None:
            self._notices.begin(earlier)
        if self._lines is not None:
            self._lines.begin()

    def moved(self, view: Callable[[], GangView]) -> None:
        """Pass a new phase of the gang to the outputs, and also the takeover of a job by this owner."""
        if self._metrics is not None:
            self._metrics.changed()
        if self._lines is not None:
            self._lines.moved(view())

    def handled(self, event: ev.Event) -> None:
        """Pass an event that the owner has handled to the outputs."""
        if self._lines is not None:
            self._lines.handled(event)
        if self._notices is None:
            return
        if isinstance(event, ev.FaultSeen) and event.remedy is Remedy.HOLD:
            self._notices.held(event.fault)
        elif isinstance(event, ev.HangFound):
            self._notices.hangs(event.attempt, event.evidence)

    def recorded(self, record: AttemptRecord) -> None:
        """Pass the record of an ended attempt to the outputs."""
        if self._metrics is not None:
            self._metrics.changed()
        if self._notices is not None:
            self._notices.attempt(record)
        if self._lines is not None:
            self._lines.recorded(record)

    def finish(self, report: JobReport | None, take: Callable[[News], None]) -> None:
        """Pass the job's report to the outputs, and wait a limited time for each. `report`: None: the job goes on in
        another run. `take`: handles events meanwhile.
        """
        if self._lines is not None and report is not None:
            self._lines.finish(report)
        if self._notices is not None:
            self._notices.finish(report, take)
        if self._metrics is not None:
            self._metrics.finish(take)

    def close(self) -> None:
        """Close all outputs, because the job is over."""
        if self._metrics is not None:
            self._metrics.close()
        if self._notices is not None:
            self._notices.close()
