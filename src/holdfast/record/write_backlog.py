"""Keeps in memory what could not be written, and retries at growing intervals; the user is warned once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Retries:
    """When to retry. Times are seconds on any one clock. `at`: the next retry; None while nothing has failed."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        """`first_s`: from the first failure to the first retry; each pause is twice the last, up to `longest_s`."""
        self.at: float | None = None
        self._first_s = self._pause_s = first_s
        self._longest_s = longest_s

    def due(self, now: float) -> bool:
        """Whether to try now: nothing has failed, or the pause has ended."""
        return self.at is None or now >= self.at

    def failed(self, now: float) -> bool:
        """The write failed. True for the first failure since the last success: the one to report to the user."""
        first = self.at is None
        self.at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return first

    def at_once(self) -> None:
        """End the pause: the next retry is due."""
        if self.at is not None:
            self.at = float("-inf")

    def worked(self) -> None:
        """The write succeeded: the next failure counts as the first again."""
        self.at = None
        self._pause_s = self._first_s


class Backlog(Retries, Generic[T]):
    """The entries that wait to be written, in order, up to `most` in all; sizes are in the caller's unit."""

    def __init__(self, most: int, first_s: float, longest_s: float) -> None:
        super().__init__(first_s, longest_s)
        self._most = most
        self._size = 0
        self._waiting: deque[tuple[T, int]] = deque()

    @property
    def size(self) -> int:
        """The size of all waiting entries, in the caller's unit."""
        return self._size

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return (item for item, _ in list(self._waiting))

    def keep(self, item: T, size: int = 1, *, always: bool = False) -> bool:
        """Append an entry. Where it would exceed `most`, it is dropped and the result is False, unless `always`
        is set."""
        if not always and self._size + size > self._most:
            return False
        self._waiting.append((item, size))
        self._size += size
        return True

    def first(self, count: int) -> list[T]:
        """The first `count` of them; they stay in the backlog."""
        return [self._waiting[index][0] for index in range(min(count, len(self._waiting)))]

    def written(self, count: int) -> None:
        """Remove the first `count` of them: they are written."""
        for _ in range(count):
            self._size -= self._waiting.popleft()[1]
