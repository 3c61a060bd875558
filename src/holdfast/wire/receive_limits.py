"""Limit the memory that the owner uses for incomplete messages, over all of its connections.

When a whole gang fails, all nodes send their evidence at once. Beyond the limit the owner pauses the connections whose
messages began later, and their bytes stay in the kernels. It always reads the connection whose message began first, so
that this message completes.
"""

from __future__ import annotations

from typing import Protocol

MOST_BYTES = 128 << 20


class Pausable(Protocol):
    """A connection whose reader can be paused."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ReceiveLimits:
    """Counts the stored bytes of each connection, and pauses connections beyond the limit."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        #: Maps a connection to its stored bytes, in the order in which the messages began.
        self._held: dict[Pausable, int] = {}
        self._paused: dict[Pausable, None] = {}
        self.total = 0

    def note(self, connection: Pausable, held: int) -> None:
        """Record that `held` bytes of an incomplete message are stored for this connection.

        held: 0 when the message is complete, or when the connection has ended.
        """
        before = self._held.get(connection, 0)
        self.total += held - before
        if held:
            self._held[connection] = held
        else:
            self._held.pop(connection, None)
            self._paused.pop(connection, None)
        first = next(iter(self._held), None)
        if first in self._paused:
            self._resume(first)
        if self.total <= self._most:
            # Resume one connection at a time, because the next bytes of all together would exceed the limit.
            self._resume(next(iter(self._paused), None))
        elif held > before and connection is not first:
            self._paused[connection] = None
            connection.pause()

    def _resume(self, connection: Pausable | None) -> None:
        if connection is not None:
            del self._paused[connection]
            connection.resume()
