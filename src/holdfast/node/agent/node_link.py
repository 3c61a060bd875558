"""A node's end of the link to its owner: what must not be lost is told again, and the port of a meeting is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.gang_protocol import Ack, Meeting, Report
from holdfast.node.agent.event_outbox import Outbox
from holdfast.wire.link_interface import Seen

if TYPE_CHECKING:
    from holdfast.wire.link_interface import Request, Word


class OwnerLinkNow(Protocol):
    """A connection to the owner that may be gone."""

    @property
    def connected(self) -> bool: ...

    def send(self, message: Word) -> bool: ...


class NodeLink:
    """A link (`holdfast.wire.link_interface.OwnerLink`) over connections that come and go."""

    def __init__(self, wire: OwnerLinkNow, node: str) -> None:
        self._wire = wire
        self._node = node
        self._outbox = Outbox()
        self._checks: RunChecks | None = None
        self.meet: Callable[[int], Meeting] | None = None
        """Holds a port for the workers of an attempt; None before the node can."""
        self.acknowledged_at: float | None = None
        """When the last report that the owner has acknowledged was sent, in seconds on this node's clock."""

    def asked(self, request: Request) -> Request:
        """The owner asks for something; what the node is to do."""
        if isinstance(request, Ack):
            self._outbox.acknowledged(request.sent)
            self.acknowledged_at = max(request.sent, self.acknowledged_at or request.sent)
        elif isinstance(request, RunChecks):
            self._checks = request
            # A node looks at itself; what lies between nodes is not its own to judge.
            return replace(request, nodes=(self._node,))
        return request

    def connected(self) -> None:
        """There is a connection, for the first time or again: say what may not have arrived."""
        for event in self._outbox.again():
            self._wire.send(event)

    def report(self, word: Word) -> None:
        if isinstance(word, Report):
            if self._wire.connected:
                self._wire.send(word)
                self._outbox.reported(word.sent)
            return
        if isinstance(word, Seen):
            if self._wire.connected:
                self._wire.send(word)
            return
        if isinstance(word, ev.ChecksFinished):
            word = self._with_meeting(word)
        self._outbox.put(word)
        if self._wire.connected:
            self._wire.send(word)

    def _with_meeting(self, answer: ev.ChecksFinished) -> ev.ChecksFinished:
        """The node of rank 0 says where the workers of the attempt will meet."""
        order = self._checks
        asked = order is not None and (order.attempt, order.round) == (answer.attempt, answer.round)
        if order is None or not asked or order.meet_on != self._node or self.meet is None:
            return answer
        return answer if answer.state is CheckState.FAIL else replace(answer, meeting=self.meet(answer.attempt))
