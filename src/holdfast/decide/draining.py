"""How an attempt is stopped, drained, explained and decided: DRAINING from its first moment to its last."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.decide.course import Course
from holdfast.decide.ending import AGAIN, Ending
from holdfast.decide.orders import Orders
from holdfast.decide.phases import Phase, Trigger
from holdfast.decide.speakers import Speakers
from holdfast.decide.timers import Timer
from holdfast.decide.trial import Conclusion, Trial
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind
from holdfast.model.evidence import AttemptEvidence, MemoryKill, StopRequest, StopSource
from holdfast.model.jobs import RestartPolicy

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.decide.aftermath import Aftermath
    from holdfast.decide.requeues import Requeues

LEFTOVER_GRACE_S = 5.0
"""How long background children of a finished job may take to leave: no worker waits for them."""
EVIDENCE_S = 30.0
"""How long the collection of evidence may take before the report is made of what the gang itself knows."""


class Judge:
    """Explains a drained attempt, and decides what follows it. It keeps nothing: the history is given to it.

    Explaining takes time, and no clock is read here. So the end has two steps with a moment of their own each: the
    evidence is explained, and in the gang's next step, which is later by what that took, the decision is made and
    dated. What both need is imported when it is needed: no start waits for it, and a failure finds it rehearsed.
    """

    def understand(
        self,
        trial: Trial,
        evidence: AttemptEvidence,
        history: Sequence[AttemptRecord],
        policy: RestartPolicy,
        catalogue: Catalogue | None,
    ) -> Conclusion:
        """What it died of."""
        from holdfast.decide.progress import healthy, restores, signs_of, stood_at
        from holdfast.explain.success import plain_success

        steps = [worker.last_step for worker in evidence.workers if worker.last_step is not None]
        step, counts = min(steps, default=None), stood_at(evidence)
        ran_s = trial.parts.get("running", 0.0)
        signs = signs_of(evidence, counts, step, history, ran_s=ran_s, healthy_s=policy.healthy_s)
        progressed = healthy(signs) or restores(signs)
        if trial.completed:
            # What the policy did without is not what the job ended of.
            done = trial.done()
            finished = tuple(worker for worker in evidence.workers if worker.rank in done)
            evidence = replace(evidence, workers=finished, stop=None)
        known = replace(evidence, progressed=progressed)
        report = plain_success(known) if catalogue is None else None
        if report is None:
            from holdfast.explain.funnel import explain  # a job that succeeds does without it

            report = explain(known, catalogue)
        return Conclusion(
            report=report, evidence=evidence, progressed=progressed, step=step, counts=counts, signs=signs
        )

    def conclude(
        self,
        trial: Trial,
        found: Conclusion,
        history: Sequence[AttemptRecord],
        policy: RestartPolicy,
        *,
        now: float,
        seed: int,
        stop: StopRequest | None,
        spare: Callable[[Sequence[str]], bool],
        left: Callable[[], Requeues | None] = lambda: None,
    ) -> AttemptRecord:
        """What follows it.

        `stop`: a request to end the job, whether or not it ended this attempt. `spare(names)`: whether leaving these
        nodes or devices out still leaves places for every rank. `left()`: what is left for another run of the job.
        """
        from holdfast.decide.conclude import blamed, concluded, jitter, queued

        report = found.report
        if trial.completed and not found.evidence.beside:
            decision = Decision(kind=DecisionKind.SUCCEED, reason=report.reason)
        elif stop is not None and not stop.requeue:
            decision = Decision(kind=DecisionKind.STOP, reason=stop.reason)
        elif trial.resumed and trial.stop is not None:
            decision = Decision(kind=DecisionKind.REQUEUE, reason=trial.resumed)
        elif stop is not None and trial.stop is stop:
            decision = queued(stop, left())
        elif trial.unkillable:
            reason = "some of its processes could not be killed: a new attempt beside them would not be safe"
            decision = Decision(kind=DecisionKind.FAIL, reason=reason)
        else:
            from holdfast.decide.recovery import recover

            drawn, may_spare = jitter(seed, trial.attempt), spare(blamed(report))
            decision = recover(
                report, policy, history, signs=found.signs, now=now, jitter=drawn, spare=may_spare, left=left()
            )
            if stop is not None:
                decision = queued(stop, left(), decision)
        return concluded(trial, found, decision, now)


def _ended_by(stop: StopRequest | None) -> DecisionKind:
    """How a job ends that is not queued again."""
    return DecisionKind.FAIL if stop is None else DecisionKind.STOP


class Draining:
    """Stops an attempt, waits for its last exit, asks for the evidence, and concludes: one report, one decision."""

    def __init__(self, course: Course, speakers: Speakers, orders: Orders, ending: Ending, judge: Judge) -> None:
        self._course = course
        self._speakers = speakers
        self._orders = orders
        self._ending = ending
        self._judge = judge

    @functools.cached_property
    def aftermath(self) -> Aftermath:
        """The hooks that follow an attempt."""
        from holdfast.decide.aftermath import Aftermath  # few jobs have hooks

        return Aftermath(self._course, self.understand)

    # ------------------------------------------------------------------------------------------ the stop

    def stop_for(
        self, reason: str, now: float, stop: StopRequest | None = None, *, cause: str = "", told: bool = False
    ) -> None:
        """Trouble, or a request: the attempt ends. `cause`: the event that told of it; empty: this one.

        `told`: the user has read the reason already.
        """
        course, trial = self._course, self._course.trial
        course.caused_by_this(cause)
        trial.failed_in = course.phase.value
        trial.stop = stop
        if stop is not None:
            trial.ask_with(stop)
            trial.limit(stop, now)
        grace_s = course.spec.timers.grace_s if stop is None or stop.grace_s is None else stop.grace_s
        save_s = stop.save_s if stop is not None else 0.0
        if not told:
            course.say(f"attempt {course.attempt}: stopping all workers: {reason}")
        self._begin(Trigger.TROUBLE, reason, grace_s, now, save_s)

    def complete(self, now: float) -> None:
        """The completion policy is met: what is left is to stop the rest."""
        self._course.caused_by_this()
        self._course.trial.completed = True
        grace_s = min(self._course.spec.timers.grace_s, LEFTOVER_GRACE_S)
        self._begin(Trigger.COMPLETED, "the job is complete", grace_s, now)

    def _begin(self, trigger: Trigger, reason: str, grace_s: float, now: float, save_s: float = 0.0) -> None:
        course, trial = self._course, self._course.trial
        course.move(trigger, now, reason)
        trial.reason, trial.grace_s, trial.stop_asked_at = reason, grace_s, now
        trial.save_s = save_s
        self._limit(now)
        self._orders.send(now)
        self.look(now)

    def _limit(self, now: float) -> None:
        trial = self._course.trial
        self._course.arm(Timer.DEADLINE, now + trial.save_s + trial.grace_s + self._kill_s())

    def _kill_s(self) -> float:
        """From SIGKILL to `cannot be killed`. Across nodes it also covers a lease that has to run out first."""
        course = self._course
        return course.spec.timers.kill_s + (course.lease_s() if len(course.trial.nodes) > 1 else 0.0)

    def cut_short(self, request: StopRequest, words: str, then: float, now: float) -> None:
        """The run of the job that had this attempt is over, since `then`: nothing of it can live any more.

        What had begun to stop it before stays its cause.
        """
        course, trial = self._course, self._course.trial
        if course.phase is not Phase.DRAINING:
            trial.failed_in = course.phase.value
            trial.stop, trial.reason, trial.stop_asked_at = request, request.reason, then
            course.move(Trigger.TROUBLE, then, request.reason)
        parts = trial.parts
        parts["draining"] = parts.get("draining", 0.0) + max(0.0, then - course.entered_at)
        parts["queued"] = now - then
        course.entered_at = now
        trial.resumed = words
        trial.fenced.update(trial.nodes)
        trial.undrained.clear()
        trial.hooks = None
        if trial.found is None:
            trial.collecting, trial.drained_at = True, now
            self.understand(trial.evidence(course.phase, course.job_id), now)
        else:
            course.arm(Timer.DECIDE, now)

    def ask_again(self, request: StopRequest, now: float) -> None:
        """Another request while the stop is under way: it may make it shorter."""
        trial = self._course.trial
        if trial.hooks is not None:
            self.aftermath.hurry(request, now)
            return
        trial.ask_with(request)
        if trial.stop is None and trial.found is None and trial.died_of(request):
            trial.stop = request
        grace_s = trial.grace_s if request.grace_s is None else min(request.grace_s, trial.grace_s)
        if request.source is StopSource.PLATFORM:
            # Several signals of a platform's are no hurry: what it leaves of time it has said.
            trial.limit(request, now)
            trial.grace_s, trial.save_s = grace_s, min(trial.save_s, request.save_s)
            self._limit(now)
            self._orders.send(now)
            return
        if grace_s < trial.grace_s or (request.final and trial.save_s) or request.everywhere:
            # A user is in a hurry: the stop that is under way gets shorter. Or no signal is needed.
            trial.grace_s, trial.save_s = grace_s, 0.0
            self._limit(now)
            self._orders.send(now)

    def begin_again(self, now: float) -> None:
        """More than was known has to be stopped."""
        self._course.timers.disarm(Timer.DECIDE)
        self._course.arm(Timer.DEADLINE, now + self._course.trial.grace_s + self._kill_s())
        self._orders.send(now)

    # ------------------------------------------------------------------------------------------ its nodes

    def lose(
        self,
        node: str,
        silent_s: float,
        why: str = "",
        *,
        back: bool = False,
        words_s: tuple[float, ...] = (),
        memory_kill: MemoryKill | None = None,
    ) -> None:
        """The others may have died of this node's end before anybody knew of it: then this is the cause, told late."""
        course, trial = self._course, self._course.trial
        draining = course.phase is Phase.DRAINING and not trial.completed and not self._speakers.is_stopped(node)
        if draining and any(known.exit is None for known in trial.roster.on(node)):
            trial.lose(node, silent_s, why, back=back, words_s=words_s, memory_kill=memory_kill)

    def fence(self, node: str, now: float) -> None:
        """Its lease has surely ended: nothing lives there."""
        if self._course.phase is Phase.DRAINING:
            self._course.trial.fenced.add(node)
            if self._course.trial.hooks is not None:
                self.aftermath.lose(node, now)
            self.look(now)

    def look(self, now: float, *, settled: bool = False) -> None:
        """Once nothing of the attempt lives: ask for the evidence, once."""
        course, trial = self._course, self._course.trial
        while trial.undrained and self._speakers.is_stopped(trial.undrained[-1]):
            trial.undrained.pop()
        if trial.collecting or trial.undrained:
            return
        # A fenced node could not tell how its workers ended; what others still know may be on its way. It has had its
        # time where the last of them ended long before the fence.
        if trial.fenced and not settled and (due := trial.roster.last_exit(now) + course.spec.timers.settle_s) > now:
            if not course.armed(Timer.SETTLE):
                course.arm(Timer.SETTLE, due)
            return
        self._collect(now)

    def overdue(self, now: float) -> None:
        """The deadline has come: of the collection, or of the last exit."""
        course, trial = self._course, self._course.trial
        if trial.hooks is not None:
            self.aftermath.overdue(now)
            return
        if trial.collecting:
            self.understand(trial.evidence(course.phase, course.job_id), now)
            return
        alive = ", ".join(node for node in trial.nodes if not self._speakers.is_stopped(node))
        trial.unkillable = True
        course.say(
            f"attempt {course.attempt}: processes on {alive} outlived SIGKILL by {course.spec.timers.kill_s:g} s"
        )
        self._collect(now)

    def recovered(self, now: float) -> None:
        """The owner is back: ask again for what was asked for."""
        if self._course.trial.hooks is not None:
            self.aftermath.ask_again(now)
        elif self._course.trial.collecting:
            self._collect(now)
        else:
            self._orders.send(now)

    # ------------------------------------------------------------------------------------------ its end

    def _collect(self, now: float) -> None:
        course, trial = self._course, self._course.trial
        trial.collecting = True
        trial.drained_at = now
        trial.find_cut_off(course.known, 2 * course.spec.timers.beat_s)
        course.arm(Timer.DEADLINE, now + EVIDENCE_S)
        evidence = trial.evidence(course.phase, course.job_id)
        course.out.append(CollectEvidence(attempt=course.attempt, evidence=evidence, cause=course.cause))

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        """Evidence of an older attempt, or that comes after its deadline, explains nothing."""
        course = self._course
        return event.attempt == course.attempt and course.phase is Phase.DRAINING and course.trial.collecting

    def understand(self, evidence: AttemptEvidence, now: float, hooked: bool = False) -> None:
        """Explain the end. What follows is decided in the next step, so that the decision's time has this in it.

        `hooked`: the hooks that follow the attempt have run.
        """
        course = self._course
        if course.trial.said:
            evidence = replace(evidence, platform=tuple(course.trial.said))  # some of it came after the question
        if evidence.stop is None and course.trial.stop is not None:
            evidence = replace(evidence, stop=course.trial.stop)  # what the exits were the effect of was told only now
        course.trial.found = self._judge.understand(
            course.trial, evidence, course.records, course.spec.restarts, course.catalogue
        )
        if hooked or not course.spec.runtime.hooks or not self.aftermath.begin(now):
            course.arm(Timer.DECIDE, now)

    def conclude(self, now: float) -> None:
        """One report, one decision; written down before anything follows from them."""
        from holdfast.decide.conclude import spent

        course, trial = self._course, self._course.trial
        found = trial.found
        assert found is not None  # nothing else sets the timer
        record = self._judge.conclude(
            trial,
            found,
            course.records,
            course.spec.restarts,
            now=now,
            seed=course.seed,
            stop=course.stop,
            spare=lambda names: bool(names) and (bool(trial.resumed) or self._places_without(names)),
            left=self._ending.requeues,
        )
        record = replace(record, decision=replace(record.decision, avoid=course.where(record.decision.avoid)))
        decision = record.decision
        requeue = decision.kind is DecisionKind.REQUEUE
        again = decision.kind in AGAIN or (requeue and bool(trial.resumed))
        trigger = Trigger.TRY_AGAIN if again else Trigger.REQUEUE if requeue else Trigger.ENOUGH
        course.move(trigger, now, decision.reason)
        # The draining counts too; what the trial adds later (the pause, its end by a request) is no part of the record.
        if decision.kind is not DecisionKind.SUCCEED:
            self._ending.say_who_outstayed(found.evidence)
        self._ending.record(replace(record, parts=spent(trial, found.evidence, now)))
        course.leave_out(decision.avoid, decision.reason)
        if again:
            course.due = now + decision.delay_s
        elif requeue:
            self._ending.queue(now, decision.reason, record.report, _ended_by(course.stop))
        elif course.stop is not None and trial.stop is not course.stop and not trial.completed:
            # It failed, and was told to stop while it drained: the attempt keeps its cause, the job was stopped.
            self._ending.finish_stopped(course.stop)
        else:
            self._ending.finish(record.report, decision.kind)

    def _places_without(self, names: Sequence[str]) -> bool:
        replaced = self._course.spec.nodes.replaced
        return replaced or self._course.places(without=self._course.where(names)) is not None
