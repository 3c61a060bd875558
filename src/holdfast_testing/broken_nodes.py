"""Gangs that deal wrongly with nodes that come and go, for `mutants`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import structs

from holdfast.decide.agent import Agent
from holdfast.decide.draining import AttemptJudge
from holdfast.decide.gang import Gang
from holdfast.decide.phases import Phase
from holdfast.model import events as ev
from holdfast.model.actions import Action
from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.gang_protocol import Command, Meeting
from holdfast.model.job_spec import NodeInfo, NodePlan
from holdfast.model.phrases import Phrase
from holdfast.model.process_messages import Instruction


class AnotherSeat(Gang):
    """Puts the nodes in order anew for each attempt: a spare moves the ranks of those that stay."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        line, self.line = self.line, ()
        nodes = super().line_up(avoid, among)
        self.line = line
        return nodes


class RankZeroMoves(Gang):
    """The last becomes the first."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        return nodes[-1:] + nodes[:-1] if self.records else nodes


class SparesStayIdle(Gang):
    """Closes up where a spare could take the place."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        kept = [node for node in nodes if node.name in self.line]
        return kept if self.line and len(kept) >= self.spec.nodes.least else nodes


class OtherPlan(Gang):
    """Takes another plan of nodes for the one that was submitted."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobSubmitted):
            plan = self.planned(event.spec.nodes)
            event = structs.replace(event, spec=structs.replace(event.spec, nodes=plan))
        return super().handle(event, now)

    def planned(self, plan: NodePlan) -> NodePlan:
        return plan


class BelowLeast(OtherPlan):
    """Shrinks as long as a node is left."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, least=1)


class NoLastCall(OtherPlan):
    """Begins as soon as it can."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, last_call_s=0.0)


class WaitsForNoNewcomer(OtherPlan):
    """Gives up as soon as too few are left."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, replace_s=0.0)


class LossIsCharged(AttemptJudge):
    """The user pays for a node."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class GrowthIsCharged(AttemptJudge):
    """The user pays for a newcomer."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.RESIZED:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class NoSecondChance(AttemptJudge):
    """Avoids a node once it was lost."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            decision = structs.replace(record.decision, avoid=record.report.devices)
            record = structs.replace(record, decision=decision)
        return record


class MeetingKept(Gang):
    """The workers of each attempt meet where those of the first did."""

    first: Meeting | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = self.first or event.meeting
            event = structs.replace(event, meeting=self.first)
        return super().handle(event, now)


class PortsKept(Gang):
    """The workers of each attempt get the ports of the first one."""

    first: dict[str, tuple[int, ...]] | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = {**event.ports, **(self.first or {})}
            event = structs.replace(event, ports={node: self.first[node] for node in event.ports})
        return super().handle(event, now)


class NoNewTerm(Gang):
    """An owner that is back speaks as the one before."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        term = self.term
        actions = super().handle(event, now)
        if isinstance(event, ev.OwnerRecovered):
            self.term = term
            actions = [
                structs.replace(a, command=structs.replace(a.command, term=term)) if hasattr(a, "command") else a
                for a in actions
            ]
        return actions


class ObeysOldOwners(Agent):
    """Takes the commands of an owner of before for those of the present one."""

    def obey(self, command: Command, now: float) -> list[Instruction]:
        return super().obey(structs.replace(command, term=max(command.term, self.term)), now)
