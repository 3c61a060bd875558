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

    def __init__(self, gang: GangState, speakers: AgentRegistry) -> None:
        self._gang = gang
        self._speakers = speakers

    def may_prepare(self, now: float) -> bool:
        """Return whether PREPARE may be sent: the number is safe on disk, and no agent has it from an earlier owner.

        If the number is not safe yet, ask the journal to write it to disk. On one machine the owner need not wait for
        the disk, because a power cut would also end the workers.
        """
        gang, trial = self._gang, self._gang.trial
        if gang.many and not trial.sent:
            if self._speakers.may_be_waited_for(now) or self._speakers.outlived(gang.attempt):
                return False
            if not trial.secured:
                gang.emit(Secure(attempt=gang.attempt, cause=gang.cause))
                return False
        trial.mark_sent()
        return True

    def secured(self, event: ev.JournalSecured, now: float) -> StopRequest | None:
        """Handle the journal's answer whether the number is on disk. Return a request to end the job if the journal has
        failed for too long.
        """
        gang = self._gang
        if not event.trouble:
            gang.trial.mark_secured()
        elif now >= gang.entered_at + gang.spec.timers.owner_wait_s:
            last = gang.records[-1].report if gang.records else None
            return gang_wording.unsaved(event.trouble, last, now)
        elif not gang.trial.told_unsaved:
            gang.trial.mark_told_unsaved()
            limit_s = gang.spec.timers.owner_wait_s
            gang.say(
                f"attempt {gang.attempt} waits for the journal, at most {limit_s:g} s: over several nodes no attempt "
                f"begins that a lost owner could not know of; {event.trouble}"
            )
        return None

    def is_awaited(self, event: ev.JournalSecured) -> bool:
        gang = self._gang
        return event.attempt == gang.attempt and gang.phase is Phase.PREPARING and not gang.trial.sent

    def is_ahead(self, report: Report) -> bool:
        """Return whether this agent runs an attempt that is missing in the owner's journal."""
        gang = self._gang
        before = (Phase.CHECKING, Phase.PREPARING, *([Phase.ASSEMBLING] if gang.pending else []))
        unsent = gang.phase in before and not gang.trial.sent
        return report.attempt > gang.highest or (unsent and report.attempt == gang.attempt)

    def take(self, report: Report, now: float) -> None:
        """Take over the higher number that an agent has reported. That attempt may have processes on any node."""
        gang = self._gang
        gang.raise_highest(report.attempt)
        if gang.phase is Phase.DONE:
            # the agent ends this attempt without a command, because every acknowledgement names the last ended attempt
            # (`floor`)
            return
        if gang.phase is Phase.BACKOFF or (gang.phase is Phase.ASSEMBLING and not gang.pending):
            gang.adopt_highest(now)
        gang.trial.drain_again(tuple(gang.known))
