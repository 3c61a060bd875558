"""The gang: the only state machine that starts, stops and restarts workers. It takes events and returns actions.

It reads no clock, file or random number. Callers pass in `now`, and jitter follows from the job's recorded seed, so
replaying the journal gives the same actions. A late report about an older attempt only counts as proof that the older
attempt has stopped. It changes nothing in a newer attempt. `phases.TABLE` lists all transitions. `AttemptState` has the
state of one attempt.

This file maps each event to a handler. The handlers are in `attempt_start`, `node_commands`, `attempt_numbers` (which
number may be used), `agent_registry` (each node's present agent), `attempt_failures` (ends of an attempt other than a
worker's exit), `node_changes` (nodes join, leave or come back; a restarted owner), `job_resumption` (another run of the
job) and `draining` (from a stop to a decision). They share `GangState` and `AttemptState`; only those two write their
own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, assert_never

from holdfast.decide import gang_wording
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import AttemptRecorder
from holdfast.decide.attempt_failures import AttemptFailures
from holdfast.decide.attempt_members import AttemptMembers, KnownRank, fates
from holdfast.decide.attempt_numbers import AttemptNumbers
from holdfast.decide.attempt_start import AttemptStart
from holdfast.decide.attempt_timers import AttemptTimers, TimerKind, soonest
from holdfast.decide.draining import AttemptJudge, Draining
from holdfast.decide.gang_view import GangView, view_of
from holdfast.decide.job_resumption import Resuming
from holdfast.decide.job_state import GangState
from holdfast.decide.node_changes import Nodes
from holdfast.decide.node_commands import Orders
from holdfast.decide.phases import LIVE, Phase, PhaseTrigger
from holdfast.explain import first_hand, is_wordless
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.evidence import LeftBehind
from holdfast.model.gang_protocol import MemberState, Report
from holdfast.model.human_format import everyone
from holdfast.model.job_spec import Placement

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue

#: The job's time limit does not end the job in these phases, because they end soon without it.
UNLIMITED = (Phase.DRAINING, Phase.QUEUED)


class Gang(GangState):
    """The state machine of one job. The first event must be `JobSubmitted`."""

    def __init__(
        self,
        catalogue: Catalogue | None = None,
        *,
        timers: Callable[[], AttemptTimers] = AttemptTimers,
        roster: Callable[[tuple[Placement, ...]], AttemptMembers] = AttemptMembers,
        agents: Callable[[GangState], AgentRegistry] = AgentRegistry,
        numbers: Callable[[GangState, AgentRegistry], AttemptNumbers] = AttemptNumbers,
        draining: Callable[[GangState, AgentRegistry, Orders, AttemptRecorder, AttemptJudge], Draining] = Draining,
        judge: AttemptJudge | None = None,
    ) -> None:
        """`catalogue`: the rows that explain exits; None: the built-in rows.

        The other parameters are the classes of the gang's parts; tests replace them.
        """
        super().__init__(catalogue, timers=timers, roster=roster)
        self.agents = agents(self)
        self._numbers = numbers(self, self.agents)
        self._orders = Orders(self, self.agents, self._numbers)
        self._ending = AttemptRecorder(self)
        self._draining = draining(self, self.agents, self._orders, self._ending, judge or AttemptJudge())
        self._beginning = AttemptStart(self, self._orders, self._ending, self._draining)
        self._troubles = AttemptFailures(self, self.agents, self._draining, self._ending)
        self._resuming = Resuming(self, self.agents, self._draining, self._ending)
        self._nodes = Nodes(
            self, self.agents, self._orders, self._beginning, self._ending, self._draining, self._troubles
        )
        self._limit_at: float | None = None
        self._view: GangView | None = None

    # ---------------------------------------------------------------------------- entry points: events and queries

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Handle one event at `now` (seconds). Return the resulting actions in the order to perform them."""
        self._view = None
        self.begin_event(event)
        match event:
            case ev.JobSubmitted():
                self._submitted(event, now)
            case ev.ChecksFinished():
                self._beginning.checked(event, now)
            case ev.AgentReported():
                self._reported(event.report, now)
            case ev.NodeSilent():
                if self.agents.speaks(event.node, event.boot):
                    self._nodes.silent(event, now)
            case ev.NodeFenced():
                if self.agents.speaks(event.node, event.boot):
                    self.agents.busy.pop(event.node, None)
                    self._draining.fence(event.node, now)
            case ev.NodeSignalled():
                pass  # do nothing: the platform must first say what the signal means, in another event
            case ev.StopRequested():
                self._troubles.asked_to_stop(event.request, now)
            case ev.FaultSeen():
                self._troubles.fault(event, now)
            case ev.NodeJoined():
                self._nodes.joined(event, now)
            case ev.NodeLeft():
                self._nodes.left(event, now)
            case ev.ChecksMoved():
                pass  # ignore the event: only readers of the journal need it
            case ev.CheckFailedRunning():
                self._troubles.check_failed(event, now)
            case ev.HangFound():
                self._troubles.hung(event, now)
            case ev.EvidenceCollected():
                if self.is_asked_for(event):
                    self._draining.understand(event.evidence, now)
            case ev.HooksFinished():
                self._draining.after_hooks.finished(event, now)
            case ev.JournalSecured():
                self._secured(event, now)
            case ev.OwnerRecovered():
                self._nodes.owner_is_back(now)
            case ev.JobResumed():
                away_s = self._resuming.resumed(event, now)
                if away_s is not None and self._limit_at is not None:
                    self._limit_at += away_s  # the time between two runs of the job does not count for its time limit
            case ev.PlatformSaid():
                self._resuming.said(event)
            case ev.RoomChanged():
                self._nodes.room_changed(event, now)
            case ev.RequeueRefused():
                self._resuming.refused(event, now)
            case ev.Tick():
                self._tick(now)
            case _:
                assert_never(event)
        return self.end_event(now)

    def next_wake(self) -> float | None:
        """Return when the gang needs its next `Tick`, in seconds on the clock of `now`; None: only after another
        event.
        """
        if self.phase is Phase.DONE or not self.submitted:
            return None
        wakes = [self.timers.next_due(self.attempt, self.phase)]
        if self.phase is Phase.BACKOFF:
            wakes.append(self.due)
        if self.phase not in UNLIMITED:
            wakes.append(self._limit_at)
        return soonest(wakes)

    def floor(self, node: str) -> int:
        """Return the newest attempt that has certainly ended on this node. Acknowledgements to the node's agent contain
        this number.
        """
        drained = self.phase is Phase.DRAINING and self.agents.is_stopped(node)
        between = self.phase in (Phase.BACKOFF, Phase.QUEUED, Phase.DONE) or (
            self.phase is Phase.ASSEMBLING and not self.pending
        )
        return self.highest if drained or between else self.attempt - 1

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        """Return whether the gang still waits for this evidence. It ignores evidence about older attempts, and evidence
        after the deadline.
        """
        return self._draining.is_asked_for(event)

    def view(self) -> GangView:
        """Return the gang's present state as a frozen snapshot. Until the next event the result is the same object."""
        if self._view is None:
            self._view = view_of(self, self.agents, self.next_wake())
        return self._view

    # -------------------------------------------------------------------------- handling events before PREPARING

    def _submitted(self, event: ev.JobSubmitted, now: float) -> None:
        if self.submitted:
            return
        self.submit(event, now)
        for kept in event.kept_out:
            self.say(f"{kept.device} is {kept.standing} and gets no work: {kept.reason}")
        if event.spec.time_limit_s is not None:
            self._limit_at = now + event.spec.time_limit_s
        self._beginning.begin(now)

    def _secured(self, event: ev.JournalSecured, now: float) -> None:
        if not self._numbers.is_awaited(event):
            return
        if request := self._numbers.secured(event, now):
            self.end_with(self.stop or request)
            self._draining.stop_for(request.reason, now, request)
        elif not event.trouble:
            self._orders.send(now)

    # --------------------------------------------------------------------------------- handling an agent's report

    def _reported(self, report: Report, now: float) -> None:
        if self.agents.is_of_before(report):
            self.count_stale()
            return
        anew = self.agents.hear(report)
        self.attempt_state.hear(report.node, now)
        if self.absent:
            self._nodes.heard(report.node, now)
        if report.term > self.term:
            self.raise_term(report.term)  # another owner ran meanwhile, and this journal does not have its restart
        mine = report.node in self.attempt_state.roster
        if anew and self._nodes.agent_is_back(report.node, now):
            return
        if self._numbers.is_ahead(report):
            self._numbers.take(report, now)
            self._troubles.forgotten(report, now)
        elif report.attempt != self.attempt:
            self.count_stale()
        elif mine and self.phase in LIVE:
            self._advance(self.attempt_state.roster.take(report, now), now)
        elif mine and self.phase is Phase.DRAINING:
            self.attempt_state.roster.take(report, now)
        if (
            mine
            and self.phase in LIVE
            and report.stopped >= self.attempt
            and not self.attempt_state.roster.all_done_on(report.node)
        ):
            # The agent's lease ended because no acknowledgement of the owner came in time, so the agent stopped the
            # workers. The node is up, and is not to blame.
            why = f"no word of the owner reached it for {self.spec.timers.lease_s:g} s, so its agent stopped them"
            lost = LeftBehind(node=report.node, silent_s=0.0, why=why, back=True)
            self._troubles.lose(lost, f"{report.node} lost its workers: {why}", now)
        if self.phase is Phase.DRAINING:
            self._draining.look(now)

    def _advance(self, fallen: Sequence[KnownRank], now: float) -> None:
        roster = self.attempt_state.roster
        if fallen:
            self._failure(fallen, now)
        if self.phase is Phase.PREPARING and roster.all_ready():
            self.move(PhaseTrigger.ALL_PREPARED, now, "all prepared")
            self.attempt_state.let_go(now)
            self.arm(TimerKind.DEADLINE, now + self.spec.timers.start_s)
            self._orders.send(now)
        # A change of phase would drop the timer that waits for a peer's report.
        if self.phase is Phase.STARTING and roster.all_gone() and not self.armed(TimerKind.PEER_WAIT):
            self.move(PhaseTrigger.ALL_UP, now, "all up")
            is_up = "is up" if len(roster.placements) == 1 else "are up"
            self.say(f"attempt {self.attempt}: {everyone(len(roster.placements), 'worker')} {is_up}")
            if self.spec.nodes.grow:
                self._nodes.grow(now)
        if self.phase is Phase.RUNNING and roster.verdict(self.spec) is True:
            self._draining.complete(now)

    def _failure(self, fallen: Sequence[KnownRank], now: float) -> None:
        """Handle newly failed workers. A worker's own error stops the gang at once.

        If a worker only blames a peer, or gives no reason, wait a moment for the errors of other workers.
        """
        ran = self.phase is not Phase.PREPARING and not any(known.start_failed for known in fallen)
        spared = ran and self.attempt_state.roster.verdict(self.spec) is not False
        then = "" if spared or self.armed(TimerKind.PEER_WAIT) else "; stopping all workers"
        for fate in fates(fallen):
            self.say(f"attempt {self.attempt}: {fate}{then}", cause=self.this_event())
            then = ""
        if spared:
            return  # do not stop the gang: the completion policy allows these failures
        # A bare exit status shows no cause, because the worker may have exited after a peer's failure.
        own = [k for k in fallen if not k.exit or k.start_failed or (first_hand(k.exit) and not is_wordless(k.exit))]
        if own or not self.attempt_state.roster.missing(MemberState.DONE, MemberState.FAILED, MemberState.STOPPED):
            self._draining.stop_for((own or fallen)[0].fate, now, told=True)
        elif not self.armed(TimerKind.PEER_WAIT):
            self.attempt_state.suspect_peer(self.this_event())
            self.arm(TimerKind.PEER_WAIT, now + self.spec.timers.peer_wait_s)

    # ------------------------------------------------------------------------------- handling timers

    def _tick(self, now: float) -> None:
        if not self.submitted or self.phase is Phase.DONE:
            return
        if self._limit_at is not None and now >= self._limit_at and self.phase not in UNLIMITED:
            self._limit_at = None
            request = gang_wording.time_limit(self.spec.time_limit_s or 0.0, now)
            self._troubles.asked_to_stop(request, now)
        if self.phase is Phase.BACKOFF and now >= self.due:
            self._beginning.begin(now)
        while timer := self.timers.take_due(now, self.attempt, self.phase):
            self._fire(timer, now)

    def _fire(self, timer: TimerKind, now: float) -> None:
        match timer:
            case TimerKind.RESEND:
                self._orders.send(now)
            case TimerKind.PEER_WAIT:
                self._draining.stop_for(
                    self.attempt_state.roster.failed()[0].fate, now, cause=self.attempt_state.suspect, told=True
                )
            case TimerKind.SETTLE:
                self._draining.look(now, settled=True)
            case TimerKind.CONFIRM:
                self._nodes.confirm(now)
            case TimerKind.DECIDE:
                self._draining.conclude(now)
            case TimerKind.LAST_CALL:
                self._nodes.last_called(now)
            case TimerKind.DEADLINE if self.phase is Phase.QUEUED:
                self._resuming.unanswered(now)
            case TimerKind.DEADLINE if self.phase is Phase.ASSEMBLING:
                self._nodes.unassembled(now)
            case TimerKind.DEADLINE:
                self._troubles.overdue(now)
            case _:
                assert_never(timer)
