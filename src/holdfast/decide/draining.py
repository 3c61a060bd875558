"""The phase DRAINING: stops an attempt, waits until its processes have ended, explains the end, and decides what
follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.decide.after_hooks import AfterHooks
from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_ending import (
    AGAIN,
    AttemptRecorder,
    blamed,
    concluded,
    jitter,
    requeue_decision,
    time_spent,
)
from holdfast.decide.attempt_state import AttemptState, Conclusion
from holdfast.decide.attempt_timers import TimerKind
from holdfast.decide.job_state import GangState
from holdfast.decide.node_commands import Orders
from holdfast.decide.phases import Phase, PhaseTrigger
from holdfast.decide.recovery.progress_signs import healthy, restores, signs_of, stood_at
from holdfast.decide.recovery.recovery import as_before, recover
from holdfast.decide.recovery.restart_budgets import RequeueBudget, is_free
from holdfast.explain.causes.left_running import with_left_running
from holdfast.explain.causes.plain_success import plain_success
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.evidence import AttemptEvidence, LeftBehind, StopRequest, StopSource
from holdfast.model.job_spec import RestartPolicy

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue

#: Seconds between SIGTERM and SIGKILL for processes that are left after a job has finished. No worker waits for them.
LEFTOVER_GRACE_S = 5.0
#: Seconds that the nodes may take to send evidence. The owner then explains the end with the evidence that has arrived.
EVIDENCE_S = 30.0


class AttemptJudge:
    """Explains a drained attempt, and decides what follows. It has no state: callers pass in the history.

    Explaining takes time, and this code reads no clock. So callers make two calls, each with the present time:
    `understand` explains the evidence, then `conclude` decides.
    """

    def understand(
        self,
        attempt_state: AttemptState,
        evidence: AttemptEvidence,
        history: Sequence[AttemptRecord],
        policy: RestartPolicy,
        catalogue: Catalogue | None,
    ) -> Conclusion:
        """Explain the attempt's end from its evidence, and find its signs of progress. `attempt_state`: the attempt's
        state. `history`: the records of earlier attempts. `catalogue`: the rows that explain exits.
        """
        steps = [worker.last_step for worker in evidence.workers if worker.last_step is not None]
        step, counts = min(steps, default=None), stood_at(evidence)
        ran_s = attempt_state.parts.get("running", 0.0)
        signs = signs_of(evidence, counts, step, history, ran_s=ran_s, healthy_s=policy.healthy_s)
        progressed = healthy(signs) or restores(signs)
        if attempt_state.completed:
            # A worker that the completion policy does not need cannot cause the job's end.
            done = attempt_state.done()
            finished = tuple(worker for worker in evidence.workers if worker.rank in done)
            evidence = replace(evidence, workers=finished, stop=None)
        known = replace(evidence, progressed=progressed)
        report = plain_success(known) if catalogue is None else None
        if report is None:
            from holdfast.explain.funnel import explain  # imported late, because a successful job never needs it

            report = as_before(explain(known, catalogue), history)
        if evidence.leftovers:
            report = with_left_running(report, evidence.leftovers)
        return Conclusion(
            report=report, evidence=evidence, progressed=progressed, step=step, counts=counts, signs=signs
        )

    def conclude(
        self,
        attempt_state: AttemptState,
        found: Conclusion,
        history: Sequence[AttemptRecord],
        policy: RestartPolicy,
        *,
        now: float,
        seed: int,
        stop: StopRequest | None,
        spare: Callable[[Sequence[str]], bool],
        left: Callable[[bool], RequeueBudget | None] = lambda free: None,
    ) -> AttemptRecord:
        """Decide what follows the attempt, and return its record.

        `attempt_state`: the attempt's state; `found`: its explained end. `seed`: for the jitter of the pause. `stop`:
        the request to end the job, if there is one, even if another cause ended this attempt. `spare(names)`: whether
        the job can place every rank without these nodes or devices. `left(free)`: how often the platform may still
        start the job again; `free`: the next run spends no restart.
        """
        report = found.report
        free = is_free("" if stop is None else stop.phrase, signs=found.signs)
        if attempt_state.completed and not found.evidence.beside:
            decision = Decision(kind=DecisionKind.SUCCEED, reason=report.reason)
        elif stop is not None and not stop.requeue:
            decision = Decision(kind=DecisionKind.STOP, reason=stop.reason)
        elif attempt_state.resumed and attempt_state.stop is not None:
            decision = Decision(kind=DecisionKind.REQUEUE, reason=attempt_state.resumed)
        elif stop is not None and attempt_state.stop is stop:
            decision = requeue_decision(stop, left(free))
        elif attempt_state.unkillable:
            reason = "some of its processes could not be killed: a new attempt beside them would not be safe"
            decision = Decision(kind=DecisionKind.FAIL, reason=reason)
        else:
            drawn, may_spare = jitter(seed, attempt_state.attempt), spare(blamed(report))
            decision = recover(
                report, policy, history, signs=found.signs, now=now, jitter=drawn, spare=may_spare, left=left(free)
            )
            if stop is not None:
                decision = requeue_decision(stop, left(free), decision)
        return concluded(attempt_state, found, decision, now)


def _ended_by(stop: StopRequest | None) -> DecisionKind:
    """Return how the job ends after this stop request, if the platform does not start it again."""
    return DecisionKind.FAIL if stop is None else DecisionKind.STOP


class Draining:
    """Stops an attempt, waits for its last exit, requests its evidence, and makes one report and one decision."""

    def __init__(
        self, gang: GangState, agents: AgentRegistry, orders: Orders, ending: AttemptRecorder, judge: AttemptJudge
    ) -> None:
        self._gang = gang
        self._agents = agents
        self._orders = orders
        self._ending = ending
        self._judge = judge
        #: Runs the hooks after an attempt.
        self.after_hooks = AfterHooks(gang, self.understand)

    # ---------------------------------------------------------------------------------- beginning a stop

    def stop_for(
        self, reason: str, now: float, stop: StopRequest | None = None, *, cause: str = "", told: bool = False
    ) -> None:
        """Stop the attempt because of a failure or a request.

        `reason`: one clause for the user. `stop`: the request; None: a failure is the reason. `cause`: the event that
        reported the failure or request; empty: the present event. `told`: whether the user has already seen `reason`.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        gang.caused_by_this(cause)
        attempt_state.fail_in(gang.phase.value, reason)
        attempt_state.end_by(stop)
        if stop is not None:
            attempt_state.ask_with(stop)
            attempt_state.limit(stop, now)
        grace_s = gang.spec.timers.grace_s if stop is None or stop.grace_s is None else stop.grace_s
        save_s = stop.save_s if stop is not None else 0.0
        if not told:
            gang.say(f"attempt {gang.attempt}: stopping all workers: {reason}")
        # After a failure, leftover processes of exited workers get SIGTERM no later than after half of the grace
        # period.
        leftover_s = min(gang.spec.timers.leftover_s, grace_s / 2) if stop is None else None
        self._begin(PhaseTrigger.TROUBLE, reason, grace_s, now, save_s, leftover_s)

    def complete(self, now: float) -> None:
        """Stop the remaining workers, because the completion policy is met. Processes that exited workers left running
        get SIGTERM later.
        """
        timers = self._gang.spec.timers
        self._gang.caused_by_this()
        self._gang.attempt_state.complete()
        grace_s = timers.leftover_s + min(timers.grace_s, LEFTOVER_GRACE_S)
        self._begin(PhaseTrigger.COMPLETED, "the job is complete", grace_s, now, leftover_s=timers.leftover_s)

    def _begin(
        self,
        trigger: PhaseTrigger,
        reason: str,
        grace_s: float,
        now: float,
        save_s: float = 0.0,
        leftover_s: float | None = None,
    ) -> None:
        gang, attempt_state = self._gang, self._gang.attempt_state
        gang.move(trigger, now, reason)
        attempt_state.plan_stop(reason, grace_s, save_s, now, leftover_s)
        self._limit(now)
        self._orders.send(now)
        self.look(now)

    def _limit(self, now: float) -> None:
        attempt_state = self._gang.attempt_state
        self._gang.arm(TimerKind.DEADLINE, now + attempt_state.save_s + attempt_state.grace_s + self._kill_s())

    def _kill_s(self) -> float:
        """Return how many seconds after SIGKILL a process counts as unkillable. With several nodes this includes a
        lease.
        """
        gang = self._gang
        return gang.spec.timers.kill_s + (gang.lease_s() if len(gang.attempt_state.nodes) > 1 else 0.0)

    def cut_short(self, request: StopRequest, words: str, then: float, now: float) -> None:
        """End the attempt with all its processes, because its run of the job ended at `then`.

        `request`: the stop request with the cause. `words`: why the job continues in another run. If the attempt was
        already being stopped, the earlier cause remains.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        if gang.phase is not Phase.DRAINING:
            attempt_state.fail_in(gang.phase.value, request.reason)
            attempt_state.end_by(request)
            attempt_state.plan_stop(request.reason, attempt_state.grace_s, attempt_state.save_s, then)
            gang.move(PhaseTrigger.TROUBLE, then, request.reason)
        attempt_state.cut(words, drained_s=max(0.0, then - gang.entered_at), queued_s=now - then)
        gang.count_since(now)
        if attempt_state.found is None:
            attempt_state.collect(now)
            self.understand(attempt_state.evidence(gang.phase, gang.job_id), now)
        else:
            gang.arm(TimerKind.DECIDE, now)

    def ask_again(self, request: StopRequest, now: float) -> None:
        """Handle a further stop request while the attempt is being stopped. The request may shorten the stop."""
        attempt_state = self._gang.attempt_state
        if attempt_state.hooks is not None:
            self.after_hooks.hurry(request, now)
            return
        attempt_state.ask_with(request)
        if attempt_state.stop is None and attempt_state.found is None and attempt_state.died_of(request):
            attempt_state.end_by(request)
        grace_s = attempt_state.grace_s if request.grace_s is None else min(request.grace_s, attempt_state.grace_s)
        if request.source is StopSource.PLATFORM:
            # A further signal from the platform does not shorten the stop, because the platform has announced when it
            # kills the processes.
            attempt_state.limit(request, now)
            attempt_state.shorten_stop(grace_s, min(attempt_state.save_s, request.save_s))
            self._limit(now)
            self._orders.send(now)
            return
        hurries = grace_s < attempt_state.grace_s or attempt_state.leftover_s is not None
        if hurries or (request.final and attempt_state.save_s) or request.everywhere:
            # Shorten the stop. The user has repeated the request, or something other than holdfast has already
            # signalled the workers.
            attempt_state.shorten_stop(grace_s, 0.0)
            self._limit(now)
            self._orders.send(now)

    def begin_again(self, now: float) -> None:
        """Repeat the stop of the attempt, because it may have processes that the owner did not know."""
        self._gang.timers.disarm(TimerKind.DECIDE)
        self._gang.arm(TimerKind.DEADLINE, now + self._gang.attempt_state.grace_s + self._kill_s())
        self._orders.send(now)

    # -------------------------------------------------- nodes that are lost or fenced during the stop

    def lose(self, lost: LeftBehind) -> None:
        """Record a node that was lost during the stop. Its loss may be the true cause, if it made other workers
        fail.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        draining = (
            gang.phase is Phase.DRAINING and not attempt_state.completed and not self._agents.is_stopped(lost.node)
        )
        if draining and any(known.exit is None for known in attempt_state.roster.on(lost.node)):
            attempt_state.lose(lost)

    def fence(self, node: str, now: float) -> None:
        """Record that the node's lease has ended, so that no process of the job is alive on it."""
        if self._gang.phase is Phase.DRAINING:
            self._gang.attempt_state.fence(node)
            if self._gang.attempt_state.hooks is not None:
                self.after_hooks.lose(node, now)
            self.look(now)

    def look(self, now: float, *, settled: bool = False) -> None:
        """Request the evidence once no process of the attempt is alive. `settled`: whether the wait for late evidence
        is over.
        """
        gang, attempt_state = self._gang, self._gang.attempt_state
        drained = attempt_state.has_drained(self._agents.is_stopped)
        if attempt_state.collecting or not drained:
            return
        # A node whose lease ended never reported how its workers ended. Wait a moment for evidence of other nodes,
        # unless the last exit is long ago.
        if (
            attempt_state.fenced
            and not settled
            and (due := attempt_state.roster.last_exit(now) + gang.spec.timers.settle_s) > now
        ):
            if not gang.armed(TimerKind.SETTLE):
                gang.arm(TimerKind.SETTLE, due)
            return
        self._collect(now)

    def overdue(self, now: float) -> None:
        """Act on the missed deadline of the hooks, the evidence or the last exit."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        if attempt_state.hooks is not None:
            self.after_hooks.overdue(now)
            return
        if attempt_state.collecting:
            self.understand(attempt_state.evidence(gang.phase, gang.job_id), now)
            return
        alive = ", ".join(node for node in attempt_state.nodes if not self._agents.is_stopped(node))
        attempt_state.outlive_kill()
        gang.say(f"attempt {gang.attempt}: processes on {alive} outlived SIGKILL by {gang.spec.timers.kill_s:g} s")
        self._collect(now)

    def recovered(self, now: float) -> None:
        """Repeat the requests that nodes have not answered, after a restart of the owner."""
        if self._gang.attempt_state.hooks is not None:
            self.after_hooks.ask_again(now)
        elif self._gang.attempt_state.collecting:
            self._collect(now)
        else:
            self._orders.send(now)

    # ------------------------------------------- the attempt's end: evidence, explanation, decision

    def _collect(self, now: float) -> None:
        gang, attempt_state = self._gang, self._gang.attempt_state
        attempt_state.collect(now)
        attempt_state.find_cut_off(gang.known, 2 * gang.spec.timers.beat_s)
        gang.arm(TimerKind.DEADLINE, now + EVIDENCE_S)
        evidence = attempt_state.evidence(gang.phase, gang.job_id)
        gang.emit(CollectEvidence(attempt=gang.attempt, evidence=evidence, cause=gang.cause))

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        """Return whether the gang still waits for this evidence.

        It ignores evidence about older attempts, and evidence after the deadline.
        """
        gang = self._gang
        return event.attempt == gang.attempt and gang.phase is Phase.DRAINING and gang.attempt_state.collecting

    def understand(self, evidence: AttemptEvidence, now: float, hooked: bool = False) -> None:
        """Explain the attempt's end. The decision follows in a separate step, so that its time includes the explaining.
        `hooked`: whether the hooks after the attempt have run.
        """
        gang = self._gang
        if gang.attempt_state.said:
            # Add the platform's answers that arrived after the evidence.
            evidence = replace(evidence, platform=tuple(gang.attempt_state.said))
        if evidence.stop is None and gang.attempt_state.stop is not None:
            # Add the stop request that explains these exits, because it arrived after the evidence.
            evidence = replace(evidence, stop=gang.attempt_state.stop)
        gang.attempt_state.find(
            self._judge.understand(gang.attempt_state, evidence, gang.records, gang.spec.restarts, gang.catalogue)
        )
        if hooked or not gang.spec.runtime.hooks or not self.after_hooks.begin(now):
            gang.arm(TimerKind.DECIDE, now)

    def conclude(self, now: float) -> None:
        """Make the report and the decision. Record both before acting on them."""
        gang, attempt_state = self._gang, self._gang.attempt_state
        found = attempt_state.found
        assert found is not None  # `understand` sets this method's timer after it has explained the end
        record = self._judge.conclude(
            attempt_state,
            found,
            gang.records,
            gang.spec.restarts,
            now=now,
            seed=gang.seed,
            stop=gang.stop,
            spare=lambda names: bool(names) and (bool(attempt_state.resumed) or self._places_without(names)),
            left=lambda free: self._ending.requeues(free=free),
        )
        record = replace(record, decision=replace(record.decision, avoid=gang.where(record.decision.avoid)))
        decision = record.decision
        requeue = decision.kind is DecisionKind.REQUEUE
        again = decision.kind in AGAIN or (requeue and bool(attempt_state.resumed))
        trigger = PhaseTrigger.TRY_AGAIN if again else PhaseTrigger.REQUEUE if requeue else PhaseTrigger.ENOUGH
        gang.move(trigger, now, decision.reason)
        # `move` has counted the seconds in DRAINING, so that `time_spent` below includes the whole phase.
        if decision.kind is not DecisionKind.SUCCEED:
            self._ending.say_who_outstayed(found.evidence)
        self._ending.record(replace(record, parts=time_spent(attempt_state, found.evidence, now)))
        gang.leave_out(decision.avoid, decision.reason)
        if again:
            gang.pause_until(now + decision.delay_s)
        elif requeue:
            self._ending.queue(now, decision.reason, record.report, _ended_by(gang.stop))
        elif gang.stop is not None and attempt_state.stop is not gang.stop and not attempt_state.completed:
            # A stop request arrived while the failed attempt was draining. The attempt's record keeps the failure as
            # its cause, but the job counts as stopped.
            self._ending.finish_stopped(gang.stop)
        else:
            self._ending.finish(record.report, decision.kind, decision.reason)

    def _places_without(self, names: Sequence[str]) -> bool:
        replaced = self._gang.spec.nodes.replaced
        return replaced or self._gang.places(without=self._gang.where(names)) is not None
