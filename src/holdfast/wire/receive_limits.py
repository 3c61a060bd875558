"""Limits the memory that the owner uses for incomplete messages of all its connections.

When a gang fails, all nodes send their evidence at the same time. Beyond the limit the owner pauses the connections
whose messages began last; their bytes wait in the kernel's buffers. The connection whose message began first is never
paused, so this message completes.
"""

from __future__ import annotations

from typing import Protocol

MOST_BYTES = 128 << 20


class Pausable(Protocol):
    """A connection from which reading can be paused."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ReceiveLimits:
    """Counts the stored bytes of each connection, and pauses connections beyond the limit."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        #: Connection → its stored bytes, in the order in which the incomplete messages began.
        self._held: dict[Pausable, int] = {}
        self._paused: dict[Pausable, None] = {}
        self.total = 0

    def note(self, connection: Pausable, held: int) -> None:
        """Record the number of stored bytes of a connection's incomplete message.

        held: 0 if the message is complete, or if the connection has ended.
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
            # Resume only one connection, because the next bytes of all would exceed the limit.
            self._resume(next(iter(self._paused), None))
        elif held > before and connection is not first:
            self._paused[connection] = None
            connection.pause()

    def _resume(self, connection: Pausable | None) -> None:
        if connection is not None:
            del self._paused[connection]
            connection.resume()
