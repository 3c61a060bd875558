"""How much the owner keeps of messages that are not whole yet, over all its connections.

When a whole gang fails, each node sends its evidence at once. Beyond the limit those that began later wait, their bytes
in their own kernels; the one that began first is always read, so that there is always a next one.
"""

from __future__ import annotations

from typing import Protocol

MOST_BYTES = 128 << 20


class Pausable(Protocol):
    """A connection."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ReceiveLimits:
    """The bytes that are held for each connection, and the connections that are not read for now."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: dict[Pausable, int] = {}
        """In the order in which their messages began."""
        self._paused: dict[Pausable, None] = {}
        self.total = 0

    def note(self, connection: Pausable, held: int) -> None:
        """So many bytes are held for this connection now; 0 too when it has ended."""
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
            # One at a time: all at once would go beyond the limit with their next bytes.
            self._resume(next(iter(self._paused), None))
        elif held > before and connection is not first:
            self._paused[connection] = None
            connection.pause()

    def _resume(self, connection: Pausable | None) -> None:
        if connection is not None:
            del self._paused[connection]
            connection.resume()
