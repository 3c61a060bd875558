"""Gangs that handle joining and leaving nodes wrongly, with one fault each. `mutants` has the list of all of them."""

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
    """A gang that sorts its nodes anew for each attempt, so that a spare changes the ranks of the nodes that stay."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        line, self.line = self.line, ()
        nodes = super().line_up(avoid, among)
        self.line = line
        return nodes


class RankZeroMoves(Gang):
    """A gang that moves its last node to the front on a restart, so that rank 0 moves to another node."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        return nodes[-1:] + nodes[:-1] if self.records else nodes


class SparesStayIdle(Gang):
    """A gang that continues with fewer nodes although a spare node is available."""

    def line_up(self, avoid: Collection[str], among: Collection[str] | None = None) -> list[NodeInfo]:
        nodes = super().line_up(avoid, among)
        kept = [node for node in nodes if node.name in self.line]
        return kept if self.line and len(kept) >= self.spec.nodes.least else nodes


class OtherPlan(Gang):
    """A gang that replaces the submitted node counts by others, which subclasses choose."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.JobSubmitted):
            plan = self.planned(event.spec.nodes)
            event = structs.replace(event, spec=structs.replace(event.spec, nodes=plan))
        return super().handle(event, now)

    def planned(self, plan: NodePlan) -> NodePlan:
        return plan


class BelowLeast(OtherPlan):
    """A gang that continues below the job's minimum number of nodes, as long as one node is left."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, least=1)


class NoLastCall(OtherPlan):
    """A gang that starts as soon as the minimum number of nodes has joined, without waiting for more nodes."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, last_call_s=0.0)


class WaitsForNoNewcomer(OtherPlan):
    """A gang that ends the job at once if too few nodes are left, without waiting for a new node."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, replace_s=0.0)


class GoesOnAtOnce(OtherPlan):
    """A gang that continues with fewer nodes at once, without waiting for a lost node's replacement."""

    def planned(self, plan: NodePlan) -> NodePlan:
        return structs.replace(plan, refill_s=0.0)


class WaitsForRoom(Gang):
    """A gang that waits for another node although the platform has no room for one."""

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        return super().handle(ev.Tick() if isinstance(event, ev.RoomChanged) else event, now)


class LossIsCharged(AttemptJudge):
    """A judge that charges the user's restart budget for a lost node."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class GrowthIsCharged(AttemptJudge):
    """A judge that charges the user's restart budget for a restart that adds a node."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.RESIZED:
            record = structs.replace(record, decision=structs.replace(record.decision, charged=True))
        return record


class NoSecondChance(AttemptJudge):
    """A judge that avoids a node after its first loss, without a second chance."""

    def conclude(self, *given: Any, **asked: Any) -> AttemptRecord:
        record = super().conclude(*given, **asked)
        if record.report.phrase == Phrase.NODE_FAILED and record.decision.kind is DecisionKind.RESTART:
            decision = structs.replace(record.decision, avoid=record.report.devices)
            record = structs.replace(record, decision=decision)
        return record


class MeetingKept(Gang):
    """A gang that gives the workers of each attempt the rendezvous address of the first attempt."""

    first: Meeting | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = self.first or event.meeting
            event = structs.replace(event, meeting=self.first)
        return super().handle(event, now)


class PortsKept(Gang):
    """A gang that gives the workers of each attempt the ports that were reserved for the first attempt."""

    first: dict[str, tuple[int, ...]] | None = None

    def handle(self, event: ev.Event, now: float) -> list[Action]:
        if isinstance(event, ev.ChecksFinished) and self.phase is Phase.CHECKING:
            self.first = {**event.ports, **(self.first or {})}
            event = structs.replace(event, ports={node: self.first[node] for node in event.ports})
        return super().handle(event, now)


class NoNewTerm(Gang):
    """An owner that, after its restart, keeps the term number of the owner before it."""

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
    """An agent that obeys commands of an earlier owner as if the present owner had sent them."""

    def obey(self, command: Command, now: float) -> list[Instruction]:
        return super().obey(structs.replace(command, term=max(command.term, self.term)), now)
