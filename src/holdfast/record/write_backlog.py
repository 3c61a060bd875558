"""Keeps entries that could not be written in memory, and schedules retries at growing intervals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Retries:
    """The schedule of retries. Times are seconds on the caller's clock. `at`: the next retry; None: nothing has
    failed."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """`first_s`: seconds from the first failure to the retry. The pause doubles after each failure, up to
        `longest_s`."""
        self.at: float | None = None
        self._first_s = self._pause_s = first_s
        self._longest_s = longest_s

    def due(self, now: float) -> bool:
        """Whether to write now: nothing has failed, or the pause has ended."""
        return self.at is None or now >= self.at

    def failed(self, now: float) -> bool:
        """Record a failed write. Return True for the first failure since the last success, to report it only once."""
        first = self.at is None
        self.at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return first

    def at_once(self) -> None:
        """End the pause, so that the next retry is due."""
        if self.at is not None:
            self.at = float("-inf")

    def worked(self) -> None:
        """Record a successful write: the next failure counts as the first again."""
        self.at = None
        self._pause_s = self._first_s


class Backlog(Retries, Generic[T]):
    """A queue of entries that wait to be written, of total size `most` at most. Sizes are in the caller's unit."""

    def __init__(self, most: int, first_s: float, longest_s: float) -> None:
        """Create an empty queue. `most`: the total size of its entries. `first_s`, `longest_s`: seconds from a failed
        write to the next try, at first and at most."""
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
        """Append an entry. If it would exceed `most`, drop it and return False, unless `always` is set."""
        if not always and self._size + size > self._most:
            return False
        self._waiting.append((item, size))
        self._size += size
        return True

    def first(self, count: int) -> list[T]:
        """Return the first `count` entries, without removing them."""
        return [self._waiting[index][0] for index in range(min(count, len(self._waiting)))]

    def written(self, count: int) -> None:
        """Remove the first `count` entries, which were written."""
        for _ in range(count):
            self._size -= self._waiting.popleft()[1]
