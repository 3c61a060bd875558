"""Gangs and owners with one planted fault each. `mutants` has the list of all of them."""

from __future__ import annotations

import random
from typing import Any

from msgspec import structs

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.attempt_members import FINISHED, GONE, READY, AttemptMembers, KnownRank
from holdfast.decide.attempt_numbers import AttemptNumbers
from holdfast.decide.attempt_state import Conclusion
from holdfast.decide.attempt_timers import AttemptTimers, TimerKind
from holdfast.decide.draining import AttemptJudge, Draining
from holdfast.decide.gang import Gang
from holdfast.decide.job_state import GangState
from holdfast.decide.liveness import Liveness
from holdfast.decide.owner import Owner
from holdfast.decide.phases import LIVE, Phase
from holdfast.model import events as ev
from holdfast.model.actions import Action, FinishJob
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.evidence import MemoryKill, StopRequest
from holdfast.model.exit_report import Outcome
from holdfast.model.gang_protocol import Ack, Report
from holdfast.model.job_spec import RestartPolicy
from holdfast.model.progress_facts import Sign, SignKind
from holdfast_testing.simulated_node import Machine
from holdfast_testing.simulated_owner import OwnerHost


class NoAttemptCheck(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.AgentReported):
            event = structs.replace(event, report=structs.replace(event.report, attempt=self.attempt))
        return super().handle(event, now)


class HearsAll(Owner):
    """An owner that accepts every report, even a stale one that arrives after a newer report."""

    def hear(self, report: Report, now: float) -> ev.AgentReported | None:
        if self.liveness is not None:
            self.liveness.heard(report.node, report.boot, now)
        self.clocks.learn(report, now)
        return ev.AgentReported(report=self.clocks.dated(report, now))


class AnyPhase(AttemptTimers):
    """Timers that do not remember for which attempt and phase they were set, so that they fire in any."""

    def arm(self, timer: TimerKind, due: float, attempt: int, phase: Phase) -> None:
        self.due = {**getattr(self, "due", {}), timer: due}

    def armed(self, timer: TimerKind, attempt: int, phase: Phase) -> bool:
        return timer in getattr(self, "due", {})

    def take_due(self, now: float, attempt: int, phase: Phase) -> TimerKind | None:
        due: dict[TimerKind, float] = getattr(self, "due", {})
        first = min(((at, timer) for timer, at in due.items() if at <= now), default=None)
        if first is not None:
            del due[first[1]]
        return first[1] if first is not None else None

    def next_due(self, attempt: int, phase: Phase) -> float | None:
        return min(getattr(self, "due", {}).values(), default=None)


class OneIsReady(AttemptMembers):
    def all_ready(self) -> bool:
        return any(known.state in READY for known in self.members.values())


class OneIsGone(AttemptMembers):
    def all_gone(self) -> bool:
        return any(known.state in GONE for known in self.members.values())


class StoppedIsDone(AttemptMembers):
    def all_ended(self) -> bool:
        return all(known.state in FINISHED for known in self.members.values())


class Deaf(AttemptMembers):
    """A gang that records a failed worker but does not stop the other nodes."""

    def take(self, report: Report, now: float) -> list[KnownRank]:
        super().take(report, now)
        return []


class NewBootIsAllStopped(AgentRegistry):
    def __init__(self, gang: GangState) -> None:
        super().__init__(gang)
        self.gang = gang

    def began_anew(self, node: str, over: int) -> None:
        super().began_anew(node, self.gang.attempt)


class NewBootUnnoticed(AgentRegistry):
    def hear(self, report: Report) -> bool:
        super().hear(report)
        return False


class OneStoppedIsEnough(AgentRegistry):
    def is_stopped(self, node: str) -> bool:
        return any(super(OneStoppedIsEnough, self).is_stopped(other) for other in self.boots)


class NoPause(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        out = super().handle(event, now)
        self.due = min(self.due, now)
        return out


class OtherHistory(AttemptJudge):
    """A judge that decides about a restart with a changed history, policy or finding.

    By default the history is empty.
    """

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        attempt_state, found, history, policy = given
        return super().conclude(attempt_state, *self.changed(found, history, policy), **asked)

    def changed(self, found: Conclusion, history: Any, policy: RestartPolicy) -> tuple[Conclusion, Any, RestartPolicy]:
        return found, (), policy


class NeverTheSame(OtherHistory):
    def changed(self, found: Conclusion, history: Any, policy: RestartPolicy) -> tuple[Conclusion, Any, RestartPolicy]:
        return found, history, structs.replace(policy, same_failure=0)


class NoWindow(OtherHistory):
    def changed(self, found: Conclusion, history: Any, policy: RestartPolicy) -> tuple[Conclusion, Any, RestartPolicy]:
        return found, history, structs.replace(policy, window_restarts=10**6)


class BudgetForNothing(OtherHistory):
    def changed(self, found: Conclusion, history: Any, policy: RestartPolicy) -> tuple[Conclusion, Any, RestartPolicy]:
        sign = Sign(kind=SignKind.STEP, text="a step that no worker told")
        return structs.replace(found, signs=(sign,), progressed=True), history, policy


class StopIsCharged(AttemptJudge):
    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.decision.kind is DecisionKind.STOP:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class AvoidsNothing(Gang):
    def leave_out(self, names: Any, reason: str) -> None:
        super().leave_out(names, reason)
        self.avoid = frozenset()


class BelievesNobody(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.OwnerRecovered) and self.phase in LIVE:
            event = ev.StopRequested(request=StopRequest(reason="the owner was away", at=now, final=False))
        return super().handle(event, now)


class CauseReplaced(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        return [self.told(action) for action in super().handle(event, now)]

    def told(self, action: Action) -> Action:
        if not isinstance(action, FinishJob) or action.report.outcome is not Outcome.FAILED:
            return action
        cause = structs.replace(action.report.report, phrase="RestartsUsedUp", reason="all restarts are used")
        return structs.replace(action, report=structs.replace(action.report, report=cause))


class RealDice(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobSubmitted):
            event = structs.replace(event, seed=random.SystemRandom().getrandbits(32))
        return super().handle(event, now)


class AnyEvidence(Gang):
    """A gang that waits for evidence and accepts the evidence of any attempt."""

    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        return self.phase is Phase.DRAINING and self.attempt_state.collecting


class EvidenceAtAnyTime(Gang):
    def is_asked_for(self, event: ev.EvidenceCollected) -> bool:
        return self.attempt_state.collecting


class WaitsForEvidence(Draining):
    def __init__(self, gang: GangState, *parts: Any) -> None:
        super().__init__(gang, *parts)
        self.gang = gang

    def overdue(self, now: float) -> None:
        if self.gang.attempt_state.collecting:
            self.gang.arm(TimerKind.DEADLINE, now + 10_000.0)
        else:
            super().overdue(now)


class FencesAll(Draining):
    def __init__(self, gang: GangState, *parts: Any) -> None:
        super().__init__(gang, *parts)
        self.gang = gang

    def fence(self, node: str, now: float) -> None:
        for other in self.gang.attempt_state.roster.nodes:
            super().fence(other, now)


class DeafToHigher(AttemptNumbers):
    """A gang that treats a report about a later attempt, which it does not know, as one about an old attempt."""

    def is_ahead(self, report: Report) -> bool:
        return False


class UsesUnsecured(AttemptNumbers):
    """A gang that begins an attempt before the attempt's number in the journal is safe from a power cut."""

    def __init__(self, gang: GangState, agents: AgentRegistry) -> None:
        super().__init__(gang, agents)
        self.gang = gang

    def may_prepare(self, now: float) -> bool:
        self.gang.attempt_state.mark_sent()
        return True


class BootsForgotten(Liveness):
    """An owner that after its restart judges whether a node is silent without knowing the boot number of its agent."""

    def expect(self, nodes: Any, now: float, boots: Any = None) -> None:
        super().expect(nodes, now)


class NoFenceWait(Liveness):
    def __init__(self, timers: Any) -> None:
        super().__init__(timers)
        self.silent_s = self.fence_s = 2.0 * timers.beat_s


def no_floor(gang: Gang, report: Report) -> Ack:
    return Ack(sent=report.sent, floor=0)


class NodelessKills(OwnerHost):
    """An owner that loses the node of a memory kill, and so takes equal pids on different nodes for the same
    process."""

    def memory_kills(self, machine: Machine, attempt: int) -> tuple[MemoryKill, ...]:
        return tuple(structs.replace(kill, node="") for kill in super().memory_kills(machine, attempt))


class Amnesia(OwnerHost):
    """An owner that restarts after a crash without its journal, and begins the job again."""

    def recover(self, life: int) -> None:
        if life == self.life:
            del self.journal[1:], self.history[1:]
            super().recover(life)
