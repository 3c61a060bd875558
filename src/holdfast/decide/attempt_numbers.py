"""Makes sure that no two attempts have the same number.

The owner sends an attempt's number to agents only after the record of the attempt's start is safe from a power cut. If
the disk or the journal loses the record all the same, an agent reports a higher number than the owner knows. The owner
then takes over that number, and stops that attempt on every node.
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
    """Decides whether agents may get the present attempt's number, and detects agents with a higher number."""

    def __init__(self, gang: GangState, agents: AgentRegistry) -> None:
        self._gang = gang
        self._agents = agents

    def may_prepare(self, now: float) -> bool:
        """Return whether the owner may send PREPARE: the number is safe on disk, and no earlier owner has sent it to an
        agent.

        If the number is not safe yet, request the journal to write it to disk. A job on one machine does not wait for
        the disk, because a power cut would end the workers too.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        if gang.many and not attempt_state.sent:
            if self._agents.may_be_waited_for(now) or self._agents.outlived(gang.attempt):
                return False
            if not attempt_state.secured:
                gang.emit(Secure(attempt=gang.attempt, cause=gang.cause))
                return False
        attempt_state.mark_sent()
        return True

    def secured(self, event: ev.JournalSecured, now: float) -> StopRequest | None:
        """Handle the journal's answer whether the number is on disk. Return a request to end the job if the journal has
        failed for too long.
        """
        gang = self._gang
        if not event.trouble:
            gang.attempt_state.mark_secured()
        elif now >= gang.entered_at + gang.spec.timers.owner_wait_s:
            last = gang.records[-1].report if gang.records else None
            return gang_wording.unsaved(event.trouble, last, now)
        elif not gang.attempt_state.told_unsaved:
            gang.attempt_state.mark_told_unsaved()
            limit_s = gang.spec.timers.owner_wait_s
            gang.say(
                f"attempt {gang.attempt} waits for the journal, at most {limit_s:g} s: over several nodes no attempt "
                f"begins that a lost owner could not know of; {event.trouble}"
            )
        return None

    def is_awaited(self, event: ev.JournalSecured) -> bool:
        gang = self._gang
        return event.attempt == gang.attempt and gang.phase is Phase.PREPARING and not gang.attempt_state.sent

    def is_ahead(self, report: Report) -> bool:
        """Return whether the agent runs an attempt that the owner's journal has lost."""
        gang = self._gang
        before = (Phase.CHECKING, Phase.PREPARING, *([Phase.ASSEMBLING] if gang.pending else []))
        unsent = gang.phase in before and not gang.attempt_state.sent
        return report.attempt > gang.highest or (unsent and report.attempt == gang.attempt)

    def take(self, report: Report, now: float) -> None:
        """Take over the higher attempt number that an agent has reported. Any node may have processes of that
        attempt.
        """
        gang = self._gang
        gang.raise_highest(report.attempt)
        if gang.phase is Phase.DONE:
            # The agent ends this attempt without a command: every acknowledgement contains the last ended attempt
            # (`floor`).
            return
        if gang.phase is Phase.BACKOFF or (gang.phase is Phase.ASSEMBLING and not gang.pending):
            gang.adopt_highest(now)
        gang.attempt_state.drain_again(tuple(gang.known))
