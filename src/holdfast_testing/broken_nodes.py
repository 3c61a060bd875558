"""Gangs that handle joining and leaving nodes wrongly, for `mutants`."""

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
    """Sorts the nodes anew for each attempt, so that a spare changes the ranks of the nodes that stay."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        line, self.line = self.line, ()
        nodes = super().line_up(avoid, among)
        self.line = line
        return nodes


class RankZeroMoves(Gang):
    """Moves the last node to the front, so that rank 0 moves."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        return nodes[-1:] + nodes[:-1] if self.records else nodes


class SparesStayIdle(Gang):
    """Goes on with fewer nodes although a spare is available."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        kept = [node for node in nodes if node.name in self.line]
        return kept if self.line and len(kept) >= self.spec.nodes.least else nodes


class OtherPlan(Gang):
    """Replaces the submitted plan of nodes by another one."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobSubmitted):
            plan = self.planned(event.spec.nodes)
            event = structs.replace(event, spec=structs.replace(event.spec, nodes=plan))
        return super().handle(event, now)

    def planned(self, plan: NodePlan) -> NodePlan:
        return plan


class BelowLeast(OtherPlan):
    """Goes on as long as one node is left."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, least=1)


class NoLastCall(OtherPlan):
    """Begins as soon as the fewest nodes are there, without waiting for more."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, last_call_s=0.0)


class WaitsForNoNewcomer(OtherPlan):
    """Gives up at once if too few nodes are left."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, replace_s=0.0)


class LossIsCharged(AttemptJudge):
    """Charges the user for a lost node."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class GrowthIsCharged(AttemptJudge):
    """Charges the user for a restart that adds a node."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.RESIZED:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class NoSecondChance(AttemptJudge):
    """Avoids a node after its first loss."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            decision = structs.replace(record.decision, avoid=record.report.devices)
            record = structs.replace(record, decision=decision)
        return record


class MeetingKept(Gang):
    """Gives the workers of each attempt the meeting point of the first attempt."""

    first: Meeting | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = self.first or event.meeting
            event = structs.replace(event, meeting=self.first)
        return super().handle(event, now)


class PortsKept(Gang):
    """Gives the workers of each attempt the ports of the first attempt."""

    first: dict[str, tuple[int, ...]] | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = {**event.ports, **(self.first or {})}
            event = structs.replace(event, ports={node: self.first[node] for node in event.ports})
        return super().handle(event, now)


class NoNewTerm(Gang):
    """Keeps the term of the owner before it after a restart."""

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
    """Obeys commands of an earlier owner as if the present one had sent them."""

    def obey(self, command: Command, now: float) -> list[Instruction]:
        return super().obey(structs.replace(command, term=max(command.term, self.term)), now)
