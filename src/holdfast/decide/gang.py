"""The gang: the only state machine that starts, stops and restarts workers. Events in, actions out, nothing else.

It reads no clock, file or random number: `now` comes in, jitter is derived from the job's recorded seed, so replaying
the journal gives the same actions. Whatever an older attempt says is counted, may prove that it has stopped, and can
touch nothing newer. `phases.TABLE` lists every move it can make; `trial.Trial` holds what belongs to one attempt.

Here is what each event leads to. How an attempt begins stands in `beginning`, what nodes are told in `orders`, whether
a number may be used in `numbers`, who speaks for a node in `speakers`, and the way from a stop to a decision in
`draining`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, assert_never

from holdfast.decide import words
from holdfast.decide.beginning import Beginning
from holdfast.decide.course import Course
from holdfast.decide.draining import Draining, Judge
from holdfast.decide.ending import Ending
from holdfast.decide.numbers import Numbers
from holdfast.decide.orders import Orders
from holdfast.decide.phases import LIVE, Phase, Trigger
from holdfast.decide.placement import users
from holdfast.decide.roster import GONE, Known, Roster
from holdfast.decide.speakers import Speakers
from holdfast.decide.timers import Timer, Timers, soonest
from holdfast.explain import first_hand, is_wordless
from holdfast.model import events as ev
from holdfast.model.actions import Action, FinishJob
from holdfast.model.commands import MemberState, Report
from holdfast.model.decisions import DecisionKind
from holdfast.model.evidence import CheckFailure, Deadline, StopRequest, StopSource
from holdfast.model.faults import ActiveFault
from holdfast.model.jobs import Seat

if TYPE_CHECKING:
    from holdfast.catalogue.exits import Catalogue
    from holdfast.decide.view import GangView


class Gang(Course):
    """One job's owner. The first event must be `JobSubmitted`."""

    def __init__(
        self,
        catalogue: Catalogue | None = None,
        *,
        timers: Callable[[], Timers] = Timers,
        roster: Callable[[tuple[Seat, ...]], Roster] = Roster,
        speakers: Callable[[Course], Speakers] = Speakers,
        numbers: Callable[[Course, Speakers], Numbers] = Numbers,
        draining: Callable[[Course, Speakers, Orders, Ending, Judge], Draining] = Draining,
        judge: Judge | None = None,
    ) -> None:
        """`catalogue`: the rows exits are explained by; None: the built-in ones. The others: what it is made of."""
        super().__init__(catalogue, timers=timers, roster=roster)
        self.speakers = speakers(self)
        self._numbers = numbers(self, self.speakers)
        self._orders = Orders(self, self.speakers, self._numbers)
        self._ending = Ending(self)
        self._beginning = Beginning(self, self._orders, self._ending)
        self._draining = draining(self, self.speakers, self._orders, self._ending, judge or Judge())
        self._limit_at: float | None = None
        self._view: GangView | None = None

    # ------------------------------------------------------------------------------------------ the door

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        """Take one event at `now` (seconds); the actions that follow, in the order to perform them."""
        self._view, self.event = None, event
        self.events += 1
        match event:
            case ev.JobSubmitted():
                self._submitted(event, now)
            case ev.ChecksFinished():
                self._beginning.checked(event, now)
            case ev.AgentReported():
                self._reported(event.report, now)
            case ev.NodeSilent():
                self._silent(event, now)
            case ev.NodeFenced():
                if self.speakers.speaks(event.node, event.boot):
                    self._draining.fence(event.node, now)
            case ev.StopRequested():
                self._asked_to_stop(event.request, now)
            case ev.FaultSeen():
                self._fault(event, now)
            case ev.NodeJoined() | ev.NodeLeft() | ev.ChecksMoved():
                pass  # for those who look at the journal while the checks run
            case ev.CheckFailedRunning():
                self._check_failed(event, now)
            case ev.HangFound():
                self._hung(event, now)
            case ev.EvidenceCollected():
                if self.is_asked_for(event):
                    self._draining.understand(event.evidence, now)
            case ev.JournalSecured():
                self._secured(event, now)
            case ev.OwnerRecovered():
                self._recovered(now)
            case ev.Tick():
                self._tick(now)
            case _:
                assert_never(event)
        out, self.out = self.out, []
        return out

    def next_wake(self) -> float | None:
        """When a `Tick` is due, in seconds on the clock of `now`; None: only an event can change anything."""
        if self.phase is Phase.DONE or not self.submitted:
            return None
        wakes = [self.timers.next_due(self.attempt, self.phase)]
        if self.phase is Phase.BACKOFF:
            wakes.append(self.due)
        if self.phase is not Phase.DRAINING:
            wakes.append(self._limit_at)
        return soonest(wakes)

    def floor(self, node: str) -> int:
        """The highest attempt that is dead as far as this node goes: every acknowledgement to its agent carries it."""
        drained = self.phase is Phase.DRAINING and self.speakers.is_stopped(node)
        return self.highest if drained or self.phase in (Phase.BACKOFF, Phase.DONE) else self.attempt - 1

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        """Evidence of an older attempt, or that comes after its deadline, explains nothing."""
        return self._draining.is_asked_for(event)

    def view(self) -> GangView:
        """What others may see of it now; the same object until the next event."""
        if self._view is None:
            from holdfast.decide.view import GangView, members_of, waits_for  # no start asks for it

            trial, speakers = self.trial, self.speakers
            undrained = tuple(node for node in trial.nodes if not speakers.is_stopped(node))
            unheard = frozenset(speakers.unheard)
            self._view = GangView(
                job_id=self.job_id,
                phase=self.phase,
                attempt=self.attempt,
                started_at=trial.started_at,
                completed=trial.completed,
                members=members_of(trial),
                avoid=frozenset(self.avoid),
                waits_for=waits_for(self.phase, trial, undrained=undrained, unheard=unheard, due=self.due),
                next_wake=self.next_wake(),
                term=self.term,
            )
        return self._view

    # ------------------------------------------------------------------------------------------ before PREPARING

    def _submitted(self, event: ev.JobSubmitted, now: float) -> None:
        if self.submitted:
            return
        self.job_id, self.spec, self.nodes, self.seed = event.job_id, event.spec, event.nodes, event.seed
        self.due = self.entered_at = now
        self.caused_by_this()
        self.kept_out, self.utc_offset_s = event.kept_out, event.utc_offset_s
        self.avoid.update(kept.device for kept in event.kept_out)
        for kept in event.kept_out:
            self.say(f"{kept.device} is {kept.standing} and gets no work: {kept.reason}")
        if event.spec.time_limit_s is not None:
            self._limit_at = now + event.spec.time_limit_s
        self._beginning.begin(now)

    def _secured(self, event: ev.JournalSecured, now: float) -> None:
        if not self._numbers.is_awaited(event):
            return
        if request := self._numbers.secured(event, now):
            self.stop = self.stop or request
            self._draining.stop_for(request.reason, now, request)
        elif not event.trouble:
            self._orders.send(now)

    # ------------------------------------------------------------------------------------------ an agent's word

    def _reported(self, report: Report, now: float) -> None:
        if self.speakers.is_of_before(report):
            self.stale_reports += 1
            return
        anew = self.speakers.hear(report)
        self.trial.spoke.add(report.node)
        if report.term > self.term:
            self.term = report.term + 1  # an owner that this journal does not know of came between
        mine = report.node in self.trial.roster
        if anew and self._started_anew(report.node, now):
            return
        if self._numbers.is_ahead(report):
            self._outrun(report, now)
        elif report.attempt != self.attempt:
            self.stale_reports += 1
        elif mine and self.phase in LIVE:
            self._advance(self.trial.roster.take(report, now), now)
        elif mine and self.phase is Phase.DRAINING:
            self.trial.roster.take(report, now)
        if (
            mine
            and self.phase in LIVE
            and report.stopped >= self.attempt
            and not self.trial.roster.all_done_on(report.node)
        ):
            # It stopped what the owner never stopped: its lease had run out.
            self._lose(report.node, 0.0, f"{report.node} stopped its workers by itself (its lease had run out)", now)
        if self.phase is Phase.DRAINING:
            self._draining.look(now)

    def _started_anew(self, node: str, now: float) -> bool:
        """A new agent speaks: the one of before is gone, and with it (its guard saw to that) every process it had.

        True if that ends the attempt. Where nothing of the attempt had been made ready there, it does not: PREPARE is
        said again, so the attempt may yet live on that node, and only older ones are surely over.
        """
        untouched = self.phase is Phase.PREPARING and all(k.state is None for k in self.trial.roster.on(node))
        over = self.attempt - 1 if untouched or self.phase is Phase.CHECKING else self.attempt
        self._draining.lose(node, 0.0)
        self.speakers.began_anew(node, over)
        if self.phase not in LIVE or untouched or node not in self.trial.roster:
            return False
        self._lose(node, 0.0, f"the agent of {node} started anew", now)
        return True

    def _outrun(self, report: Report, now: float) -> None:
        """Stop the forgotten attempt everywhere: where it was placed is forgotten too."""
        self._numbers.take(report, now)
        if self.phase is Phase.DRAINING:
            self._draining.begin_again(now)
        elif self.phase is not Phase.DONE:
            request = words.forgotten(report.node, report.attempt, now)
            self._draining.stop_for(request.reason, now, request)

    def _advance(self, fallen: Sequence[Known], now: float) -> None:
        roster = self.trial.roster
        if fallen:
            self._failure(fallen, now)
        if self.phase is Phase.PREPARING and roster.all_ready():
            self.move(Trigger.ALL_PREPARED, now, "all prepared")
            self.trial.go_at = now
            self.arm(Timer.DEADLINE, now + self.spec.timers.start_s)
            self._orders.send(now)
        # Whoever waits for a peer's own word must not move on: the timer that ends the wait stays with this phase.
        if self.phase is Phase.STARTING and roster.all_gone() and not self.armed(Timer.PEER_WAIT):
            self.move(Trigger.ALL_UP, now, "all up")
            workers = "the worker is" if len(roster.seats) == 1 else f"all {len(roster.seats)} workers are"
            self.say(f"attempt {self.attempt}: {workers} up")
        if self.phase is Phase.RUNNING and roster.verdict(self.spec) is True:
            self._draining.complete(now)

    def _failure(self, fallen: Sequence[Known], now: float) -> None:
        """Evidence of its own stops the gang at once; blame for a peer, or silence, leaves the others a moment."""
        for known in fallen:
            self.say(f"attempt {self.attempt}: {known.fate}", cause=self.this_event())
        ran = self.phase is not Phase.PREPARING and not any(known.start_failed for known in fallen)
        if ran and self.trial.roster.verdict(self.spec) is not False:
            return  # the completion policy can do without it
        # More than a bare status says why: a worker that leaves without a word may have left because of a peer.
        own = [k for k in fallen if not k.exit or k.start_failed or (first_hand(k.exit) and not is_wordless(k.exit))]
        if own or not self.trial.roster.missing(MemberState.DONE, MemberState.FAILED, MemberState.STOPPED):
            self._draining.stop_for((own or fallen)[0].fate, now)
        elif not self.armed(Timer.PEER_WAIT):
            self.trial.suspect = self.this_event()
            self.arm(Timer.PEER_WAIT, now + self.spec.timers.peer_wait_s)

    # ------------------------------------------------------------------------------------------ trouble

    def _lose(self, node: str, silent_s: float, reason: str, now: float) -> None:
        self.trial.lose(node, silent_s)
        self._draining.stop_for(reason, now)

    def _silent(self, event: ev.NodeSilent, now: float) -> None:
        if event.node not in self.trial.roster or not self.speakers.speaks(event.node, event.boot):
            return
        if self.phase in LIVE:
            self._lose(event.node, event.silent_s, f"no word from {event.node} for {event.silent_s:.0f} s", now)
        else:
            self._draining.lose(event.node, event.silent_s)

    def _asked_to_stop(self, request: StopRequest, now: float) -> None:
        if request.final and self.stop is None and self.phase is not Phase.DONE:
            self.stop = request
        if self.phase in LIVE:
            self._draining.stop_for(request.reason, now, request)
        elif self.phase is Phase.DRAINING:
            self._draining.ask_again(request, now)
        elif request.final and self.phase is Phase.CHECKING:
            self.caused_by_this()
            self.say(f"stopping: {request.reason}")
            self._ending.finish_unstarted(Trigger.STOP_REQUESTED, now, DecisionKind.STOP, request.reason)
        elif request.final and self.phase is Phase.BACKOFF:
            self.caused_by_this()
            self.say(f"stopping: {request.reason}")
            self.move(Trigger.STOP_REQUESTED, now, request.reason)
            self._ending.finish_stopped(request)

    def _fault(self, event: ev.FaultSeen, now: float) -> None:
        """Keep it as evidence: an exit that overlaps it is explained by it. Stop for it where its remedy says so."""
        fault = event.fault
        if event.avoid:
            self.leave_out(event.avoid, event.why)
        self.reset_s = max(self.reset_s, event.reset_s)
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
            self._draining.stop_for(event.why, now, request)

    def _hung(self, event: ev.HangFound, now: float) -> None:
        if event.attempt == self.attempt and self.phase is Phase.RUNNING:
            self.trial.hang = event.evidence
            why = f"nothing has moved for {event.evidence.silent_s:.0f} s: {event.evidence.why}"
            self._draining.stop_for(why, now)

    def _check_failed(self, event: ev.CheckFailedRunning, now: float) -> None:
        if event.attempt == self.attempt and self.phase is Phase.RUNNING:
            self.trial.check = event.failure
            self._draining.stop_for(f"check {event.failure.check} failed: {event.failure.message}", now)

    # ------------------------------------------------------------------------------------------ time, and coming back

    def _tick(self, now: float) -> None:
        if not self.submitted or self.phase is Phase.DONE:
            return
        if self._limit_at is not None and now >= self._limit_at and self.phase is not Phase.DRAINING:
            self._limit_at = None
            request = words.time_limit(self.spec.time_limit_s or 0.0, now)
            self._asked_to_stop(request, now)
        if self.phase is Phase.BACKOFF and now >= self.due:
            self._beginning.begin(now)
        while timer := self.timers.take_due(now, self.attempt, self.phase):
            self._fire(timer, now)

    def _fire(self, timer: Timer, now: float) -> None:
        match timer:
            case Timer.RESEND:
                self._orders.send(now)
            case Timer.PEER_WAIT:
                self._draining.stop_for(self.trial.roster.failed()[0].fate, now, cause=self.trial.suspect)
            case Timer.SETTLE:
                self._draining.look(now, settled=True)
            case Timer.CONFIRM:
                if quiet := self.trial.quiet(preparing=self.phase is Phase.PREPARING):
                    names = ", ".join(quiet)
                    self._lose(quiet[0], self.lease_s(), f"{names} did not answer after the owner came back", now)
            case Timer.DECIDE:
                self._draining.conclude(now)
            case Timer.DEADLINE:
                self._overdue(now)
            case _:
                assert_never(timer)

    def _overdue(self, now: float) -> None:
        timers, roster = self.spec.timers, self.trial.roster
        if self.phase is Phase.CHECKING:
            message = f"the checks did not finish within {timers.check_s:g} s"
            self.trial.check = CheckFailure(check="all", message=message, inconclusive=True)
            self._ending.finish_unstarted(Trigger.NOBODY_HEALTHY, now, DecisionKind.FAIL, message)
        elif self.phase is Phase.PREPARING:
            self._late(Deadline.PREPARE, roster.missing(MemberState.PREPARED), timers.prepare_s, now)
        elif self.phase is Phase.STARTING:
            self._late(Deadline.START, roster.missing(*GONE), timers.start_s, now)
        elif self.phase is Phase.DRAINING:
            self._draining.overdue(now)

    def _late(self, what: Deadline, ranks: Sequence[int], limit_s: float, now: float) -> None:
        self.trial.deadline, self.trial.late = what, tuple(ranks)
        names = ", ".join(str(rank) for rank in ranks)
        self._draining.stop_for(f"ranks {names} were not ready within {limit_s:g} s ({what})", now)

    def _recovered(self, now: float) -> None:
        """The owner has replayed its journal. Say again what was under way; believe no member until it speaks."""
        self.term += 1
        self.speakers.forget((node.name for node in self.nodes), now + self.lease_s())
        if self.phase is Phase.PREPARING:
            self.trial.sent = True  # or it was about to be; the seats are the same
        if self.phase is Phase.CHECKING:
            self.trial.round += 1
            self._beginning.ask_checks(now)
        elif self.phase in LIVE:
            self.trial.roster.forget()
            self.trial.spoke.clear()
            self.arm(Timer.CONFIRM, now + self.lease_s())
            self._orders.send(now)
        elif self.phase is Phase.DRAINING:
            self._draining.recovered(now)
        elif self.report is not None:
            self.out.append(FinishJob(report=self.report, cause=self.cause))
