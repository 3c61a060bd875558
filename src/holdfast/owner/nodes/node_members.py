"""The owner's end of the link to its nodes: the connected nodes, and the requests that each has not answered.

A broken connection loses the requests on it. The gang repeats its commands. This module keeps the other requests (for a
round of checks, evidence, hooks) until the node has answered, and sends them again when the node reconnects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.decide.gang_view import GangView, MemberView
from holdfast.decide.queries.answer_collection import parts
from holdfast.model import events as ev
from holdfast.model.actions import CollectEvidence, RunChecks, RunHooks
from holdfast.wire.link_interface import Request
from holdfast.wire.node_messages import Finished, Moved, Question, Requeued


class AgentConnection(Protocol):
    """The connection of an admitted agent, as an interface."""

    def send(self, message: Request | Question | Finished | Requeued) -> bool: ...


class _Member(msgspec.Struct):
    peer: AgentConnection | None = None
    #: The request to run checks, until the node answers it; else None.
    checks: RunChecks | None = None
    #: The request for evidence, until the node answers it; else None.
    evidence: CollectEvidence | None = None
    #: The request to run hooks, until the node answers it; else None.
    hooks: RunHooks | None = None


class NodeMembers:
    """The connections and open requests of a job's nodes, by name.

    The class is a link to the nodes (`holdfast.wire.link_interface.NodesLink`).

    `told(request)`: is called with each request that goes to all nodes.
    """

    def __init__(self, told: Callable[[Request], None] = lambda request: None) -> None:
        self._told = told
        self._members: dict[str, _Member] = {}
        self._view: GangView | None = None
        self._finished: Finished | Requeued | None = None
        self._unfinished: set[str] = set()

    # ------------------------------------------------------------------------------- the nodes' connections

    def joined(self, node: str, peer: AgentConnection) -> None:
        """Store a node's new connection, and send the requests again that the node has not answered."""
        member = self._members.setdefault(node, _Member())
        member.peer = peer
        if self._view is not None:
            peer.send(Moved(view=_of(self._view, _by_node(self._view).get(node, ()))))
        for request in (member.checks, member.evidence, member.hooks, self._finished):
            if request is not None:
                peer.send(request)

    def left(self, node: str, peer: AgentConnection) -> None:
        """Forget a connection that has ended. A newer connection of the node stays."""
        member = self._members.get(node)
        if member is not None and member.peer is peer:
            member.peer = None

    def is_connected(self, node: str) -> bool:
        member = self._members.get(node)
        return member is not None and member.peer is not None

    def answered(self, node: str, event: ev.Event) -> None:
        """Handle a node's event. If it answers a stored request, drop the request."""
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

    # -------------------------------------------------------------------- sending requests over the link

    def send(self, node: str, request: Request) -> None:
        member = self._members.get(node)
        if member is not None and member.peer is not None:
            member.peer.send(request)

    @property
    def names(self) -> list[str]:
        """Return the names of all nodes that were admitted or have requests."""
        return sorted(self._members)

    def ask(self, node: str, question: Question) -> bool:
        """Send a request to a node once. Return False if the node is not connected."""
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
                    # Send each node only its own ports, so that the size of the message does not grow with the gang.
                    own = {node: request.ports[node]} if node in request.ports else {}
                    member.checks = replace(request, nodes=(node,), ports=own)
                    self.send(node, member.checks)
            case CollectEvidence():
                self._collect(request)
            case RunHooks():
                for node in request.nodes:
                    member = self._members.setdefault(node, _Member())
                    # Send each node only its own name, because each node runs only its own hooks. The size of the
                    # message then does not grow with the gang.
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
        """Request evidence from each node about its own workers only, so that the size of the message does not grow
        with the gang.
        """
        for node, own in parts(request):
            member = self._members.setdefault(node, _Member())
            member.evidence = own
            self.send(node, own)

    # -------------------------------------------------------------------------------------- the end of the job

    def finish(self, finished: Finished | Requeued) -> None:
        """Send the job's end to each connected node, and to each node that connects later."""
        self._finished = finished
        self._unfinished = {node for node, member in self._members.items() if member.peer is not None}
        for node in self._members:
            member = self._members[node]
            if member.peer is not None:
                member.peer.send(finished)

    def has_finished(self, node: str) -> None:
        """Record that the node has received the job's report, or is lost."""
        self._unfinished.discard(node)

    @property
    def unfinished(self) -> frozenset[str]:
        """Return the nodes that were connected at the job's end and have not confirmed the job's report."""
        return frozenset(self._unfinished)


def _by_node(view: GangView) -> dict[str, list[MemberView]]:
    found: dict[str, list[MemberView]] = defaultdict(list)
    for member in view.members:
        found[member.placement.node].append(member)
    return found


def _of(view: GangView, members: Iterable[MemberView]) -> GangView:
    """Return the gang's state for one node, with only that node's workers (`members`)."""
    return replace(view, members=tuple(members))
