"""Gangs and owners with one thing wrong each, for `mutants`."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from msgspec import structs

from holdfast.decide.gang import Gang
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.decide.phases import LIVE, Phase
from holdfast.decide.roster import ENDED, FINISHED, Roster
from holdfast.decide.timers import Timer, Timers
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.commands import Ack, MemberState, Report
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.evidence import MemoryKill
from holdfast.model.exits import ExitReport
from holdfast.model.progress import Sign, SignKind
from holdfast.testing.owner import OwnerHost


class NoAttemptCheck(Gang):
    def _reported(self, report: Report, now: float) -> None:
        super()._reported(structs.replace(report, attempt=self.attempt), now)


class HearsAll(Owner):
    """Takes every report for news, also one that a later one has overtaken."""

    def hear(self, report: Report, now: float) -> ev.AgentReported | None:
        if self.liveness is not None:
            self.liveness.heard(report.node, report.boot, now)
        self._clocks.learn(report, now)
        return ev.AgentReported(report=self._clocks.dated(report, now))


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


class _OtherPolicy(Gang):
    """Decides by a policy that is not the job's."""

    changes: ClassVar[dict[str, int]]

    def _conclude(self, now: float) -> None:
        said = self._spec
        assert said is not None
        self._spec = structs.replace(said, restarts=structs.replace(said.restarts, **self.changes))
        super()._conclude(now)
        self._spec = said


class NeverTheSame(_OtherPolicy):
    changes: ClassVar = {"same_failure": 0}


class NoWindow(_OtherPolicy):
    changes: ClassVar = {"window_restarts": 10**6}


class BudgetForNothing(Gang):
    def _conclude(self, now: float) -> None:
        if self.trial.found is not None:
            sign = Sign(kind=SignKind.STEP, text="a step that no worker told")
            self.trial.found = structs.replace(self.trial.found, signs=(sign,), progressed=True)
        super()._conclude(now)


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

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        return self.phase is Phase.DRAINING and self.trial.collecting


class EvidenceAtAnyTime(Gang):
    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
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


class DeafToHigher(Gang):
    """Takes an attempt that it does not know of for an old one."""

    def _is_ahead(self, report: Report) -> bool:
        return False


class UsesUnsecured(Gang):
    """Begins attempts whose number a power cut may take away."""

    def _may_prepare(self, now: float) -> bool:
        self.trial.sent = True
        return True


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


class NodelessKills(OwnerHost):
    """Takes a pid for the same process wherever it was."""

    def memory_kills(self, attempt: int) -> tuple[MemoryKill, ...]:
        return tuple(structs.replace(kill, node="") for kill in super().memory_kills(attempt))


class Amnesia(OwnerHost):
    """Comes back from a crash without its journal, and begins again."""

    def recover(self, life: int) -> None:
        if life == self.life:
            del self.journal[1:], self.history[1:]
            super().recover(life)
