"""Faults during a run: the sources, the machine's book, and what overlapped which attempt, in one place.

Where the book cannot be written (somebody holds it, a full disk) the run goes on: faults are judged in memory, `news`
says so once, and what is pending goes into the book as soon as it can be written again. Nobody waits for that longer
than `BUSY_MS`, and it is tried more and more rarely. A book that is damaged is left alone until the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.decide.faults.overlap import Overlaps
from holdfast.decide.faults.policy import Policy
from holdfast.decide.isolation import Breaker, Change, FaultEngine, Placing, placeable
from holdfast.errors import HoldfastError
from holdfast.loop.faults import FaultBook, refusal
from holdfast.model.faults import ActiveFault, FaultEvent
from holdfast.observe.devices.inbox import Inbox
from holdfast.observe.devices.sources import Source
from holdfast.record.standings import StandingsUnusable

BUSY_MS = 200
"""How long a supervisor's write waits for another writer's: workers' output and deaths wait meanwhile."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
TRIES_S = 86_400.0
"""A count of failed resets from before that says nothing of the device as it is now."""
PENDING_MOST = 10_000
"""Events kept for the book; a storm beyond that is judged, and not written down."""


class FaultDesk:
    """`fds()` to wait on, `ready(fd, at)` when one is readable, `next_wake()` and `tick(at)` for deadlines.

    Times are seconds since the epoch. Each call returns the changes of level it caused; the events that were taken wait
    in `events` until somebody takes them away, sentences for people in `news`. `reopen`: opens the book where `book` is
    None because it could not be opened; it raises `HoldfastError` where it still cannot be.
    """

    def __init__(
        self,
        book: FaultBook | None,
        policy: Policy,
        sources: Iterable[Source | Inbox],
        *,
        reopen: Callable[[float], FaultBook] | None = None,
    ) -> None:
        self.book = book
        self.events: list[FaultEvent] = []
        self.news: list[str] = []
        self.overlaps = Overlaps()
        self._reopen = reopen
        self._ahead = None if book is not None else FaultEngine(policy, breaker=Breaker())
        """What judges while the book cannot be written."""
        self._pending: list[FaultEvent] = []
        self._rules: Policy | None = None
        """Rules that the book has not been told of."""
        self._pause_s = FIRST_PAUSE_S
        self._again_at: float | None = 0.0 if book is None and reopen is not None else None
        self._sources = {source.fileno(): source for source in sources if source.fileno() >= 0}

    @property
    def engine(self) -> FaultEngine:
        if self._ahead is not None:
            return self._ahead
        assert self.book is not None
        return self.book.engine

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
        changes = self._try_again(at)
        if self._ahead is None:
            assert self.book is not None
            try:
                more, _, said = self.book.take(found, at)
            except HoldfastError as trouble:
                changes += self._alone(trouble, at)
            else:
                self.news += said
                # With what others wrote meanwhile: it is folded in the log's order.
                self._heard(_taken(self.book))
                return changes + more
        engine = self.engine
        taken = [event for event in found if not (refusal(event, at) or engine.check(event, at))]
        changes += engine.handle_all(taken, at)
        if self._again_at is not None:
            self._pending += taken[: PENDING_MOST - len(self._pending)]
        self._heard(taken)
        return changes

    def sync(self, at: float) -> list[Change]:
        """What others wrote into the book since (and what was found on opening it); passes deadlines too."""
        changes = self._try_again(at)
        if self._ahead is not None:
            return changes + self._ahead.tick(at)
        assert self.book is not None
        missed, self.book.missed = self.book.missed, []
        try:
            changes += [*missed, *self.book.sync(at)]
        except HoldfastError as trouble:
            return [*changes, *missed, *self._alone(trouble, at), *self.engine.tick(at)]
        self._heard(_taken(self.book))
        return changes

    def reload(self, policy: Policy, at: float) -> list[Change]:
        """Judge by these rules from now on. Where the book cannot be written, it gets them with what is pending."""
        changes = self._try_again(at)
        if self._ahead is None:
            assert self.book is not None
            try:
                return changes + self.book.reload(policy, at)
            except HoldfastError as trouble:
                changes += self._alone(trouble, at)
        self._rules = policy
        return changes + self.engine.reload(policy, at)

    def next_wake(self) -> float | None:
        return min((at for at in (self.engine.next_wake(), self._again_at) if at is not None), default=None)

    def tick(self, at: float) -> list[Change]:
        return self.engine.tick(at)

    def tries(self, devices: tuple[str, ...], at: float) -> int:
        """How often these devices have been reset in a row without success, by whoever it was, within the last day."""
        count, noted_at = self.book.log.tries(",".join(devices)) if self.book is not None else (0, 0.0)
        return count if at - noted_at < TRIES_S else 0

    def note_tries(self, devices: tuple[str, ...], count: int, at: float) -> None:
        """So often they have: whoever goes on, after a crash of this process for one, goes on counting."""
        if self.book is not None and self._ahead is None:
            self.book.log.note_tries(",".join(devices), count, at)

    def within(self, start: float, end: float, ranks: Mapping[str, tuple[int, ...]]) -> tuple[ActiveFault, ...]:
        """The faults of an attempt, for its explanation."""
        return self.overlaps.within(start, end, ranks)

    def placeable(self, devices: Iterable[str]) -> Placing:
        """Which devices may take new work, and why others may not. What other processes noted counts."""
        return placeable(self.engine, devices)

    def close(self) -> int:
        """How many faults could not be written down to the end."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()
        if self._pending:
            self._again_at = 0.0
            self._try_again(self.engine.clock / 1000)
        if self.book is not None:
            self._ahead = self.engine
            self.book.close()
            self.book = None
        return len(self._pending)

    def _heard(self, events: list[FaultEvent]) -> None:
        for event in events:
            self.overlaps.note(event, self.engine)
        self.events += events

    def _alone(self, trouble: HoldfastError, at: float) -> list[Change]:
        """Judge in memory from here on. What others wrote before that is still news."""
        book = self.book
        assert book is not None
        missed, book.missed = book.missed, []
        self._heard(_taken(book))
        self._ahead = FaultEngine(book.policy, breaker=Breaker())
        self._ahead.load(book.engine.dump())
        if isinstance(trouble, StandingsUnusable) and trouble.passes:
            self.news.append(f"{trouble.message}; faults are judged in memory only until it can be written")
            self._again_at = at + self._pause_s
        else:
            self.news.append(f"{trouble.message}; until the run ends faults are judged in memory only")
            book.close()
            self.book = None
        return missed

    def _try_again(self, at: float) -> list[Change]:
        """Write down what is pending, where the time has come. The changes that the book's own state then makes."""
        ahead = self._ahead
        if ahead is None or self._again_at is None or at < self._again_at:
            return []
        try:
            if self.book is None:
                assert self._reopen is not None
                self.book = self._reopen(at)
                self.book.engine.register(ahead.devices)
            if self._rules is not None:
                self.book.reload(self._rules, at)
            self.book.take(self._pending, at)
        except HoldfastError:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._again_at = at + self._pause_s
            return []
        self._rules = None
        book, known = self.book, self._pending
        self._ahead, self._again_at, self._pending, self._pause_s = None, None, [], FIRST_PAUSE_S
        book.missed = []
        self._heard([event for event in _taken(book) if event not in known])
        self.news.append(f"{book.log.path} can be written again: what was reported meanwhile stands there now")
        return [
            Change(device=name, node=device.node if device else "", before=was, after=level, at=at)
            for name, device in book.engine.devices.items()
            if (level := book.engine.level(name)) is not (was := ahead.level(name))
        ]


def _taken(book: FaultBook) -> list[FaultEvent]:
    events = list(book.heard)
    book.heard.clear()
    return events
