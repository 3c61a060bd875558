"""Faults during a run: the sources, the machine's book, and what overlapped which attempt, in one place.

Where the book cannot be used (a full disk, a damaged file) the run goes on: faults are then judged in memory only, and
`news` says so once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.decide.faults.overlap import Overlaps
from holdfast.decide.faults.policy import Policy
from holdfast.decide.isolation import Breaker, Change, FaultEngine, Placing, placeable
from holdfast.errors import HoldfastError
from holdfast.loop.faults import FaultBook, refusal
from holdfast.model.faults import ActiveFault, FaultEvent
from holdfast.observe.devices.inbox import Inbox
from holdfast.observe.devices.sources import Source


class FaultDesk:
    """`fds()` to wait on, `ready(fd, at)` when one is readable, `next_wake()` and `tick(at)` for deadlines.

    Times are seconds since the epoch. Each call returns the changes of level it caused; the events that were taken wait
    in `events` until somebody takes them away, sentences for people in `news`.
    """

    def __init__(self, book: FaultBook | None, policy: Policy, sources: Iterable[Source | Inbox]) -> None:
        self.book = book
        self.events: list[FaultEvent] = []
        self.news: list[str] = []
        self.overlaps = Overlaps()
        self._own = book.engine if book is not None else FaultEngine(policy, breaker=Breaker())
        self._sources = {source.fileno(): source for source in sources if source.fileno() >= 0}

    @property
    def engine(self) -> FaultEngine:
        return self._own

    def fds(self) -> tuple[int, ...]:
        return tuple(self._sources)

    def ready(self, fd: int, at: float) -> list[Change]:
        """A source has something."""
        source = self._sources.get(fd)
        return self.note(source.take(at), at) if source is not None else []

    def note(self, events: Iterable[FaultEvent], at: float) -> list[Change]:
        """Faults that somebody in this process saw, a check that runs during the job for one."""
        found = list(events)
        if not found:
            return []
        changes, taken = self._judged(found, at)
        self._heard(taken)
        return changes

    def sync(self, at: float) -> list[Change]:
        """What others wrote into the book since (and what was found on opening it); passes deadlines too."""
        book = self.book
        if book is None:
            return self._own.tick(at)
        missed, book.missed = book.missed, []
        try:
            changes = [*missed, *book.sync(at)]
        except HoldfastError as trouble:
            self._alone(trouble)
            return [*missed, *self._own.tick(at)]
        self._heard(_taken(book))
        return changes

    def next_wake(self) -> float | None:
        return self._own.next_wake()

    def tick(self, at: float) -> list[Change]:
        return self._own.tick(at)

    def within(self, start: float, end: float, ranks: Mapping[str, tuple[int, ...]]) -> tuple[ActiveFault, ...]:
        """The faults of an attempt, for its explanation."""
        return self.overlaps.within(start, end, ranks)

    def placeable(self, devices: Iterable[str]) -> Placing:
        """Which devices may take new work, and why others may not. What other processes noted counts."""
        return placeable(self._own, devices)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        if self.book is not None:
            self.book.close()
            self.book = None

    def _judged(self, events: list[FaultEvent], at: float) -> tuple[list[Change], list[FaultEvent]]:
        if self.book is not None:
            try:
                changes, _, said = self.book.take(events, at)
            except HoldfastError as trouble:
                self._alone(trouble)
            else:
                self.news += said
                # With what others wrote meanwhile: it is folded in the log's order.
                return changes, _taken(self.book)
        taken = [event for event in events if not (refusal(event, at) or self._own.check(event, at))]
        return self._own.handle_all(taken, at), taken

    def _heard(self, events: list[FaultEvent]) -> None:
        for event in events:
            self.overlaps.note(event, self._own)
        self.events += events

    def _alone(self, trouble: HoldfastError) -> None:
        self.news.append(f"{trouble.message}; until the run ends faults are judged in memory only")
        if self.book is not None:
            self.book.close()
            self.book = None


def _taken(book: FaultBook) -> list[FaultEvent]:
    events = list(book.heard)
    book.heard.clear()
    return events
