"""Deliberately broken gangs, agents and owners: proof that the simulation would notice.

Each is the real part with one thing wrong, most of them mistakes that real systems have shipped. `simulate --mutants`
runs each until an invariant breaks, and says which, with the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from holdfast.decide.agent import Agent
from holdfast.decide.gang import Gang
from holdfast.decide.phases import LIVE, Phase
from holdfast.decide.roster import ENDED, FINISHED, Roster
from holdfast.decide.timers import Timer, Timers
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.commands import Ack, MemberState, Prepare, Report, Stop
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exits import ExitReport, WorkerExit
from holdfast.observe.liveness import Liveness
from holdfast.testing.owner import Owner
from holdfast.testing.searched import Bounds
from holdfast.testing.simulation import Parts


@dataclass(frozen=True)
class Mutant:
    """One broken variant, and the invariants of which one must break."""

    name: str
    wrong: str
    parts: Parts
    breaks: frozenset[str]
    bounds: Bounds | None = None
    """For mistakes so seldom met by chance that the exhaustive search is the tool: within these bounds it finds it."""


# ---------------------------------------------------------------------------------------------- the owner's mistakes


class NoAttemptCheck(Gang):
    def _reported(self, report: Report, now: float) -> None:
        super()._reported(structs.replace(report, attempt=self.attempt), now)


class _AnyPhase(Timers):
    """Timers that remember neither attempt nor phase."""

    def arm(self, timer: Timer, due: float, attempt: int, phase: Phase) -> None:
        self.due = {**getattr(self, "due", {}), timer: due}

    def armed(self, timer: Timer, attempt: int, phase: Phase) -> bool:
        return timer in getattr(self, "due", {})

    def take_due(self, now: float, attempt: int, phase: Phase) -> Timer | None:
        due: dict[Timer, float] = getattr(self, "due", {})
        first = min(((at, timer) for timer, at in due.items() if at <= now), default=None)
        if first is not None:
            del due[first[1]]
        return first[1] if first is not None else None

    def next_due(self, attempt: int, phase: Phase) -> float | None:
        return min(getattr(self, "due", {}).values(), default=None)


class KeylessTimers(Gang):
    def __init__(self) -> None:
        super().__init__()
        self._timers = _AnyPhase()


class _AnyIsAll(Roster):
    """Takes one of them for all of them, in one phase."""

    def all_in(self, *states: MemberState) -> bool:
        return any(known.state in states for known in self.members.values())


def _with_roster(gang: Gang, kind: type[Roster], phase: Phase) -> None:
    gang.trial.roster.__class__ = kind if gang.phase is phase else Roster


class NoBarrier(Gang):
    def _advance(self, fallen: Any, now: float) -> None:
        _with_roster(self, _AnyIsAll, Phase.PREPARING)
        super()._advance(fallen, now)
        self.trial.roster.__class__ = Roster


class RunningTooSoon(Gang):
    def _advance(self, fallen: Any, now: float) -> None:
        _with_roster(self, _AnyIsAll, Phase.STARTING)
        super()._advance(fallen, now)
        self.trial.roster.__class__ = Roster


class _StoppedIsDone(Roster):
    def all_in(self, *states: MemberState) -> bool:
        return super().all_in(*(FINISHED if frozenset(states) == ENDED else states))


class StoppedCompletes(Gang):
    def _advance(self, fallen: Any, now: float) -> None:
        _with_roster(self, _StoppedIsDone, Phase.RUNNING)
        super()._advance(fallen, now)
        self.trial.roster.__class__ = Roster


class NewBootIsAllStopped(Gang):
    def _started_anew(self, node: str, now: float) -> bool:
        self._stopped[node] = max(self._stopped[node], self.attempt)
        return super()._started_anew(node, now)


class NewBootUnnoticed(Gang):
    def _started_anew(self, node: str, now: float) -> bool:
        return False


class OneStoppedIsEnough(Gang):
    def _is_stopped(self, node: str) -> bool:
        return any(super(OneStoppedIsEnough, self)._is_stopped(other) for other in self.trial.roster.nodes)


class NoPause(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        out = super().handle(event, now)
        self._due = min(self._due, now)
        return out


class ForgetfulBudget(Gang):
    def _conclude(self, now: float) -> None:
        kept, self.records = self.records, []
        super()._conclude(now)
        self.records[:0] = kept


class StopIsCharged(Gang):
    def _record(self, record: AttemptRecord) -> None:
        if record.decision.kind is DecisionKind.STOP:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        super()._record(record)


class AvoidsNothing(Gang):
    def _leave_out(self, names: Any, reason: str) -> None:
        super()._leave_out(names, reason)
        self.avoid.clear()


class BelievesNobody(Gang):
    def _recovered(self, now: float) -> None:
        if self.phase in LIVE:
            self._trouble("the owner was away", now)
        else:
            super()._recovered(now)


class CauseReplaced(Gang):
    def _finish(self, report: ExitReport, kind: DecisionKind) -> None:
        if kind is DecisionKind.FAIL:
            report = structs.replace(report, phrase="RestartsUsedUp", reason="all restarts are used")
        super()._finish(report, kind)


class RealDice(Gang):
    def _submitted(self, event: ev.JobSubmitted, now: float) -> None:
        super()._submitted(structs.replace(event, seed=random.SystemRandom().getrandbits(32)), now)


class DeafToFailures(Gang):
    def _failure(self, fallen: Any, now: float) -> None:
        """A failure is kept, and nobody stops the others."""


class AnyEvidence(Gang):
    """Takes whatever evidence comes while it waits for some."""

    def _is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        return self.phase is Phase.DRAINING and self.trial.collecting


class EvidenceAtAnyTime(Gang):
    def _is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        return self.trial.collecting


class WaitsForEvidence(Gang):
    def _overdue(self, now: float) -> None:
        if self.trial.collecting:
            self._arm(Timer.DEADLINE, now + 10_000.0)
        else:
            super()._overdue(now)


class FencesAll(Gang):
    def _fence(self, event: ev.NodeFenced, now: float) -> None:
        for node in self.trial.roster.nodes:
            super()._fence(structs.replace(event, node=node, boot=self.boots.get(node, 0)), now)


class BootsForgotten(Liveness):
    """After the owner's return, takes silence for that of an agent that it never heard."""

    def expect(self, nodes: Any, now: float, boots: Any = None) -> None:
        super().expect(nodes, now)


class NoFenceWait(Liveness):
    def __init__(self, timers: Any) -> None:
        super().__init__(timers)
        self._silent_s = self._fence_s = 2.0 * timers.beat_s


def no_floor(gang: Gang, report: Report) -> Ack:
    return Ack(sent=report.sent, floor=0)


class Amnesia(Owner):
    """Comes back from a crash without its journal, and begins again."""

    def recover(self, life: int) -> None:
        if life == self.life:
            del self.journal[1:], self.history[1:]
            super().recover(life)


# ---------------------------------------------------------------------------------------------- the agent's mistakes


class StopIsFailure(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        intent, self._intent = self._intent, False
        super()._exited(ended, now)
        self._intent = intent


class StatelessBeat(Agent):
    def tick(self, now: float) -> list[Any]:
        mine = self._mine
        beats = self._lease_s is not None and now >= self._next_beat
        if beats and not (self._kill_at is not None or now >= self._lease_until):
            self._mine = {}
        out = super().tick(now)
        self._mine = mine
        return out


class LeaseFromReceipt(Agent):
    def _renew(self, ack: Ack, now: float) -> None:
        super()._renew(structs.replace(ack, sent=now), now)


class NoStopMemory(Agent):
    def _stop(self, command: Stop, now: float) -> None:
        if command.attempt > self.attempt and not self._alive():
            self.stopped = max(self.stopped, command.attempt)
        else:
            super()._stop(command, now)

    def _prepare(self, command: Prepare, now: float) -> None:
        self._stop_memory = 0
        super()._prepare(command, now)


class PrepareGrantsLease(Agent):
    def _prepare(self, command: Prepare, now: float) -> None:
        if self._lease_s is not None and command.attempt >= self.attempt:
            self._lease_until = max(self._lease_until, now + self._lease_s)
        super()._prepare(command, now)


class TakesAnyAck(Agent):
    def _renew(self, ack: Ack, now: float) -> None:
        self._first_sent = float("-inf")
        super()._renew(ack, now)


class ObeysOldGo(Agent):
    def _go(self, command: Any) -> None:
        super()._go(structs.replace(command, attempt=self.attempt))


class SaysStoppedEarly(Agent):
    def _stop(self, command: Stop, now: float) -> None:
        super()._stop(command, now)
        self.stopped = max(self.stopped, command.attempt)


class KilledKept(Agent):
    """One SIGKILL, and no lease that runs out later ends anything."""

    def _enter(self, attempt: int) -> None:
        killed = self._killed
        super()._enter(attempt)
        self._killed = killed


class IntentKept(Agent):
    def _enter(self, attempt: int) -> None:
        intent = self._intent
        super()._enter(attempt)
        self._intent = intent


class KillTimerKept(Agent):
    def _reaped(self, attempt: int) -> None:
        kill_at = self._kill_at
        super()._reaped(attempt)
        self._kill_at = kill_at

    def _enter(self, attempt: int) -> None:
        kill_at = self._kill_at
        super()._enter(attempt)
        self._kill_at = kill_at


class DyingIgnored(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        super()._exited(structs.replace(ended, was_dying=False), now)


class StopUnmarked(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        super()._exited(ended, now)
        if (mine := self._mine.get(ended.rank)) is not None and mine.exit is not None:
            mine.exit = structs.replace(mine.exit, after_stop=False)


class StopRewrites(Agent):
    """A stop makes stopped ranks also of those that had failed before it."""

    def _intend(self, attempt: int) -> None:
        super()._intend(attempt)
        for mine in self._mine.values():
            if mine.state is MemberState.FAILED and mine.exit is not None:
                mine.state, mine.exit = MemberState.STOPPED, structs.replace(mine.exit, after_stop=True)


class NeverKills(Agent):
    def tick(self, now: float) -> list[Any]:
        if self._intent:
            self._kill_at = None
            self._killed = True
        return super().tick(now)


def _owner(kind: type[Gang], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(gang=kind), frozenset(breaks), bounds)


def _part(name: str, wrong: str, parts: Parts, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, parts, frozenset(breaks), bounds)


def _agent(kind: type[Agent], name: str, wrong: str, *breaks: str, bounds: Bounds | None = None) -> Mutant:
    return Mutant(name, wrong, Parts(agent=kind), frozenset(breaks), bounds)


SILENT = Bounds(crashes=0, suspicions=1, prompt=True)
RESTARTED = Bounds(crashes=0, expiries=0, suspicions=1, agent_restarts=1, prompt=True)

MUTANTS: tuple[Mutant, ...] = (
    _owner(NoAttemptCheck, "no-attempt-check", "the owner takes reports of any attempt for the present one", "I2"),
    _agent(StopIsFailure, "stop-is-failure", "an intended stop is reported as a failure", "I2", "I5", "I11"),
    _owner(KeylessTimers, "keyless-timers", "timers carry neither attempt nor phase", "I2", "bug"),
    _owner(NoBarrier, "no-barrier", "GO when the first is prepared", "I3"),
    _agent(StatelessBeat, "stateless-beat", "the heartbeat carries no state", "I6"),
    _part("no-fence-wait", "a silent node is fenced before its lease is over", Parts(liveness=NoFenceWait), "I1"),
    _agent(
        LeaseFromReceipt, "lease-from-receipt", "the lease is counted from the receipt of the ACK", "I1", bounds=SILENT
    ),
    _agent(NoStopMemory, "no-stop-memory", "a STOP that comes before its PREPARE is forgotten", "I1", bounds=SILENT),
    _agent(PrepareGrantsLease, "prepare-grants-lease", "PREPARE grants a lease", "I1", bounds=SILENT),
    _part("no-floor", "the ACK carries no floor", Parts(acknowledge=no_floor), "I1", bounds=SILENT),
    _owner(RunningTooSoon, "running-too-soon", "RUNNING when the first is up", "I12"),
    _owner(StoppedCompletes, "stopped-completes", "a rank that was stopped counts as finished", "I2"),
    _owner(NewBootIsAllStopped, "new-boot-is-stopped", "a new agent means: this attempt is over there", "I1"),
    _owner(NewBootUnnoticed, "new-boot-unnoticed", "a new agent is taken for the one before", "I2", "I6"),
    _owner(OneStoppedIsEnough, "one-stopped", "drained when the first node has stopped", "I1"),
    _owner(NoPause, "no-pause", "no back-off between attempts", "I10"),
    _owner(ForgetfulBudget, "forgetful-budget", "each decision sees an empty history", "I4", "I10"),
    _owner(StopIsCharged, "stop-is-charged", "a stop on request is charged", "I4"),
    _owner(AvoidsNothing, "avoids-nothing", "what is to be avoided is forgotten", "avoid"),
    _owner(BelievesNobody, "believes-nobody", "an owner that comes back stops what runs", "I11"),
    _owner(CauseReplaced, "cause-replaced", "running out of restarts replaces the cause", "report"),
    _owner(RealDice, "real-dice", "jitter comes from a real random number", "I9"),
    _owner(DeafToFailures, "deaf-to-failures", "a failure stops nobody", "I6"),
    _part("amnesia", "the owner comes back without its journal", Parts(owner=Amnesia), "I7", "I9", "I1"),
    _agent(
        TakesAnyAck, "takes-any-ack", "an ACK for the agent of before renews the lease", "I1", "I2", bounds=RESTARTED
    ),
    _agent(ObeysOldGo, "obeys-old-go", "an old attempt's GO is obeyed", "I3"),
    _agent(SaysStoppedEarly, "stopped-early", "stopped is said before all is reaped", "I1"),
    _agent(NeverKills, "never-kills", "no SIGKILL after the grace time", "I6"),
    _owner(AnyEvidence, "any-evidence", "evidence of any attempt is taken for the one that is asked for", "report"),
    _owner(EvidenceAtAnyTime, "evidence-any-time", "evidence is taken in any phase", "bug", "report"),
    _owner(WaitsForEvidence, "waits-for-evidence", "evidence that never comes is waited for without end", "I6"),
    _agent(KilledKept, "killed-kept", "an agent that has killed once never ends a lease again", "I1"),
    _agent(IntentKept, "intent-kept", "the intent to stop is kept over attempts", "I2", "I5", "I6", "I11"),
    _agent(KillTimerKept, "kill-timer-kept", "the end of a grace time kills the next attempt", "I2", "I5"),
    _agent(DyingIgnored, "dying-ignored", "a rank that was dying before the stop counts as stopped", "I5"),
    _agent(StopUnmarked, "stop-unmarked", "the exit of a stopped rank is not marked as such", "I5"),
    _agent(StopRewrites, "stop-rewrites", "a stop makes stopped ranks of those that had failed before", "I5"),
    _owner(FencesAll, "fences-all", "one node that is fenced counts for all", "I1"),
    _part(
        "boots-forgotten",
        "an owner that is back does not know whose silence it hears",
        Parts(liveness=BootsForgotten),
        "boot",
    ),
)
