"""Continues a job after the platform has started it again, or ends the job if the platform refuses."""

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

#: The evidence about one attempt has at most this many answers of the platform (Slurm or Kubernetes).
MOST_SAID = 16


class Resuming:
    """Continues a job after the platform has started it again.

    Attempt numbers, records, budgets and avoided devices carry over to the new run.
    """

    def __init__(self, gang: GangState, agents: AgentRegistry, draining: Draining, ending: AttemptRecorder) -> None:
        self._gang = gang
        self._agents = agents
        self._draining = draining
        self._ending = ending

    def resumed(self, event: ev.JobResumed, now: float) -> float | None:
        """Continue the job in a new run. Return how many seconds passed without any process of the job.

        Return None if the owner already knows this run, or if the job is over.
        """
        gang = self._gang
        if not gang.submitted or gang.phase is Phase.DONE or event.run <= gang.run:
            return None
        gang.caused_by_this()
        then = min(now, max(gang.entered_at, gang.handled_at, event.seen_at or 0.0))
        gang.say(f"{event.platform} runs again, for the {_nth(event.run + 1)} time: {event.reason}")
        self._agents.bury(gang.known)
        gang.resume(event)
        request = StopRequest(
            reason=event.reason,
            source=StopSource.PLATFORM,
            phrase=event.phrase,
            at=then,
            final=False,
            requeue=True,
        )
        words = f"{event.reason}; the job goes on in run {event.run + 1} of it"
        if gang.phase in LIVE or gang.phase is Phase.DRAINING:
            self._draining.cut_short(request, words, then, now)
        elif gang.phase is Phase.CHECKING or (gang.phase is Phase.ASSEMBLING and gang.pending):
            gang.attempt_state.end_by(request)
            self._ending.record_unstarted(PhaseTrigger.RESUMED, then, DecisionKind.REQUEUE, words)
            gang.pause_until(now)
            gang.count_since(now)
        else:
            if gang.phase is not Phase.BACKOFF:
                gang.pause_until(now)
                gang.move(PhaseTrigger.RESUMED, then, words)
            gang.count_since(now)
        return now - then

    def refused(self, event: ev.RequeueRefused, now: float) -> None:
        """End the job with its present cause, because the platform refuses another run."""
        if self._gang.phase is Phase.QUEUED and event.run == self._gang.run:
            self._give_up(event.reason, now)

    def unanswered(self, now: float) -> None:
        """End the job, because the platform has not ended this run in time. The owner had requested another run."""
        self._give_up(f"the platform was asked, and this run goes on {now - self._gang.entered_at:.0f} s later", now)

    def _give_up(self, why: str, now: float) -> None:
        gang = self._gang
        assert gang.asked is not None  # every transition to QUEUED stores the request
        gang.caused_by_this()
        gang.say(f"not queued again: {why}")
        gang.move(PhaseTrigger.REFUSED, now, why)
        self._ending.finish(gang.asked.report, gang.asked.kind, f"not queued again: {why}")

    def said(self, event: ev.PlatformSaid) -> None:
        """Add the platform's answer to the evidence about the attempt.

        Before the first attempt, add it to the evidence about nodes that do not join.
        """
        gang = self._gang
        awaited = gang.pending or (gang.phase is Phase.ASSEMBLING and not gang.attempt)
        if event.attempt != gang.attempt or not awaited or len(gang.attempt_state.said) >= MOST_SAID:
            return
        if event.node and event.node not in gang.attempt_state.nodes:
            return  # ignore an answer about a node that this attempt does not use
        at = gang.attempt_state.stop_asked_at
        words = Evidence(
            kind=EvidenceKind.PLATFORM,
            text=f"{event.subject}: {event.words}",
            source=event.command,
            at=at,
            node=event.node,
        )
        if words not in gang.attempt_state.said:
            gang.attempt_state.add_said(words)


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"
