"""How an attempt's end is written down, and how the job gets its one report."""

from __future__ import annotations

from holdfast.decide import words
from holdfast.decide.course import Course
from holdfast.decide.phases import Phase, Trigger
from holdfast.explain import explain
from holdfast.model.actions import FinishJob, RecordAttempt
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, CheckFailure, Deadline, Muster, StopRequest
from holdfast.model.exits import ExitReport
from holdfast.model.faults import DeviceStanding
from holdfast.model.in_words import clock

AGAIN = (DecisionKind.RESTART, DecisionKind.REPLACE)
"""Decisions that another attempt follows."""


class Ending:
    """Writes the records of attempts and the report of the job."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def record(self, record: AttemptRecord) -> None:
        course = self._course
        course.records.append(record)
        course.out.append(RecordAttempt(record=record, cause=course.cause))
        if record.decision.kind is not DecisionKind.SUCCEED:
            course.say(f"attempt {record.attempt}: {record.report.phrase}: {record.report.reason}")
            # The reason of another attempt begins with which restart it is.
            kind = "" if record.decision.kind in AGAIN else f"{record.decision.kind}: "
            course.say(f"attempt {record.attempt}: decision: {kind}{record.decision.reason}")

    def finish(self, report: ExitReport, kind: DecisionKind) -> None:
        from holdfast.decide.conclude import outcome  # no start needs it

        course = self._course
        course.report = JobReport(
            job_id=course.job_id,
            name=course.spec.name,
            outcome=outcome(kind, report),
            report=report,
            attempts=tuple(course.records),
        )
        course.out.append(FinishJob(report=course.report, cause=course.cause))

    def finish_stopped(self, request: StopRequest) -> None:
        """A person, or a limit, ended the job; what its last attempt died of stands in that attempt's record."""
        course = self._course
        evidence = AttemptEvidence(attempt=course.attempt, stop=request, phase=course.phase, job=course.job_id)
        self.finish(explain(evidence, course.catalogue), DecisionKind.STOP)

    def finish_unstarted(
        self, trigger: Trigger, now: float, kind: DecisionKind, reason: str, cause: ExitReport | None = None
    ) -> None:
        """The attempt ends while its checks are out: it has a report like any other. `cause`: of the job, if other."""
        course, trial = self._course, self._course.trial
        trial.stop = course.stop
        report = explain(trial.evidence(Phase.CHECKING, course.job_id), course.catalogue)
        course.move(trigger, now, reason)
        record = AttemptRecord(
            attempt=course.attempt,
            started_at=trial.started_at,
            ended_at=now,
            report=report,
            decision=Decision(kind=kind, reason=reason),
            parts=trial.parts,
            checks=trial.checks,
        )
        self.record(record)
        self.finish(cause or report, kind)

    def finish_without_places(self, now: float, why: str = "") -> None:
        """Too few healthy places for the next attempt: the last cause stays the cause."""
        course, failure = self._course, self.too_few()
        course.say(why or failure.message)
        course.move(Trigger.NOBODY_HEALTHY, now, why or failure.message)
        report = course.records[-1].report if course.records else None
        if report is None:
            evidence = AttemptEvidence(attempt=1, check=failure, phase=Phase.CHECKING, job=course.job_id)
            report = explain(evidence, course.catalogue)
        self.finish(report, DecisionKind.FAIL)

    def finish_unassembled(self, muster: Muster, now: float) -> None:
        """Too few nodes came for a first attempt."""
        course = self._course
        evidence = AttemptEvidence(deadline=Deadline.JOIN, muster=muster, phase=course.phase, job=course.job_id)
        report = explain(evidence, course.catalogue)
        course.move(Trigger.NOBODY_HEALTHY, now, report.reason)
        course.say(f"not started: {report.reason}")
        self.finish(report, DecisionKind.FAIL)

    def too_few(self) -> CheckFailure:
        course = self._course
        return words.too_few_places(course.spec.world_size, course.avoid, course.kept_out, self._day)

    def _day(self, kept: DeviceStanding) -> str:
        return "unknown" if kept.since is None else clock(kept.since, lambda _: self._course.utc_offset_s)
