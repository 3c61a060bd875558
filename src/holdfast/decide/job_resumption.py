"""Continues the attempts after the platform has started the job again. Ends the job if the platform refuses."""

from __future__ import annotations

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import LIVE, Phase, PhaseTrigger
from holdfast.model import events as ev
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.exit_report import Evidence, EvidenceKind

#: Maximum number of answers of the platform (Slurm or Kubernetes) that are kept as evidence about one attempt.
MOST_SAID = 16


class Resuming:
    """Continues the job after the platform has started it again.

    Attempt numbers, records, budgets and avoided devices carry over.
    """

    def __init__(self, course: GangState, speakers: AgentRegistry, draining: Draining, ending: AttemptRecorder) -> None:
        self._course = course
        self._speakers = speakers
        self._draining = draining
        self._ending = ending

    def resumed(self, event: ev.JobResumed, now: float) -> float | None:
        """Continue the job in a new run. Return the seconds during which no process of the job was alive.

        Return None if the owner already knows this run, or the job is over.
        """
        course = self._course
        if not course.submitted or course.phase is Phase.DONE or event.run <= course.run:
            return None
        course.caused_by_this()
        then = min(now, max(course.entered_at, course.handled_at, event.seen_at or 0.0))
        course.say(f"{event.platform} runs again, for the {_nth(event.run + 1)} time: {event.reason}")
        self._speakers.bury(course.known)
        course.resume(event)
        request = StopRequest(
            reason=event.reason,
            source=StopSource.PLATFORM,
            phrase=event.phrase,
            at=then,
            final=False,
            requeue=True,
        )
        words = f"{event.reason}; the job goes on in run {event.run + 1} of it"
        if course.phase in LIVE or course.phase is Phase.DRAINING:
            self._draining.cut_short(request, words, then, now)
        elif course.phase is Phase.CHECKING or (course.phase is Phase.ASSEMBLING and course.pending):
            course.trial.end_by(request)
            self._ending.record_unstarted(PhaseTrigger.RESUMED, then, DecisionKind.REQUEUE, words)
            course.pause_until(now)
            course.count_since(now)
        else:
            if course.phase is not Phase.BACKOFF:
                course.pause_until(now)
                course.move(PhaseTrigger.RESUMED, then, words)
            course.count_since(now)
        return now - then

    def refused(self, event: ev.RequeueRefused, now: float) -> None:
        """End the job with its present cause, because the platform refuses to start it again."""
        if self._course.phase is Phase.QUEUED and event.run == self._course.run:
            self._give_up(event.reason, now)

    def unanswered(self, now: float) -> None:
        """End the job, because the platform was asked to start it again and has not ended this run in time."""
        self._give_up(f"the platform was asked, and this run goes on {now - self._course.entered_at:.0f} s later", now)

    def _give_up(self, why: str, now: float) -> None:
        course = self._course
        assert course.asked is not None  # the request is stored by every transition to QUEUED
        course.caused_by_this()
        course.say(f"not queued again: {why}")
        course.move(PhaseTrigger.REFUSED, now, why)
        self._ending.finish(course.asked.report, course.asked.kind, f"not queued again: {why}")

    def said(self, event: ev.PlatformSaid) -> None:
        """Add the platform's answer to a query of the owner to the evidence of the attempt.

        Before the first attempt, add it to the evidence about nodes that do not join.
        """
        course = self._course
        awaited = course.pending or (course.phase is Phase.ASSEMBLING and not course.attempt)
        if event.attempt != course.attempt or not awaited or len(course.trial.said) >= MOST_SAID:
            return
        if event.node and event.node not in course.trial.nodes:
            return  # ignore an answer about a node that this attempt does not use
        at = course.trial.stop_asked_at
        words = Evidence(
            kind=EvidenceKind.PLATFORM,
            text=f"{event.subject}: {event.words}",
            source=event.command,
            at=at,
            node=event.node,
        )
        if words not in course.trial.said:
            course.trial.add_said(words)


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"
