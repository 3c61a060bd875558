"""Handles every reason for an attempt's end other than a worker's exit: a silent or lost node, a stop request, a device
fault, a hang, a failed check, a missed deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.decide import gang_wording
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.attempt_members import GONE
from holdfast.decide.attempt_timers import fetch_limit_s
from holdfast.decide.draining import Draining
from holdfast.decide.job_state import GangState
from holdfast.decide.phases import LIVE, Phase, PhaseTrigger
from holdfast.decide.placement import users
from holdfast.model import events as ev
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure, Deadline, LeftBehind, StopRequest, StopSource
from holdfast.model.faults import ActiveFault
from holdfast.model.gang_protocol import MemberState, Report
from holdfast.model.phrases import Phrase
from holdfast.model.sidecar_ends import hooks_before_s

#: The report gives the last known state of at most this many late workers.
LATE_NAMED = 8
#: The last reported state of a worker → the words for it in the report.
_HEARD_OF = {
    None: "was not heard of",
    MemberState.NONE: "had not begun",
    MemberState.BOOTING: "was being made ready",
    MemberState.PREPARED: "was ready and waited",
    MemberState.GOING: "was let go and did not run yet",
}


def _counts(before: StopRequest | None, request: StopRequest) -> bool:
    """Return whether `request` takes the place of the earlier stop request `before`.

    It does if there was no earlier request. It also does if an operator ends the job, and the earlier request ended
    only this run.
    """
    by_operator = request.phrase == Phrase.STOPPED_BY_OPERATOR and not request.requeue
    return before is None or (before.requeue and by_operator)


class AttemptFailures:
    """Handles the failures of an attempt, one method for each kind: records them for the report, and stops the attempt
    if necessary.
    """

    def __init__(self, gang: GangState, agents: AgentRegistry, draining: Draining, ending: AttemptRecorder) -> None:
        self._gang = gang
        self._agents = agents
        self._draining = draining
        self._ending = ending

    def forgotten(self, report: Report, now: float) -> None:
        """Stop an attempt that the owner's journal has lost. Stop it on every node, because the owner does not know its
        nodes.
        """
        gang = self._gang
        if gang.phase is Phase.DRAINING:
            self._draining.begin_again(now)
        elif gang.phase is not Phase.DONE:
            request = gang_wording.forgotten(report.node, report.attempt, now)
            self._draining.stop_for(request.reason, now, request)

    def lose(self, lost: LeftBehind, reason: str, now: float) -> None:
        """Stop the attempt because a node is lost with its workers. `reason`: the text for the user.
        `lost`: the node.
        """
        self._gang.attempt_state.lose(lost)
        self._draining.stop_for(reason, now)

    def silent(self, event: ev.NodeSilent, now: float) -> None:
        """Handle a node whose agent has been silent for a whole lease. Stop the attempt if it uses the node."""
        gang, attempt_state, node = self._gang, self._gang.attempt_state, event.node
        lost = LeftBehind(node=node, silent_s=event.silent_s, words_s=event.words_s)
        if gang.phase is Phase.CHECKING and node in attempt_state.asked:
            attempt_state.lose(lost)
        if node not in attempt_state.roster:
            return
        if gang.phase in LIVE:
            attempt_state.fall_silent(node, now - event.silent_s)
            attempt_state.lose(lost)
            self._draining.stop_for(f"no word from {node} for {event.silent_s:.0f} s", now)
        elif gang.phase is Phase.DRAINING:
            attempt_state.fall_silent(node, now - event.silent_s)
            self._draining.lose(lost)

    def left(self, event: ev.NodeLeft, now: float) -> None:
        """Handle a node that has left for good. Stop the attempt if it uses the node."""
        gang = self._gang
        gang.attempt_state.leave(event.node)
        lost = LeftBehind(node=event.node, silent_s=0.0, why=event.reason)
        if gang.phase is Phase.CHECKING and event.node in gang.attempt_state.asked:
            gang.attempt_state.lose(lost)
        if event.node not in gang.attempt_state.roster:
            return
        if gang.phase in LIVE:
            self.lose(lost, f"{event.node} has left: {event.reason}", now)
        else:
            self._draining.lose(lost)

    def asked_to_stop(self, request: StopRequest, now: float) -> None:
        """Handle a request of a user, a limit or a component to end the job or this attempt."""
        gang = self._gang
        if request.phrase == Phrase.TIME_LIMIT_REACHED and not gang.spec.requeue.at_time_limit:
            request = replace(request, requeue=False)
        if request.final and _counts(gang.stop, request) and gang.phase is not Phase.DONE:
            gang.end_with(request)
        if gang.phase in LIVE:
            self._draining.stop_for(request.reason, now, request)
        elif gang.phase is Phase.DRAINING:
            self._draining.ask_again(request, now)
        elif request.final and (gang.phase is Phase.CHECKING or (gang.phase is Phase.ASSEMBLING and gang.pending)):
            gang.caused_by_this()
            gang.say(f"stopping: {request.reason}")
            self._ending.finish_unstarted(PhaseTrigger.STOP_REQUESTED, now, DecisionKind.STOP, request.reason)
        elif request.final and (
            gang.phase in (Phase.BACKOFF, Phase.ASSEMBLING) or (gang.phase is Phase.QUEUED and not request.requeue)
        ):
            gang.caused_by_this()
            gang.say(f"stopping: {request.reason}")
            self._ending.finish_between(request, now)

    def fault(self, event: ev.FaultSeen, now: float) -> None:
        """Record a device fault as evidence, because it may explain a later exit. Stop the attempt if the fault's level
        demands it.
        """
        gang = self._gang
        fault = event.fault
        if event.avoid:
            gang.leave_out(gang.names_on(fault.node, event.avoid), event.why)
        gang.allow_resets(event.reset_s)
        if gang.phase not in LIVE and gang.phase is not Phase.DRAINING:
            return
        placements = [
            placement for placement in gang.attempt_state.roster.placements if fault.node in ("", placement.node)
        ]
        ranks = users(fault.device, placements, gang.nodes)
        mates = {rank for name in event.group for rank in users(name, placements, gang.nodes)}
        ranks = ranks or tuple(sorted(mates))
        if not ranks:
            return  # ignore the fault: no worker of this attempt uses the device
        stops = event.stop and gang.phase in LIVE
        gang.attempt_state.add_fault(
            ActiveFault(event=fault, remedy=event.remedy, ranks=ranks, stopped=stops, avoid=fault.device in event.avoid)
        )
        if stops:
            request = StopRequest(reason=event.why, source=StopSource.FAULT, at=now, save_s=event.save_s, final=False)
            self._draining.stop_for(event.why, now, request)

    def hung(self, event: ev.HangFound, now: float) -> None:
        """Stop the attempt because its ranks hang."""
        gang = self._gang
        if event.attempt == gang.attempt and gang.phase is Phase.RUNNING:
            gang.attempt_state.hang_found(event.evidence)
            why = f"nothing has moved for {event.evidence.silent_s:.0f} s: {event.evidence.why}"
            self._draining.stop_for(why, now)

    def check_failed(self, event: ev.CheckFailedRunning, now: float) -> None:
        """Stop the attempt because a check that runs beside the workers has failed."""
        gang = self._gang
        if event.attempt == gang.attempt and gang.phase is Phase.RUNNING:
            gang.attempt_state.fail_check(event.failure)
            self._draining.stop_for(f"check {event.failure.check} failed: {event.failure.message}", now)

    def overdue(self, now: float) -> None:
        """Handle the missed deadline of the present phase."""
        gang = self._gang
        timers, roster = gang.spec.timers, gang.attempt_state.roster
        if gang.phase is Phase.CHECKING:
            message = f"the checks did not finish within {timers.check_s + fetch_limit_s(gang.spec):g} s"
            gang.attempt_state.fail_check(CheckFailure(check="all", message=message, inconclusive=True))
            self._ending.finish_unstarted(PhaseTrigger.NONE_HEALTHY, now, DecisionKind.FAIL, message)
        elif gang.phase is Phase.PREPARING:
            limit_s = timers.prepare_s + hooks_before_s(gang.spec.runtime)
            self._late(Deadline.PREPARE, roster.missing(MemberState.PREPARED), limit_s, now)
        elif gang.phase is Phase.STARTING:
            self._late(Deadline.START, roster.missing(*GONE), timers.start_s, now)
        elif gang.phase is Phase.DRAINING:
            self._draining.overdue(now)

    def _late(self, what: Deadline, ranks: Sequence[int], limit_s: float, now: float) -> None:
        gang = self._gang
        gang.attempt_state.miss_deadline(what, ranks, [self._last_word(rank, now) for rank in ranks[:LATE_NAMED]])
        names = ", ".join(str(rank) for rank in ranks)
        self._draining.stop_for(f"ranks {names} were not ready within {limit_s:g} s ({what})", now)

    def _last_word(self, rank: int, now: float) -> str:
        """Return the last known state of a late rank as a clause:

        `ps 1 (rank 3) on gpu-2 was being made ready, and the last news of gpu-2 came 41 s before`
        """
        attempt_state = self._gang.attempt_state
        known = attempt_state.roster.members[rank]
        placement, state = known.placement, _HEARD_OF.get(known.state, f"was {known.state}")
        at = attempt_state.spoke.get(placement.node)
        news = (
            f"no news came from {placement.node}"
            if at is None
            else f"the last news of {placement.node} came {now - at:.0f} s before"
        )
        return f"{placement.role} {placement.role_rank} (rank {rank}) on {placement.node} {state}, and {news}"
