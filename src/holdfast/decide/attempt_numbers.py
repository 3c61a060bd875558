"""Ensures that no attempt's number is used twice.

An agent gets an attempt's number only once the record that begins the attempt survives a power cut. The disk or the
journal may still lose this record. Then an agent reports a higher number than the owner knows: the owner takes over
that number, and stops that attempt on every node.
"""

from __future__ import annotations

from holdfast.decide import gang_wording
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.actions import Secure
from holdfast.model.evidence import StopRequest
from holdfast.model.gang_protocol import Report


class AttemptNumbers:
    """Decides whether the present attempt's number may be used, and detects agents that run an attempt with a higher
    number."""

    def __init__(self, course: GangState, speakers: AgentRegistry) -> None:
        self._course = course
        self._speakers = speakers

    def may_prepare(self, now: float) -> bool:
        """Return whether PREPARE may be sent: the number is safe on disk, and no agent has it from an earlier owner.

        If the number is not safe yet, ask the journal to write it to disk. On one machine the owner need not wait for
        the disk, because a power cut would also end the workers.
        """
        course, trial = self._course, self._course.trial
        if course.many and not trial.sent:
            if self._speakers.may_be_waited_for(now) or self._speakers.outlived(course.attempt):
                return False
            if not trial.secured:
                course.emit(Secure(attempt=course.attempt, cause=course.cause))
                return False
        trial.mark_sent()
        return True

    def secured(self, event: ev.JournalSecured, now: float) -> StopRequest | None:
        """Handle the journal's answer whether the number is on disk. Return a request to end the job if the journal has
        failed for too long.
        """
        course = self._course
        if not event.trouble:
            course.trial.mark_secured()
        elif now >= course.entered_at + course.spec.timers.owner_wait_s:
            last = course.records[-1].report if course.records else None
            return gang_wording.unsaved(event.trouble, last, now)
        elif not course.trial.told_unsaved:
            course.trial.mark_told_unsaved()
            limit_s = course.spec.timers.owner_wait_s
            course.say(
                f"attempt {course.attempt} waits for the journal, at most {limit_s:g} s: over several nodes no attempt "
                f"begins that a lost owner could not know of; {event.trouble}"
            )
        return None

    def is_awaited(self, event: ev.JournalSecured) -> bool:
        course = self._course
        return event.attempt == course.attempt and course.phase is Phase.PREPARING and not course.trial.sent

    def is_ahead(self, report: Report) -> bool:
        """Return whether this agent runs an attempt that is missing in the owner's journal."""
        course = self._course
        before = (Phase.CHECKING, Phase.PREPARING, *([Phase.ASSEMBLING] if course.pending else []))
        unsent = course.phase in before and not course.trial.sent
        return report.attempt > course.highest or (unsent and report.attempt == course.attempt)

    def take(self, report: Report, now: float) -> None:
        """Take over the higher number that an agent has reported. That attempt may have processes on any node."""
        course = self._course
        course.raise_highest(report.attempt)
        if course.phase is Phase.DONE:
            # the agent ends this attempt without a command, because every acknowledgement names the last ended attempt
            # (`floor`)
            return
        if course.phase is Phase.BACKOFF or (course.phase is Phase.ASSEMBLING and not course.pending):
            course.adopt_highest(now)
        course.trial.drain_again(tuple(course.known))
