"""A node's end of the link to its owner: it repeats unacknowledged events and adds the rendezvous port.

A report repeats with every beat; an event (the end of a round of checks, evidence, a fault) happens once. Messages
of one connection arrive in order, and the owner acknowledges a report only after it has recorded everything before
it. So the acknowledgement of a report acknowledges each event that was sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from holdfast.model import events as ev
from holdfast.model.actions import RunChecks
from holdfast.model.check_results import CheckState
from holdfast.model.gang_protocol import Ack, Meeting, Report
from holdfast.wire.link_interface import Seen

if TYPE_CHECKING:
    from holdfast.model.events import Event
    from holdfast.wire.link_interface import Request, Word


class OwnerLinkNow(Protocol):
    """A connection to the owner that may be broken."""

    @property
    def connected(self) -> bool: ...

    def send(self, message: Word) -> bool: ...


class NodeLink:
    """A link (`holdfast.wire.link_interface.OwnerLink`) that survives broken connections."""

    def __init__(self, wire: OwnerLinkNow, node: str) -> None:
        self._wire = wire
        self._node = node
        self._outbox = Outbox()
        self._checks: RunChecks | None = None
        #: Reserves the rendezvous port of an attempt; None until the node is set up.
        self.meet: Callable[[int], Meeting] | None = None
        #: Send time of the last report that the owner acknowledged, in seconds on this node's clock.
        self.acknowledged_at: float | None = None

    def asked(self, request: Request) -> Request:
        """Handle a request of the owner; return the request as the node carries it out."""
        if isinstance(request, Ack):
            self._outbox.acknowledged(request.sent)
            self.acknowledged_at = max(request.sent, self.acknowledged_at or request.sent)
        elif isinstance(request, RunChecks):
            self._checks = request
            # A node checks only itself; the owner judges the links between nodes.
            return replace(request, nodes=(self._node,))
        return request

    def connected(self) -> None:
        """Resend the events that may not have arrived, on a first or a new connection."""
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
        """Add the rendezvous address of the attempt's workers, if this is the node of rank 0."""
        order = self._checks
        asked = order is not None and (order.attempt, order.round) == (answer.attempt, answer.round)
        if order is None or not asked or order.meet_on != self._node or self.meet is None:
            return answer
        return answer if answer.state is CheckState.FAIL else replace(answer, meeting=self.meet(answer.attempt))


#: Limit on the events kept while the owner is away. Later events are dropped.
MOST = 1000


class Outbox:
    """The unacknowledged events of one node. Times are seconds on the node's clock."""

    def __init__(self) -> None:
        #: Each event, with the send time of the first report after it on the present connection, or None.
        self._kept: deque[tuple[Event, float | None]] = deque()
        #: The number of events, from the oldest on, after which a report was sent.
        self._after: int = 0
        self.left_out = 0

    def put(self, event: Event) -> None:
        """Keep an event that is sent now, or when there is a connection."""
        if len(self._kept) >= MOST:
            self.left_out += 1
            return
        self._kept.append((event, None))

    def reported(self, sent: float) -> None:
        """Note that a report was sent on the present connection, after every event kept so far."""
        if self._after == len(self._kept):
            return
        self._kept = deque((event, sent if after is None else after) for event, after in self._kept)
        self._after = len(self._kept)

    def acknowledged(self, sent: float) -> None:
        """Drop the events that were sent before the acknowledged report, which left at time `sent`."""
        while self._kept and (after := self._kept[0][1]) is not None and after <= sent:
            self._kept.popleft()
            self._after -= 1

    def again(self) -> Iterator[Event]:
        """Return, after a reconnect, every event that may not have arrived, in order."""
        self._kept = deque((event, None) for event, _ in self._kept)
        self._after = 0
        return (event for event, _ in tuple(self._kept))
