"""A node's end of the connection to its owner. It sends unacknowledged events again, and adds the rendezvous port.

The agent repeats its report with every heartbeat, but sends an event (the result of the checks, evidence, a fault) only
once. Messages of one connection arrive in order, and the owner acknowledges a report after it has recorded everything
before it. So the acknowledgement of a report also acknowledges the events before it.
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
    """A connection to the owner. It may be broken at times."""

    @property
    def connected(self) -> bool: ...

    def send(self, message: Word) -> bool: ...


class NodeLink:
    """A connection to the owner (`holdfast.wire.link_interface.OwnerLink`) that is restored after each break."""

    def __init__(self, wire: OwnerLinkNow, node: str) -> None:
        self._wire = wire
        self._node = node
        self._outbox = Outbox()
        self._checks: RunChecks | None = None
        #: Reserves the rendezvous port of an attempt. None until the node is set up.
        self.meet: Callable[[int], Meeting] | None = None
        #: The send time of the last report that the owner acknowledged, in seconds on this node's clock.
        self.acknowledged_at: float | None = None

    def asked(self, request: Request) -> Request:
        """Convert a request of the owner to the request that this node performs."""
        if isinstance(request, Ack):
            self._outbox.acknowledged(request.sent)
            self.acknowledged_at = max(request.sent, self.acknowledged_at or request.sent)
        elif isinstance(request, RunChecks):
            self._checks = request
            # Each node runs only its own checks. The owner judges the links between nodes.
            return replace(request, nodes=(self._node,))
        return request

    def connected(self) -> None:
        """Send the events again that may not have arrived, because the owner is now connected."""
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
        """If this node runs rank 0, add the rendezvous address of the attempt's workers to the result of the checks."""
        order = self._checks
        asked = order is not None and (order.attempt, order.round) == (answer.attempt, answer.round)
        if order is None or not asked or order.meet_on != self._node or self.meet is None:
            return answer
        return answer if answer.state is CheckState.FAIL else replace(answer, meeting=self.meet(answer.attempt))


#: At most this many events are kept while the owner is unreachable. Later events are dropped.
MOST = 1000


class Outbox:
    """Keeps one node's events until the owner acknowledges them. Times are seconds on the node's clock."""

    def __init__(self) -> None:
        #: The kept events, oldest first, each with the send time of the first report after it on this connection; None:
        #: no report came after it.
        self._kept: deque[tuple[Event, float | None]] = deque()
        #: The number of the oldest kept events that were sent before some report.
        self._after: int = 0
        self.left_out = 0

    def put(self, event: Event) -> None:
        """Keep an event. The caller sends it now, or once the owner is connected."""
        if len(self._kept) >= MOST:
            self.left_out += 1
            return
        self._kept.append((event, None))

    def reported(self, sent: float) -> None:
        """Record that a report was sent on the present connection, after all events kept so far."""
        if self._after == len(self._kept):
            return
        self._kept = deque((event, sent if after is None else after) for event, after in self._kept)
        self._after = len(self._kept)

    def acknowledged(self, sent: float) -> None:
        """Drop the events before a report that the owner has acknowledged. `sent`: when the report was sent."""
        while self._kept and (after := self._kept[0][1]) is not None and after <= sent:
            self._kept.popleft()
            self._after -= 1

    def again(self) -> Iterator[Event]:
        """Return every event that may not have arrived, in order, after a reconnection."""
        self._kept = deque((event, None) for event, _ in self._kept)
        self._after = 0
        return (event for event, _ in tuple(self._kept))
