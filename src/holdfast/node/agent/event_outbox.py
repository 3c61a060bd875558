"""Events that a node repeats to its owner until the owner has acknowledged them.

A report repeats with every beat; an event (the end of a round of checks, evidence, a fault) happens once. Messages
of one connection arrive in order, and the owner acknowledges a report only after it has recorded everything before
it. So the acknowledgement of a report acknowledges each event that was sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.model.events import Event

#: The most events kept. Later events are dropped while the owner is away.
MOST = 1000


class Outbox:
    """The unacknowledged events of one node. Times are seconds on the node's clock."""

    def __init__(self) -> None:
        #: Each event, with the time of the first report sent after it on the present connection.
        self._kept: deque[tuple[Event, float | None]] = deque()
        #: The number of events, from the oldest on, that have such a report.
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
