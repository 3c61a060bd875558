"""The owner's end of the link to its nodes: who is connected under which name, and what each has to be told again.

A connection may break at any moment, and a request that was on its way is then lost. Commands are repeated by the gang
itself. What else a node has to answer (a round of checks, evidence) is kept here until its answer has come, and sent
again when the node is back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.decide.answer_collection import parts
from holdfast.decide.gang_view import GangView, MemberView
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.wire.link_interface import Request
from holdfast.wire.node_messages import Finished, Moved, Question, Requeued


class AgentConnection(Protocol):
    """A connection to an agent that was let in."""

    def send(self, message: Request | Question | Finished | Requeued) -> bool: ...


class _Member(msgspec.Struct):
    peer: AgentConnection | None = None
    #: Not answered so far.
    checks: RunChecks | None = None
    #: Not answered so far.
    evidence: CollectEvidence | None = None
    #: Not answered so far.
    hooks: RunHooks | None = None


class NodeMembers:
    """The nodes of a job by name; a link (`holdfast.wire.link_interface.NodesLink`). `told`: gets what all of them are
    told."""

    def __init__(self, told: Callable[[Request], None] = lambda request: None) -> None:
        self._told = told
        self._members: dict[str, _Member] = {}
        self._view: GangView | None = None
        self._finished: Finished | Requeued | None = None
        self._unfinished: set[str] = set()

    # ------------------------------------------------------------------------------------------ who is there

    def joined(self, node: str, peer: AgentConnection) -> None:
        """The node's agent is connected, for the first time or again."""
        member = self._members.setdefault(node, _Member())
        member.peer = peer
        if self._view is not None:
            peer.send(Moved(view=_of(self._view, _by_node(self._view).get(node, ()))))
        for request in (member.checks, member.evidence, member.hooks, self._finished):
            if request is not None:
                peer.send(request)

    def left(self, node: str, peer: AgentConnection) -> None:
        """That connection is gone; the node may have another one by now."""
        member = self._members.get(node)
        if member is not None and member.peer is peer:
            member.peer = None

    def is_connected(self, node: str) -> bool:
        member = self._members.get(node)
        return member is not None and member.peer is not None

    def answered(self, node: str, event: ev.Event) -> None:
        """The node has said this: what it answers is not asked again."""
        member = self._members.get(node)
        if member is None:
            return
        match event:
            case ev.ChecksFinished() if member.checks is not None:
                if (event.attempt, event.round) == (member.checks.attempt, member.checks.round):
                    member.checks = None
            case ev.EvidenceCollected() if member.evidence is not None:
                if event.attempt == member.evidence.attempt:
                    member.evidence = None
            case ev.HooksFinished() if member.hooks is not None:
                if event.attempt == member.hooks.attempt:
                    member.hooks = None
            case _:
                pass

    # ------------------------------------------------------------------------------------------ the link

    def send(self, node: str, request: Request) -> None:
        member = self._members.get(node)
        if member is not None and member.peer is not None:
            member.peer.send(request)

    @property
    def names(self) -> list[str]:
        """The nodes that were let in, or are asked for something."""
        return sorted(self._members)

    def ask(self, node: str, question: Question) -> bool:
        """Ask a node once; false where it is not connected."""
        member = self._members.get(node)
        return member is not None and member.peer is not None and member.peer.send(question)

    def send_all(self, request: Request) -> None:
        self._told(request)
        match request:
            case Moved():
                self._moved(request.view)
            case RunChecks():
                for node in request.nodes:
                    member = self._members.setdefault(node, _Member())
                    # Each is asked about itself: what it is sent must not grow with the gang.
                    own = {node: request.ports[node]} if node in request.ports else {}
                    member.checks = replace(request, nodes=(node,), ports=own)
                    self.send(node, member.checks)
            case CollectEvidence():
                self._collect(request)
            case RunHooks():
                for node in request.nodes:
                    member = self._members.setdefault(node, _Member())
                    # Each runs its own: what it is sent must not grow with the gang.
                    member.hooks = replace(request, nodes=(node,))
                    self.send(node, member.hooks)
            case _:
                for node in self._members:
                    self.send(node, request)

    def _moved(self, view: GangView) -> None:
        self._view = view
        by_node = _by_node(view)
        for node in self._members:
            self.send(node, Moved(view=_of(view, by_node.get(node, ()))))

    def _collect(self, request: CollectEvidence) -> None:
        """Each node is asked about its own workers: what it is sent must not grow with the gang."""
        for node, own in parts(request):
            member = self._members.setdefault(node, _Member())
            member.evidence = own
            self.send(node, own)

    # ------------------------------------------------------------------------------------------ the end

    def finish(self, finished: Finished | Requeued) -> None:
        """The job is over: tell each node that is connected, and each that connects from now on."""
        self._finished = finished
        self._unfinished = {node for node, member in self._members.items() if member.peer is not None}
        for node in self._members:
            member = self._members[node]
            if member.peer is not None:
                member.peer.send(finished)

    def has_finished(self, node: str) -> None:
        """The node has the job's report, and leaves."""
        self._unfinished.discard(node)

    @property
    def unfinished(self) -> frozenset[str]:
        """Nodes that were connected when the job ended, and have not said that they have its report."""
        return frozenset(self._unfinished)


def _by_node(view: GangView) -> dict[str, list[MemberView]]:
    found: dict[str, list[MemberView]] = defaultdict(list)
    for member in view.members:
        found[member.seat.node].append(member)
    return found


def _of(view: GangView, members: Iterable[MemberView]) -> GangView:
    """What one node sees of the gang: its own members."""
    return replace(view, members=tuple(members))
