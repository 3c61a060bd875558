"""Writes the record of an attempt's end, and the one report of the job."""

from __future__ import annotations

from holdfast.decide import gang_wording
from holdfast.decide.attempt_record import outcome
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.job_state import GangState, PendingRequeue
from holdfast.decide.phases import Phase, PhaseTrigger
from holdfast.decide.requeue_rules import ANSWER_S, RequeueBudget, requeues
from holdfast.explain import explain
from holdfast.model.actions import Requeue
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, CheckFailure, Deadline, GangShortfall, StopRequest
from holdfast.model.exit_report import ExitReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.human_format import clock

#: The decisions after which another attempt follows in this run.
AGAIN = (DecisionKind.RESTART, DecisionKind.REPLACE)


class AttemptRecorder:
    """Writes the records of attempts and the report of the job."""

    def __init__(self, course: GangState) -> None:
        self._course = course

    def record(self, record: AttemptRecord) -> None:
        course = self._course
        course.record(record)
        # After every other decision the job ends, and its report prints all of this.
        if record.decision.kind in (*AGAIN, DecisionKind.REQUEUE):
            why = f"{record.report.phrase}: {record.report.reason}"
            course.say(f"attempt {record.attempt}: {why}; decision: {record.decision.reason}")

    def finish(self, report: ExitReport, kind: DecisionKind) -> None:
        course = self._course
        course.finish(
            JobReport(
                job_id=course.job_id,
                name=course.spec.name,
                outcome=outcome(kind, report),
                report=report,
                attempts=tuple(course.records),
            )
        )

    def finish_between(self, request: StopRequest, now: float) -> None:
        """End the job for a stop request between two attempts, or queue the job again if the request allows that."""
        course = self._course
        left = self.requeues() if course.phase is not Phase.QUEUED and request.requeue else None
        if left is not None and left.refusal is None:
            course.count_requeue()
            course.move(PhaseTrigger.REQUEUE, now, request.reason)
            self.queue(now, f"{left.cost()}: {request.reason}", self._stopped(request), DecisionKind.STOP)
            return
        course.move(PhaseTrigger.STOP_REQUESTED, now, request.reason)
        self.finish_stopped(request)

    def finish_stopped(self, request: StopRequest) -> None:
        """Finish the job as stopped. The record of its last attempt keeps that attempt's own cause."""
        self.finish(self._stopped(request), DecisionKind.STOP)

    def _stopped(self, request: StopRequest) -> ExitReport:
        course = self._course
        evidence = AttemptEvidence(attempt=course.attempt, stop=request, phase=course.phase, job=course.job_id)
        return explain(evidence, course.catalogue)

    def finish_unstarted(
        self,
        trigger: PhaseTrigger,
        now: float,
        kind: DecisionKind,
        reason: str,
        cause: ExitReport | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """End the job, or queue it again, because an attempt ends during its checks. The attempt gets its report.

        `trigger`, `kind`, `reason`: the transition and the decision if the job ends. `cause`: the job's report, if it
        is not this attempt's. `elsewhere`: the job could continue with other nodes.
        """
        course = self._course
        if course.stop is not None:
            course.trial.end_by(course.stop)
        left = self.requeues() if elsewhere or (course.stop is not None and course.stop.requeue) else None
        if left is not None and left.refusal is None:
            trigger, kind, reason = PhaseTrigger.REQUEUE, DecisionKind.REQUEUE, f"{left.cost()}: {reason}"
        elif left is not None:
            reason = left.instead(reason)
        report = self.record_unstarted(trigger, now, kind, reason)
        if kind is DecisionKind.REQUEUE:
            fallen = DecisionKind.FAIL if course.stop is None else DecisionKind.STOP
            self.queue(now, reason, cause or report, fallen)
        else:
            self.finish(cause or report, kind)

    def record_unstarted(self, trigger: PhaseTrigger, now: float, kind: DecisionKind, reason: str) -> ExitReport:
        """Record an attempt that ended before it had workers."""
        course, trial = self._course, self._course.trial
        report = explain(trial.evidence(Phase.CHECKING, course.job_id), course.catalogue)
        course.move(trigger, now, reason)
        record = AttemptRecord(
            attempt=course.attempt,
            started_at=trial.started_at,
            ended_at=now,
            report=report,
            decision=Decision(kind=kind, reason=reason),
            parts=dict(trial.parts),
            checks=trial.checks,
        )
        self.record(record)
        return report

    def finish_without_places(self, now: float, why: str = "") -> None:
        """End the job, or queue it again, because the next attempt has too few healthy places. The last cause stays.

        `why`: the reason, if it is not the lack of healthy places.
        """
        course, failure, left = self._course, self.too_few(), self.requeues()
        report = course.records[-1].report if course.records else None
        if report is None:
            evidence = AttemptEvidence(attempt=1, check=failure, phase=Phase.CHECKING, job=course.job_id)
            report = explain(evidence, course.catalogue)
        reason = why or failure.message
        if left.refusal is None:
            last = course.records[-1] if course.records else None
            if last is None or last.decision.charged or last.attempt <= course.began_after:
                course.count_requeue()  # otherwise the decision on that attempt has paid for it
            course.move(PhaseTrigger.REQUEUE, now, reason)
            self.queue(now, reason, report, DecisionKind.FAIL)
            return
        course.say(left.instead(reason))
        course.move(PhaseTrigger.NONE_HEALTHY, now, reason)
        self.finish(report, DecisionKind.FAIL)

    def requeues(self) -> RequeueBudget:
        """Return the platform's remaining budget for another run of the job."""
        return requeues(self._course.spec, self._course.records, self._course.unrecorded)

    def queue(self, now: float, reason: str, report: ExitReport, kind: DecisionKind) -> None:
        """Ask the platform to start the job again (QUEUED). `report`, `kind`: how the job ends if it refuses."""
        course = self._course
        course.ask_requeue(PendingRequeue(reason, report, kind))
        course.arm(TimerKind.DEADLINE, now + ANSWER_S)
        self.ask_again(reason)

    def ask_again(self, reason: str) -> None:
        """Send the request to the platform, or repeat it. The platform takes equal requests for one."""
        course = self._course
        names = {course.node_of(name) for name in course.avoid}
        # If all other nodes fell silent at once, the link of the owner's machine failed, not these nodes.
        names |= {course.trial.cut_off} if course.trial.cut_off else set(course.absent)
        without = tuple(sorted(name for name in names if name in course.known))
        course.emit(Requeue(run=course.run, reason=reason, without=without, cause=course.cause))

    def finish_unassembled(self, muster: GangShortfall, now: float) -> None:
        """End the job because too few nodes joined for a first attempt. `muster`: which nodes joined."""
        course = self._course
        said = tuple(course.trial.said)
        evidence = AttemptEvidence(
            deadline=Deadline.JOIN, muster=muster, phase=course.phase, job=course.job_id, platform=said
        )
        report = explain(evidence, course.catalogue)
        course.move(PhaseTrigger.NONE_HEALTHY, now, report.reason)
        course.say(f"not started: {report.reason}")
        self.finish(report, DecisionKind.FAIL)

    def say_who_outstayed(self, evidence: AttemptEvidence) -> None:
        """Print the ranks that did not exit within the grace period."""
        from holdfast.explain.grace_kills import fate, outstayed  # imported late: no start needs it

        if ranks := outstayed(evidence):
            self._course.say(f"attempt {self._course.attempt}: {fate(ranks, evidence)}")

    def too_few(self) -> CheckFailure:
        course = self._course
        return gang_wording.too_few_places(course.spec, course.nodes, course.avoid, course.kept_out, self._day)

    def _day(self, kept: DeviceStanding) -> str:
        return "unknown" if kept.since is None else clock(kept.since, lambda _: self._course.utc_offset_s)
