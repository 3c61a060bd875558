"""`holdfast run --events`: prints the job's events as JSON lines on stdout while the job runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.explain.text.secret_filter import without_secrets
from holdfast.model import events as ev
from holdfast.model.codec import encode
from holdfast.model.event_lines import SCHEMA, EventKind, EventLine
from holdfast.model.faults import Remedy
from holdfast.model.human_format import counted
from holdfast.record.report_file import exit_report_object, to_json_object
from holdfast.safe_text import json_text

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.job_spec import JobSpec
    from holdfast.record.job_directory import JobPlace

#: A function that writes a line to stdout, from the line and the time. It never blocks: if the reader is slow, it drops
#: lines.
Out = Callable[[str, float], None]


class EventLines:
    """Prints the event lines of one run of a job.

    `place`: the job's directory and id. `now()`: seconds since the epoch. `out`: writes a line to stdout.
    """

    def __init__(self, spec: JobSpec, place: JobPlace, now: Callable[[], float], out: Out) -> None:
        self._job = {"id": place.job_id, "name": spec.name}
        self._now = now
        self._out = out
        self._attempt = 0
        self._begun = False

    def begin(self) -> None:
        """Print the event that the job has started, unless it was printed before."""
        if not self._begun:
            self._begun = True
            self._tell(EventKind.JOB_STARTED, "the job has started")

    def moved(self, view: GangView) -> None:
        """Print a change of the gang's phase."""
        self.begin()
        if view.attempt > self._attempt and view.placements:
            self._attempt = view.attempt
            nodes = list(dict.fromkeys(placement.node for placement in view.placements))
            text = f"attempt {view.attempt} begins with {counted(len(view.placements), 'rank')}"
            self._tell(EventKind.ATTEMPT_STARTED, text, attempt=view.attempt, ranks=len(view.placements), nodes=nodes)

    def handled(self, event: ev.Event) -> None:
        """Print the line for an event that the owner has handled. Most events have no line."""
        match event:
            case ev.NodeJoined():
                self._tell(EventKind.NODE_JOINED, f"node {event.node.name} has joined", node=event.node.name)
            case ev.NodeLeft():
                text = f"node {event.node} has left: {event.reason}"
                self._tell(EventKind.NODE_LOST, text, node=event.node, reason=event.reason)
            case ev.NodeSilent():
                reason = f"no word for {event.silent_s:.0f} s"
                self._tell(EventKind.NODE_LOST, f"node {event.node}: {reason}", node=event.node, reason=reason)
            case ev.HangFound():
                hang = event.evidence
                why = hang.why or f"nothing moved for {hang.silent_s:g} s"
                text, ranks = f"attempt {event.attempt} hangs: {why}", list(hang.culprits)
                self._tell(
                    EventKind.HANG_FOUND, text, attempt=event.attempt, why=why, ranks=ranks, silent_s=hang.silent_s
                )
            case ev.FaultSeen() if event.remedy is Remedy.HOLD:
                fault = event.fault
                text = f"{fault.device} of {fault.node} is HELD: {fault.code}"
                self._tell(EventKind.DEVICE_HELD, text, device=fault.device, node=fault.node, code=fault.code)
            case ev.StopRequested():
                asked = event.request
                text = f"a stop was requested: {asked.reason}"
                self._tell(EventKind.STOP_REQUESTED, text, reason=asked.reason, who=asked.who)
            case ev.EvidenceCollected():
                self._exits(event)
            case _:
                pass

    def recorded(self, record: AttemptRecord) -> None:
        """Print that the attempt has ended. Its record is complete now."""
        report, decision = record.report, record.decision
        made = {"report": exit_report_object(report), "decision": {"kind": decision.kind, "reason": decision.reason}}
        text = f"attempt {record.attempt} ended: {report.phrase}: {report.reason}"
        self._put(EventKind.ATTEMPT_ENDED, text, self._now(), {"attempt": record.attempt, **made})

    def finish(self, report: JobReport) -> None:
        """Print that the job has ended. Its report is complete now."""
        last = report.report
        text = f"the job {report.outcome.value}: {last.phrase}: {last.reason}"
        self._tell(EventKind.JOB_ENDED, text, outcome=report.outcome, code=last.code, report=to_json_object(report))

    def _exits(self, event: ev.EvidenceCollected) -> None:
        """Print the exits of workers that failed, but not of workers that holdfast stopped."""
        for worker in event.evidence.workers:
            ended = worker.exit
            if ended is None or ended.ok or ended.after_stop:
                continue
            how = f"signal {ended.signal}" if ended.signal is not None else f"exit status {ended.exit_code}"
            text = f"rank {worker.rank} on {worker.node}: {how}"
            what = {"role": worker.role, "node": worker.node, "status": ended.exit_code, "signal": ended.signal}
            body = {"attempt": event.attempt, "rank": worker.rank, **what}
            at = self._now() if ended.ended_at is None else ended.ended_at
            self._put(EventKind.WORKER_EXITED, text, at, body)

    def _tell(self, kind: EventKind, text: str, **body: Any) -> None:
        self._put(kind, text, self._now(), body)

    def _put(self, kind: EventKind, text: str, at: float, body: dict[str, Any]) -> None:
        line = without_secrets(EventLine(event=kind, at=at, text=text, body=body))
        head = {"schema": SCHEMA, "event": line.event, "at": line.at, "job": self._job, "text": line.text}
        self._out(json_text(encode({**head, **line.body}).decode()), self._now())
