"""Gangs that take over a job from its previous run wrongly, with one fault each.

`mutants` has the list of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.draining import AttemptJudge
from holdfast.decide.gang import Gang
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.faults import DeviceStanding


class BeginsAgain(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        out = super().handle(event, now)
        if isinstance(event, ev.JobResumed):
            self.highest = self.began_after = 0
        return out


class ForgetsHistory(Gang):
    since: list[AttemptRecord] | None = None

    def resume(self, event: ev.JobResumed) -> None:
        super().resume(event)
        self.records = self.since = []

    def record(self, record: AttemptRecord) -> None:
        super().record(record)
        if self.since is not None:
            self.since.append(record)


class ForgetsAvoided(Gang):
    def resume(self, event: ev.JobResumed) -> None:
        self.avoid = frozenset()
        super().resume(event)

    def keep_out(self, kept: Sequence[DeviceStanding], names: Iterable[str]) -> None:
        super().keep_out(kept, names := tuple(names))
        self.avoid = {*self.avoid, *names}

    def leave_out(self, names: Sequence[str], reason: str) -> None:
        super().leave_out(names, reason)
        self.avoid = {*self.avoid, *names}


class RequeueIsCharged(AttemptJudge):
    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.decision.kind is DecisionKind.REQUEUE:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class AsksAgain(Gang):
    """A gang that keeps the stop of the previous run, and so requests yet another run for the same cause."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        stop = self.stop
        out = super().handle(event, now)
        if isinstance(event, ev.JobResumed):
            self.stop = stop
        return out


class HearsTheDead(AgentRegistry):
    """A registry that lets agents of the previous run speak for their nodes."""

    def is_dead(self, node: str, boot: int) -> bool:
        return False


class UnlimitedRuns(AttemptJudge):
    """A judge that requeues the job even if the budget for platform failures is spent."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        left = asked["left"]

        def unlimited(free: bool) -> Any:
            found = left(free)
            return structs.replace(found, refusal=None) if found is not None and found.spent else found

        return super().conclude(*given, **(asked | {"left": unlimited}))
