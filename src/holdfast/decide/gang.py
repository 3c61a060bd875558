"""The gang: the only state machine that starts, stops and restarts workers. Events in, actions out, nothing else.

It reads no clock, file or random number: `now` comes in, jitter is derived from the job's recorded seed, so replaying
the journal gives the same actions. Whatever an older attempt says is counted, may prove that it has stopped, and can
touch nothing newer. `phases.TABLE` lists every move it can make; `trial.Trial` holds what belongs to one attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from holdfast.decide import words
from holdfast.decide.phases import FIRST, LIVE, TABLE, Phase, Trigger
from holdfast.decide.placement import place, users
from holdfast.decide.roster import Known
from holdfast.decide.timers import Timer, Timers
from holdfast.decide.trial import Trial
from holdfast.explain import explain, first_hand, is_wordless
from holdfast.model import events as ev
from holdfast.model.actions import (
    Action,
    Avoid,
    CollectEvidence,
    FinishJob,
    RecordAttempt,
    RunChecks,
    Say,
    Secure,
    Send,
)
from holdfast.model.checks import CheckState
from holdfast.model.commands import Command, Go, MemberState, Prepare, Report, Stop
from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.evidence import AttemptEvidence, CheckFailure, Deadline, StopRequest, StopSource
from holdfast.model.exits import ExitReport, WorkerExit
from holdfast.model.faults import ActiveFault, DeviceStanding
from holdfast.model.in_words import clock
from holdfast.model.jobs import JobSpec, NodeInfo

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.decide.view import GangView

LEFTOVER_GRACE_S = 5.0
"""How long background children of a finished job may take to leave: nobody waits for them."""
EVIDENCE_S = 30.0
"""How long the collection of evidence may take before the report is made of what the gang itself knows."""
READY = (MemberState.PREPARED, MemberState.GOING, MemberState.UP, MemberState.DONE)
"""States of a member that has been prepared; an owner whose journal lost its tail may find it let go already."""
GONE = (MemberState.UP, MemberState.DONE, MemberState.FAILED)
"""States of a member that has obeyed its GO, whatever became of it then (a failure that counts ends the attempt)."""
STORY = 256
"""How many lines of its own story a gang remembers."""


class Gang:
    """One job's owner. The first event must be `JobSubmitted`."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        """`catalogue`: the rows exits are explained by; None: the built-in ones."""
        self._catalogue = catalogue
        self.phase: Phase = FIRST
        self.attempt = 0
        self.highest = 0
        """The highest attempt that any word was had of: more than `attempt` where the journal has lost its tail."""
        self.term = 1
        """Rises with every return of the owner; every command carries it."""
        self.job_id = ""
        self.nodes: tuple[NodeInfo, ...] = ()
        self.records: list[AttemptRecord] = []
        self.avoid: set[str] = set()
        self.report: JobReport | None = None
        self.stale_reports = 0
        self.trial = Trial(0, 0.0)
        self._spec: JobSpec | None = None
        self._seed = 0
        self._stop: StopRequest | None = None
        self._due = 0.0
        self.entered_at = 0.0
        self._limit_at: float | None = None
        self._kept_out: tuple[DeviceStanding, ...] = ()
        self._utc_offset_s = 0.0
        self._timers = Timers()
        self._reset_s = 0.0
        """How long resets may hold the next attempt's checks up."""
        self._unheard: set[str] = set()
        """Nodes of which nothing was heard since the owner came back, until `_hears_until`."""
        self._hears_until = 0.0
        self.boots: dict[str, int] = {}
        """The agent that speaks for each node now: the highest boot heard."""
        self._stopped: dict[str, int] = {}
        self._out: list[Action] = []
        self._view: GangView | None = None
        self._story: deque[tuple[float, int, Phase, str]] = deque(maxlen=STORY)

    # ------------------------------------------------------------------------------------------ the door

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Take one event at `now` (seconds); the actions that follow, in the order to perform them."""
        self._view = None
        match event:
            case ev.JobSubmitted():
                self._submitted(event, now)
            case ev.ChecksFinished():
                self._checked(event, now)
            case ev.AgentReported():
                self._reported(event.report, now)
            case ev.NodeSilent():
                self._silent(event, now)
            case ev.NodeFenced():
                self._fence(event, now)
            case ev.StopRequested():
                self._asked_to_stop(event.request, now)
            case ev.FaultSeen():
                self._fault(event, now)
            case ev.ChecksMoved():
                pass  # for those who look at the journal while the checks run
            case ev.CheckFailedRunning():
                self._check_failed(event, now)
            case ev.HangFound():
                self._hung(event, now)
            case ev.EvidenceCollected():
                if self.is_asked_for(event):
                    self._understand(event.evidence, now)
            case ev.JournalSecured():
                self._secured(event, now)
            case ev.OwnerRecovered():
                self._recovered(now)
            case ev.Tick():
                self._tick(now)
            case _:
                assert_never(event)
        out, self._out = self._out, []
        return out

    def next_wake(self) -> float | None:
        """When a `Tick` is due, in seconds on the clock of `now`; None: only an event can change anything."""
        if self.phase is Phase.DONE or self._spec is None:
            return None
        wakes = [self._timers.next_due(self.attempt, self.phase)]
        if self.phase is Phase.BACKOFF:
            wakes.append(self._due)
        if self.phase is not Phase.DRAINING:
            wakes.append(self._limit_at)
        return min((wake for wake in wakes if wake is not None), default=None)

    def floor(self, node: str) -> int:
        """The highest attempt that is dead as far as this node goes: every acknowledgement to its agent carries it."""
        over = self.phase in (Phase.BACKOFF, Phase.DONE) or (self.phase is Phase.DRAINING and self._is_stopped(node))
        return self.highest if over else self.attempt - 1

    def view(self) -> GangView:
        """What others may see of it now; the same object until the next event."""
        if self._view is None:
            from holdfast.decide.view import GangView, members_of, waits_for  # no start asks for it

            trial = self.trial
            undrained = tuple(node for node in trial.nodes if not self._is_stopped(node))
            self._view = GangView(
                job_id=self.job_id,
                phase=self.phase,
                attempt=self.attempt,
                started_at=trial.started_at,
                completed=trial.completed,
                members=members_of(trial),
                avoid=frozenset(self.avoid),
                waits_for=waits_for(
                    self.phase, trial, undrained=undrained, unheard=frozenset(self._unheard), due=self._due
                ),
                next_wake=self.next_wake(),
                term=self.term,
            )
        return self._view

    def story(self) -> list[str]:
        """What it did and why, oldest first: one line a move."""
        return [f"{at:.3f} attempt {attempt} {phase}: {why}" for at, attempt, phase, why in self._story]

    @property
    def spec(self) -> JobSpec:
        if self._spec is None:
            raise RuntimeError("the first event of a gang is JobSubmitted")
        return self._spec

    # ------------------------------------------------------------------------------------------ moving and saying

    def _move(self, trigger: Trigger, now: float, why: str) -> None:
        parts, name = self.trial.parts, self.phase.value.lower()
        parts[name] = parts.get(name, 0.0) + max(0.0, now - self.entered_at)
        self.phase = TABLE[self.phase, trigger]
        self.entered_at = now
        self._story.append((now, self.attempt, self.phase, why))

    def _say(self, text: str) -> None:
        self._out.append(Say(text=text))

    def _arm(self, timer: Timer, due: float) -> None:
        self._timers.arm(timer, due, self.attempt, self.phase)

    def _command(self, now: float) -> None:
        """Send the phase's command to every node that has not begun to obey; again after `resend_s`."""
        roster, trial = self.trial.roster, self.trial
        commands: Iterable[tuple[str, Command]]
        match self.phase:
            case Phase.PREPARING if not self._may_prepare(now):
                self._arm(Timer.RESEND, now + self.spec.timers.resend_s)
                return
            case Phase.PREPARING:
                late = trial.nodes_of(roster.in_state(None, MemberState.NONE))
                commands = [(node, self._prepare_of(node)) for node in late]
            case Phase.STARTING:
                go = Go(attempt=self.attempt, term=self.term)
                commands = [(node, go) for node in trial.nodes_of(roster.missing(MemberState.GOING, *GONE))]
            case Phase.DRAINING:
                stop = Stop(
                    attempt=self.highest,
                    reason=trial.reason,
                    grace_s=trial.grace_s,
                    save_s=trial.save_s,
                    signal=trial.signal,
                    hold_s=trial.hold_s,
                    term=self.term,
                )
                commands = [(node, stop) for node in trial.nodes if not self._is_stopped(node)]
            case _:
                return
        self._out.extend(Send(node=node, command=command) for node, command in commands)
        if commands:
            self._arm(Timer.RESEND, now + self.spec.timers.resend_s)

    def _may_prepare(self, now: float) -> bool:
        """Whether this attempt may be used: its number survives a power cut, and no agent has it from an earlier life.

        On one machine owner and workers lose their power together: nothing has to be waited for there.
        """
        if len(self.nodes) > 1 and not self.trial.sent:
            if self._unheard and now < self._hears_until:
                return False
            if not self.trial.secured:
                self._out.append(Secure(attempt=self.attempt))
                return False
        self.trial.sent = True
        return True

    def _secured(self, event: ev.JournalSecured, now: float) -> None:
        if event.attempt != self.attempt or self.phase is not Phase.PREPARING or self.trial.sent:
            return
        if not event.trouble:
            self.trial.secured = True
            self._command(now)
        elif now >= self.entered_at + self.spec.timers.owner_wait_s:
            last = self.records[-1].report if self.records else None
            request = words.unsaved(event.trouble, last, now)
            self._stop = self._stop or request
            self._trouble(request.reason, now, stop=request)

    def _prepare_of(self, node: str) -> Prepare:
        seats = tuple(known.seat for known in self.trial.roster.on(node))
        return Prepare(attempt=self.attempt, seats=seats, shape=self.trial.roster.shapes[node], term=self.term)

    # ------------------------------------------------------------------------------------------ BACKOFF, CHECKING

    def _submitted(self, event: ev.JobSubmitted, now: float) -> None:
        if self._spec is not None:
            return
        self.job_id, self._spec, self.nodes, self._seed = event.job_id, event.spec, event.nodes, event.seed
        self._due = self.entered_at = now
        self._kept_out, self._utc_offset_s = event.kept_out, event.utc_offset_s
        self.avoid.update(kept.device for kept in event.kept_out)
        for kept in event.kept_out:
            self._say(f"{kept.device} is {kept.standing} and gets no work: {kept.reason}")
        if event.spec.time_limit_s is not None:
            self._limit_at = now + event.spec.time_limit_s
        self._begin(now)

    def _begin(self, now: float) -> None:
        """The next attempt. Its number is durable: the event that led here was written before it was handled."""
        if place(self.spec, self.nodes, self.avoid) is None:
            self._nobody(now)
            return
        self.attempt = self.highest = self.highest + 1
        self.trial = Trial(self.attempt, now, max(0.0, now - self.entered_at))
        self.entered_at = now
        self._move(Trigger.DUE, now, f"attempt {self.attempt}")
        self._ask_checks(now)

    def _ask_checks(self, now: float) -> None:
        limit_s = self.spec.timers.check_s
        self._arm(Timer.DEADLINE, now + limit_s + self._reset_s)
        nodes = tuple(node.name for node in self.nodes if node.name not in self.avoid)
        self._out.append(
            RunChecks(
                attempt=self.attempt, round=self.trial.round, nodes=nodes, checks=self.spec.checks, deadline_s=limit_s
            )
        )

    def _checked(self, event: ev.ChecksFinished, now: float) -> None:
        if (event.attempt, event.round) != (self.attempt, self.trial.round) or self.phase is not Phase.CHECKING:
            return
        self.trial.checks = event.taken
        for warning in event.warnings:
            self._say(warning)
        if event.state is not CheckState.FAIL:
            self._prepare(now)
            return
        self.trial.check = event.failure
        what = event.failure.message if event.failure else "a check failed"
        if event.avoid and not event.fatal:
            self._leave_out(event.avoid, what)
            if place(self.spec, self.nodes, self.avoid) is not None:
                self.trial.check = None  # the attempt goes on without those nodes: its end has another cause
                self.trial.round += 1
                self._move(Trigger.CHECK_ELSEWHERE, now, what)
                self._ask_checks(now)
                return
        self._end_unstarted(Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, f"not started: {what}")

    def _leave_out(self, names: Sequence[str], reason: str) -> None:
        fresh = tuple(name for name in names if name not in self.avoid)
        if fresh:
            self.avoid.update(fresh)
            self._out.append(Avoid(names=fresh, reason=reason))

    def _nobody(self, now: float) -> None:
        """Too few healthy places for the next attempt: the last cause stays the cause."""
        failure = self._too_few()
        self._say(failure.message)
        self._move(Trigger.NOBODY_HEALTHY, now, failure.message)
        report = self.records[-1].report if self.records else None
        if report is None:
            report = explain(
                AttemptEvidence(attempt=1, check=failure, phase=Phase.CHECKING, job=self.job_id), self._catalogue
            )
        self._finish(report, DecisionKind.FAIL)

    def _too_few(self) -> CheckFailure:
        return words.too_few_places(self.spec.world_size, self.avoid, self._kept_out, self._day)

    def _day(self, kept: DeviceStanding) -> str:
        return "unknown" if kept.since is None else clock(kept.since, lambda _: self._utc_offset_s)

    def _end_unstarted(
        self, trigger: Trigger, now: float, kind: DecisionKind, reason: str, cause: ExitReport | None = None
    ) -> None:
        """The attempt ends while its checks are out: it has a report like any other. `cause`: of the job, if other."""
        self.trial.stop = self._stop
        report = explain(self.trial.evidence(Phase.CHECKING, self.job_id), self._catalogue)
        self._move(trigger, now, reason)
        record = AttemptRecord(
            attempt=self.attempt,
            started_at=self.trial.started_at,
            ended_at=now,
            report=report,
            decision=Decision(kind=kind, reason=reason),
            parts=self.trial.parts,
            checks=self.trial.checks,
        )
        self._record(record)
        self._finish(cause or report, kind)

    # ------------------------------------------------------------------------------------------ PREPARING … RUNNING

    def _prepare(self, now: float) -> None:
        self._reset_s = 0.0
        seats = place(self.spec, self.nodes, self.avoid)
        if seats is None:
            # What was to help between the attempts (a reset) did not: the last cause stays the job's cause.
            self.trial.check = self._too_few()
            last = self.records[-1].report if self.records else None
            self._end_unstarted(
                Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, f"not started: {self.trial.check.message}", last
            )
            return
        self.trial.seat(seats)
        self._move(Trigger.CHECKS_PASSED, now, f"{len(seats)} workers on {len(self.trial.roster.nodes)} nodes")
        self._arm(Timer.DEADLINE, now + self.spec.timers.prepare_s)
        self._command(now)

    def _reported(self, report: Report, now: float) -> None:
        boot = self.boots.setdefault(report.node, report.boot)
        if report.boot < boot:
            self.stale_reports += 1
            return
        self.boots[report.node] = report.boot
        self.trial.spoke.add(report.node)
        self._unheard.discard(report.node)
        if report.term > self.term:
            self.term = report.term + 1  # an owner that this journal does not know of came between
        self._stopped[report.node] = max(self._stopped.get(report.node, 0), report.stopped)
        mine = report.node in self.trial.roster
        if report.boot > boot and self._started_anew(report.node, now):
            return
        if self._is_ahead(report):
            self._outrun(report, now)
        elif report.attempt != self.attempt:
            self.stale_reports += 1
        elif mine and self.phase in LIVE:
            self._advance(self.trial.roster.take(report, now), now)
        elif mine and self.phase is Phase.DRAINING:
            self.trial.roster.take(report, now)
        if mine and self.phase in LIVE and report.stopped >= self.attempt and not self._all_done(report.node):
            # It stopped what the owner never stopped: its lease had run out.
            self._lose(report.node, 0.0, f"{report.node} stopped its workers by itself (its lease had run out)", now)
        if self.phase is Phase.DRAINING:
            self._drained(now)

    def _is_ahead(self, report: Report) -> bool:
        """Whether this agent has an attempt of which this owner has no memory: its journal has lost its tail."""
        unsent = self.phase in (Phase.CHECKING, Phase.PREPARING) and not self.trial.sent
        return report.attempt > self.highest or (unsent and report.attempt == self.attempt)

    def _outrun(self, report: Report, now: float) -> None:
        """Stop the forgotten attempt everywhere: where it was placed is forgotten too."""
        self.highest = max(self.highest, report.attempt)
        if self.phase is Phase.DONE:
            return  # the floor of every acknowledgement ends it
        request = words.forgotten(report.node, report.attempt, now)
        if self.phase is Phase.BACKOFF:
            self.attempt = self.highest
            self.trial = Trial(self.attempt, now)
        self.trial.nodes = tuple(node.name for node in self.nodes)
        if self.phase is Phase.DRAINING:
            self.trial.drain_again()
            self._timers.disarm(Timer.DECIDE)
            self._arm(Timer.DEADLINE, now + self.trial.grace_s + self._kill_s())
            self._command(now)
            return
        self.trial.drain_again()
        self._trouble(request.reason, now, stop=request)

    def _started_anew(self, node: str, now: float) -> bool:
        """A new agent speaks: the one of before is gone, and with it (its guard saw to that) every process it had.

        True if that ends the attempt. Where nothing of the attempt had been made ready there, it does not: PREPARE is
        said again, so the attempt may yet live on that node, and only older ones are surely over.
        """
        untouched = self.phase is Phase.PREPARING and all(k.state is None for k in self.trial.roster.on(node))
        over = self.attempt - 1 if untouched or self.phase is Phase.CHECKING else self.attempt
        self._lost_draining(node, 0.0)
        self._stopped[node] = max(self._stopped[node], over)
        if self.phase not in LIVE or untouched or node not in self.trial.roster:
            return False
        self._lose(node, 0.0, f"the agent of {node} started anew", now)
        return True

    def _all_done(self, node: str) -> bool:
        return all(known.state is MemberState.DONE for known in self.trial.roster.on(node))

    def _advance(self, fallen: Sequence[Known], now: float) -> None:
        roster = self.trial.roster
        if fallen:
            self._failure(fallen, now)
        if self.phase is Phase.PREPARING and roster.all_in(*READY):
            self._move(Trigger.ALL_PREPARED, now, "all prepared")
            self.trial.go_at = now
            self._arm(Timer.DEADLINE, now + self.spec.timers.start_s)
            self._command(now)
        waiting = self._timers.armed(Timer.PEER_WAIT, self.attempt, self.phase)
        # Whoever waits for a peer's own word must not move on: the timer that ends the wait stays with this phase.
        if self.phase is Phase.STARTING and roster.all_in(*GONE) and not waiting:
            self._move(Trigger.ALL_UP, now, "all up")
            workers = "the worker is" if len(roster.seats) == 1 else f"all {len(roster.seats)} workers are"
            self._say(f"attempt {self.attempt}: {workers} up")
        if self.phase is Phase.RUNNING and roster.verdict(self.spec) is True:
            self.trial.completed = True
            grace_s = min(self.spec.timers.grace_s, LEFTOVER_GRACE_S)
            self._begin_stop(Trigger.COMPLETED, "the job is complete", grace_s, now)

    def _failure(self, fallen: Sequence[Known], now: float) -> None:
        """Evidence of its own stops the gang at once; blame for a peer, or silence, leaves the others a moment."""
        for known in fallen:
            self._say(f"attempt {self.attempt}: {known.fate}")
        ran = self.phase is not Phase.PREPARING and not any(known.start_failed for known in fallen)
        if ran and self.trial.roster.verdict(self.spec) is not False:
            return  # the completion policy can do without it
        own = [known for known in fallen if known.exit is None or known.start_failed or _speaks(known.exit)]
        if own or not self.trial.roster.missing(MemberState.DONE, MemberState.FAILED, MemberState.STOPPED):
            self._trouble((own or fallen)[0].fate, now)
        elif not self._timers.armed(Timer.PEER_WAIT, self.attempt, self.phase):
            self._arm(Timer.PEER_WAIT, now + self.spec.timers.peer_wait_s)

    # ------------------------------------------------------------------------------------------ trouble

    def _trouble(self, reason: str, now: float, *, stop: StopRequest | None = None) -> None:
        self.trial.failed_in = self.phase.value
        self.trial.stop = stop
        if stop is not None:
            self.trial.ask_with(stop)
        grace_s = self.spec.timers.grace_s if stop is None or stop.grace_s is None else stop.grace_s
        save_s = stop.save_s if stop is not None else 0.0
        self._say(f"attempt {self.attempt}: stopping all workers: {reason}")
        self._begin_stop(Trigger.TROUBLE, reason, grace_s, now, save_s)

    def _begin_stop(self, trigger: Trigger, reason: str, grace_s: float, now: float, save_s: float = 0.0) -> None:
        self._move(trigger, now, reason)
        self.trial.reason, self.trial.grace_s, self.trial.stop_asked_at = reason, grace_s, now
        self.trial.save_s = save_s
        self._arm(Timer.DEADLINE, now + save_s + grace_s + self._kill_s())
        self._command(now)
        self._drained(now)

    def _kill_s(self) -> float:
        """From SIGKILL to `cannot be killed`. Across nodes it also covers a lease that has to run out first."""
        return self.spec.timers.kill_s + (self._lease_s() if len(self.trial.nodes) > 1 else 0.0)

    def _lease_s(self) -> float:
        """After this much silence no process of the silent node can live."""
        timers = self.spec.timers
        return timers.lease_s + timers.drift_s + timers.beat_s

    def _lose(self, node: str, silent_s: float, reason: str, now: float) -> None:
        self.trial.lose(node, silent_s)
        self._trouble(reason, now)

    def _silent(self, event: ev.NodeSilent, now: float) -> None:
        known = event.node in self.trial.roster and event.boot == self.boots.get(event.node, event.boot)
        if known and self.phase in LIVE:
            self._lose(event.node, event.silent_s, f"no word from {event.node} for {event.silent_s:.0f} s", now)
        elif known:
            self._lost_draining(event.node, event.silent_s)

    def _lost_draining(self, node: str, silent_s: float) -> None:
        """The others may have died of this node's end before anybody knew of it: then this is the cause, told late."""
        draining = self.phase is Phase.DRAINING and not self.trial.completed and not self._is_stopped(node)
        if draining and any(known.exit is None for known in self.trial.roster.on(node)):
            self.trial.lose(node, silent_s)

    def _fence(self, event: ev.NodeFenced, now: float) -> None:
        if event.boot == self.boots.get(event.node, event.boot) and self.phase is Phase.DRAINING:
            self.trial.fenced.add(event.node)
            self._drained(now)

    def _asked_to_stop(self, request: StopRequest, now: float) -> None:
        if request.final and self._stop is None and self.phase is not Phase.DONE:
            self._stop = request
        if self.phase in LIVE:
            self._trouble(request.reason, now, stop=request)
        elif self.phase is Phase.DRAINING:
            self.trial.ask_with(request)
            if self.trial.stop is None and not self.trial.collecting and self.trial.died_of(request):
                self.trial.stop = request
            grace_s = self.trial.grace_s if request.grace_s is None else min(request.grace_s, self.trial.grace_s)
            if grace_s < self.trial.grace_s or (request.final and self.trial.save_s) or request.everywhere:
                # Somebody is in a hurry: the stop that is under way gets shorter. Or no signal is needed.
                self.trial.grace_s, self.trial.save_s = grace_s, 0.0
                self._arm(Timer.DEADLINE, now + grace_s + self._kill_s())
                self._command(now)
        elif request.final and self.phase is Phase.CHECKING:
            self._say(f"stopping: {request.reason}")
            self._end_unstarted(Trigger.STOP_REQUESTED, now, DecisionKind.STOP, request.reason)
        elif request.final and self.phase is Phase.BACKOFF:
            self._say(f"stopping: {request.reason}")
            self._move(Trigger.STOP_REQUESTED, now, request.reason)
            self._finish_stopped(request)

    def _fault(self, event: ev.FaultSeen, now: float) -> None:
        """Keep it as evidence: an exit that overlaps it is explained by it. Stop for it where its remedy says so."""
        fault = event.fault
        if event.avoid:
            self._leave_out(event.avoid, event.why)
        self._reset_s = max(self._reset_s, event.reset_s)
        if self.phase not in LIVE and self.phase is not Phase.DRAINING:
            return
        seats = [seat for seat in self.trial.roster.seats if fault.node in ("", seat.node)]
        ranks = users(fault.device, seats, self.nodes)
        mates = {rank for name in event.group for rank in users(name, seats, self.nodes)}
        ranks = ranks or tuple(sorted(mates))
        if not ranks:
            return  # nothing of this attempt is on it
        stops = event.stop and self.phase in LIVE
        self.trial.faults.append(
            ActiveFault(event=fault, remedy=event.remedy, ranks=ranks, stopped=stops, avoid=fault.device in event.avoid)
        )
        if stops:
            request = StopRequest(reason=event.why, source=StopSource.FAULT, at=now, save_s=event.save_s, final=False)
            self._trouble(event.why, now, stop=request)

    def _hung(self, event: ev.HangFound, now: float) -> None:
        if event.attempt == self.attempt and self.phase is Phase.RUNNING:
            self.trial.hang = event.evidence
            self._trouble(f"nothing has moved for {event.evidence.silent_s:.0f} s: {event.evidence.why}", now)

    def _check_failed(self, event: ev.CheckFailedRunning, now: float) -> None:
        if event.attempt == self.attempt and self.phase is Phase.RUNNING:
            self.trial.check = event.failure
            self._trouble(f"check {event.failure.check} failed: {event.failure.message}", now)

    # ------------------------------------------------------------------------------------------ DRAINING

    def _is_stopped(self, node: str) -> bool:
        return self._stopped.get(node, 0) >= self.highest or node in self.trial.fenced

    def _drained(self, now: float, *, settled: bool = False) -> None:
        """Once nothing of the attempt lives: ask for the evidence, once."""
        trial = self.trial
        while trial.undrained and self._is_stopped(trial.undrained[-1]):
            trial.undrained.pop()
        if trial.collecting or trial.undrained:
            return
        if trial.fenced and not settled:
            # A fenced node could not tell how its workers ended; what others still know may be on its way.
            if not self._timers.armed(Timer.SETTLE, self.attempt, self.phase):
                self._arm(Timer.SETTLE, now + self.spec.timers.settle_s)
            return
        self._collect(now)

    def _collect(self, now: float) -> None:
        self.trial.collecting = True
        self.trial.drained_at = now
        self._arm(Timer.DEADLINE, now + EVIDENCE_S)
        evidence = self.trial.evidence(self.phase, self.job_id)
        self._out.append(CollectEvidence(attempt=self.attempt, evidence=evidence))

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        """Evidence of an older attempt, or that comes after its deadline, explains nothing."""
        return event.attempt == self.attempt and self.phase is Phase.DRAINING and self.trial.collecting

    def _understand(self, evidence: AttemptEvidence, now: float) -> None:
        """Explain the end. What follows is decided in the next step, so that the decision's time has this in it."""
        from holdfast.decide.conclude import understand  # no start needs it; a failure finds it rehearsed

        self.trial.found = understand(self.trial, evidence, self.records, self.spec.restarts, self._catalogue)
        self._arm(Timer.DECIDE, now)

    def _conclude(self, now: float) -> None:
        """One report, one decision; written down before anything follows from them."""
        from holdfast.decide.conclude import conclude, spent

        found = self.trial.found
        assert found is not None  # nothing else sets the timer
        record = conclude(
            self.trial,
            found,
            self.records,
            self.spec.restarts,
            now=now,
            seed=self._seed,
            stop=self._stop,
            spare=lambda names: bool(names) and place(self.spec, self.nodes, {*self.avoid, *names}) is not None,
        )
        decision = record.decision
        again = decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE)
        self._move(Trigger.TRY_AGAIN if again else Trigger.ENOUGH, now, decision.reason)
        # The draining counts too; what the trial adds later (the pause, its end by a request) is no part of the record.
        if decision.kind is not DecisionKind.SUCCEED:
            self._say_who_outstayed(found.evidence)
        self._record(replace(record, parts=spent(self.trial, found.evidence, now)))
        self._leave_out(decision.avoid, decision.reason)
        if again:
            self._due = now + decision.delay_s
        elif self._stop is not None and self.trial.stop is not self._stop and not self.trial.completed:
            # It failed, and was told to stop while it drained: the attempt keeps its cause, the job was stopped.
            self._finish_stopped(self._stop)
        else:
            self._finish(record.report, decision.kind)

    def _say_who_outstayed(self, evidence: AttemptEvidence) -> None:
        from holdfast.explain.grace import fate, outstayed  # no start needs it

        if ranks := outstayed(evidence):
            self._say(f"attempt {self.attempt}: {fate(ranks, evidence)}")

    def _record(self, record: AttemptRecord) -> None:
        self.records.append(record)
        self._out.append(RecordAttempt(record=record))
        if record.decision.kind is not DecisionKind.SUCCEED:
            self._say(f"attempt {record.attempt}: {record.report.phrase}: {record.report.reason}")
            again = record.decision.kind in (DecisionKind.RESTART, DecisionKind.REPLACE)
            kind = "" if again else f"{record.decision.kind}: "  # the reason begins with which restart it is
            self._say(f"attempt {record.attempt}: decision: {kind}{record.decision.reason}")

    def _finish_stopped(self, request: StopRequest) -> None:
        evidence = AttemptEvidence(attempt=self.attempt, stop=request, phase=self.phase, job=self.job_id)
        self._finish(explain(evidence, self._catalogue), DecisionKind.STOP)

    def _finish(self, report: ExitReport, kind: DecisionKind) -> None:
        from holdfast.decide.conclude import outcome

        self.report = JobReport(
            job_id=self.job_id,
            name=self.spec.name,
            outcome=outcome(kind, report),
            report=report,
            attempts=tuple(self.records),
        )
        self._out.append(FinishJob(report=self.report))

    # ------------------------------------------------------------------------------------------ time, and coming back

    def _tick(self, now: float) -> None:
        if self._spec is None or self.phase is Phase.DONE:
            return
        if self._limit_at is not None and now >= self._limit_at and self.phase is not Phase.DRAINING:
            self._limit_at = None
            request = words.time_limit(self.spec.time_limit_s or 0.0, now)
            self._asked_to_stop(request, now)
        if self.phase is Phase.BACKOFF and now >= self._due:
            self._begin(now)
        while timer := self._timers.take_due(now, self.attempt, self.phase):
            self._fire(timer, now)

    def _fire(self, timer: Timer, now: float) -> None:
        match timer:
            case Timer.RESEND:
                self._command(now)
            case Timer.PEER_WAIT:
                self._trouble(self.trial.roster.failed()[0].fate, now)
            case Timer.SETTLE:
                self._drained(now, settled=True)
            case Timer.CONFIRM:
                if quiet := self._quiet():
                    names = ", ".join(quiet)
                    self._lose(quiet[0], self._lease_s(), f"{names} did not answer after the owner came back", now)
            case Timer.DECIDE:
                self._conclude(now)
            case Timer.DEADLINE:
                self._overdue(now)
            case _:
                assert_never(timer)

    def _quiet(self) -> tuple[str, ...]:
        """Nodes of which nothing was heard since the owner came back."""
        quiet = self.trial.nodes_of(self.trial.roster.unheard())
        if self.phase is not Phase.PREPARING:
            return quiet
        # Whoever spoke but has not begun yet is there: PREPARE is said again, and has a deadline of its own.
        return tuple(node for node in quiet if node not in self.trial.spoke)

    def _overdue(self, now: float) -> None:
        timers, roster = self.spec.timers, self.trial.roster
        if self.phase is Phase.CHECKING:
            message = f"the checks did not finish within {timers.check_s:g} s"
            self.trial.check = CheckFailure(check="all", message=message, inconclusive=True)
            self._end_unstarted(Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, message)
        elif self.phase is Phase.PREPARING:
            self._late(Deadline.PREPARE, roster.missing(MemberState.PREPARED), timers.prepare_s, now)
        elif self.phase is Phase.STARTING:
            self._late(Deadline.START, roster.missing(*GONE), timers.start_s, now)
        elif self.phase is Phase.DRAINING and self.trial.collecting:
            self._understand(self.trial.evidence(self.phase, self.job_id), now)
        elif self.phase is Phase.DRAINING:
            alive = ", ".join(node for node in self.trial.nodes if not self._is_stopped(node))
            self.trial.unkillable = True
            self._say(f"attempt {self.attempt}: processes on {alive} outlived SIGKILL by {timers.kill_s:g} s")
            self._collect(now)

    def _late(self, what: Deadline, ranks: Sequence[int], limit_s: float, now: float) -> None:
        self.trial.deadline, self.trial.late = what, tuple(ranks)
        names = ", ".join(str(rank) for rank in ranks)
        self._trouble(f"ranks {names} were not ready within {limit_s:g} s ({what})", now)

    def _recovered(self, now: float) -> None:
        """The owner has replayed its journal. Say again what was under way; believe no member until it speaks."""
        self.term += 1
        self._unheard = {node.name for node in self.nodes}
        self._hears_until = now + self._lease_s()
        if self.phase is Phase.PREPARING:
            self.trial.sent = True  # or it was about to be; the seats are the same
        if self.phase is Phase.CHECKING:
            self.trial.round += 1
            self._ask_checks(now)
        elif self.phase in LIVE:
            self.trial.roster.forget()
            self.trial.spoke.clear()
            self._arm(Timer.CONFIRM, now + self._lease_s())
            self._command(now)
        elif self.phase is Phase.DRAINING and self.trial.collecting:
            self._collect(now)
        elif self.phase is Phase.DRAINING:
            self._command(now)
        elif self.report is not None:
            self._out.append(FinishJob(report=self.report))


def _speaks(ended: WorkerExit) -> bool:
    """More than a bare status says why: whoever leaves without a word may have left because of a peer."""
    return first_hand(ended) and not is_wordless(ended)
