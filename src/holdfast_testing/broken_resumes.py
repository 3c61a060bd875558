"""Gangs that take a job over from the run before with one thing wrong each, for `mutants`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from holdfast.decide.agent_registry import AgentRegistry
from holdfast.decide.draining import AttemptJudge
from holdfast.decide.gang import Gang
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.decisions import AttemptRecord, DecisionKind


class BeginsAgain(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        out = super().handle(event, now)
        if isinstance(event, ev.JobResumed):
            self.highest = self.began_after = 0
        return out


class ForgetsHistory(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobResumed):
            self.records.clear()
        return super().handle(event, now)


class ForgetsAvoided(Gang):
    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobResumed):
            self.avoid.clear()
        return super().handle(event, now)


class RequeueIsCharged(AttemptJudge):
    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.decision.kind is DecisionKind.REQUEUE:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class AsksAgain(Gang):
    """What had asked for another run asks for one more in that run."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        stop = self.stop
        out = super().handle(event, now)
        if isinstance(event, ev.JobResumed):
            self.stop = stop
        return out


class HearsTheDead(AgentRegistry):
    """Agents of the run before may still speak for their nodes."""

    def is_dead(self, node: str, boot: int) -> bool:
        return False


class UnlimitedRuns(AttemptJudge):
    """The budget for failures that are not the user's bounds no requeue."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        left = asked["left"]

        def unlimited() -> Any:
            found = left()
            return structs.replace(found, refusal=None) if found is not None and found.spent else found

        return super().conclude(*given, **(asked | {"left": unlimited}))
