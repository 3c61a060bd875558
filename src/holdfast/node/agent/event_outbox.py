"""What a node has told its owner and the owner may not have: events are told again until they are known to be there.

A report is repeated with every beat; an event (the end of a round of checks, evidence, a fault) happens once. Messages
of one connection arrive in their order, and the owner acknowledges a report only after it has written down all that
came before it. So the acknowledgement of a report is the acknowledgement of each event that was sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.model.events import Event

#: Events that are kept; a node that has more to tell than this while its owner is away has told the first ones.
MOST = 1000


class Outbox:
    """The events of one node that are not acknowledged. Times are seconds on the node's clock."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Event, float | None]] = deque()
        """Each with the moment of the first report that was sent after it on the present connection."""
        self._after: int = 0
        """So many of them, from the first on, have such a report."""
        self.left_out = 0

    def put(self, event: Event) -> None:
        """It is sent now, or as soon as there is a connection."""
        if len(self._kept) >= MOST:
            self.left_out += 1
            return
        self._kept.append((event, None))

    def reported(self, sent: float) -> None:
        """A report is sent on the present connection, after all that was put so far."""
        if self._after == len(self._kept):
            return
        self._kept = deque((event, sent if after is None else after) for event, after in self._kept)
        self._after = len(self._kept)

    def acknowledged(self, sent: float) -> None:
        """The owner has acknowledged the report of that moment."""
        while self._kept and (after := self._kept[0][1]) is not None and after <= sent:
            self._kept.popleft()
            self._after -= 1

    def again(self) -> Iterator[Event]:
        """A new connection: all that may not have arrived, in order."""
        self._kept = deque((event, None) for event, _ in self._kept)
        self._after = 0
        return (event for event, _ in tuple(self._kept))
