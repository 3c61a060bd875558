"""Keeps entries that could not be written in memory, and schedules retries with growing pauses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Retries:
    """The schedule of retries after failed writes, in seconds on the caller's clock. `at`: when to retry; None: nothing
    has failed.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        """`first_s`: seconds between the first failure and the retry. `longest_s`: the longest pause; the pause doubles
        after each failure.
        """
        self.at: float | None = None
        self._first_s = self._pause_s = first_s
        self._longest_s = longest_s

    def due(self, now: float) -> bool:
        """Return whether to write now: nothing has failed, or the pause after a failure is over."""
        return self.at is None or now >= self.at

    def failed(self, now: float) -> bool:
        """Record a failed write. Return True for the first failure since the last success, because the caller reports
        only that one.
        """
        first = self.at is None
        self.at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return first

    def at_once(self) -> None:
        """End the pause after a failed write, so that a retry is due now."""
        if self.at is not None:
            self.at = float("-inf")

    def worked(self) -> None:
        """Record a successful write, so that the next failure counts as a first one."""
        self.at = None
        self._pause_s = self._first_s


class Backlog(Retries, Generic[T]):
    """A queue of entries that wait to be written, limited by their total size."""

    def __init__(self, most: int, first_s: float, longest_s: float) -> None:
        """Create an empty queue. `most`: maximum total size of the entries, in the caller's unit. `first_s`,
        `longest_s`: the shortest and the longest pause after a failed write, in seconds.
        """
        super().__init__(first_s, longest_s)
        self._most = most
        self._size = 0
        self._waiting: deque[tuple[T, int]] = deque()

    @property
    def size(self) -> int:
        """Total size of the waiting entries, in the caller's unit."""
        return self._size

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return (item for item, _ in list(self._waiting))

    def keep(self, item: T, size: int = 1, *, always: bool = False) -> bool:
        """Append an entry and return True.

        If it would exceed the limit `most`, drop it and return False, unless `always` is set.
        """
        if not always and self._size + size > self._most:
            return False
        self._waiting.append((item, size))
        self._size += size
        return True

    def first(self, count: int) -> list[T]:
        """Return the first `count` waiting entries without removing them."""
        return [self._waiting[index][0] for index in range(min(count, len(self._waiting)))]

    def written(self, count: int) -> None:
        """Remove the first `count` waiting entries, because they have been written."""
        for _ in range(count):
            self._size -= self._waiting.popleft()[1]
