"""The one place that waits: for descriptors to be ready, and for moments to come.

    reactor.watch(fd, callback)          callback(fd, now) when `fd` is readable
    reactor.at(when, callback)           callback(now) at that moment
    reactor.deadlines(next_wake, tick)   `next_wake()` is asked before each wait; tick(now) when that moment has come
    reactor.wait(take)                   one wait, and all that follows from it

Time enters here and is passed in everywhere else. What a callback returns are the events that follow: `take` gets them
before the next callback runs.
"""

from __future__ import annotations

import enum
import selectors
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from holdfast.model.events import Event

    News = Iterable[Event] | None
    Ready = Callable[[int, float], News]
    Tick = Callable[[float], News]


#: epoll takes no more than 24 days, and a limit may be longer.
LONGEST_WAIT_S = 86_400.0


class CallbackPriority(enum.IntEnum):
    """Who comes first of those that are ready together."""

    #: A signal that asks for the end comes before the deaths that the same signal has caused.
    GUARD = enum.auto()
    #: Deaths come before the rest: a noisy worker's output must not delay the stop of the others.
    DEATH = enum.auto()
    REST = enum.auto()


class DescriptorWatch:
    """One descriptor that is waited for, until `close`. The descriptor itself stays open."""

    __slots__ = ("_events", "_reactor", "callback", "fd", "turn")

    def __init__(self, reactor: Reactor, fd: int, events: int, callback: Ready, turn: CallbackPriority) -> None:
        self._reactor = reactor
        self._events = events
        self.fd = fd
        self.callback = callback
        self.turn = turn

    @property
    def open(self) -> bool:
        return self._reactor.watched(self.fd) is self

    def write_too(self, on: bool) -> None:
        """Whether the callback is called when the descriptor is writable."""
        self._want(self._events & selectors.EVENT_READ | (selectors.EVENT_WRITE if on else 0))

    def read_too(self, on: bool) -> None:
        """Whether the callback is called when the descriptor is readable. What is broken calls it all the same."""
        self._want(self._events & selectors.EVENT_WRITE | (selectors.EVENT_READ if on else 0))

    def _want(self, events: int) -> None:
        if self._events != events and self.open:
            self._events = events
            self._reactor.change(self, events)

    def close(self) -> None:
        """Wait for it no longer. To be called before the descriptor is closed; again does nothing."""
        if self.open:
            self._reactor.forget(self.fd)


class DueCall:
    """One callback that is due at `when`, until it has run or `close` is called."""

    __slots__ = ("_reactor", "callback", "when")

    def __init__(self, reactor: Reactor, when: float, callback: Tick) -> None:
        self._reactor = reactor
        self.when = when
        self.callback = callback

    def close(self) -> None:
        self._reactor.drop(self)


class Reactor:
    """`now`: seconds on a clock that does not jump."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._selector = selectors.DefaultSelector()
        self._watches: dict[int, DescriptorWatch] = {}
        self._moments: list[DueCall] = []
        self._deadlines: list[tuple[Callable[[], float | None], Tick]] = []

    def watch(
        self, fd: int, callback: Ready, *, writable: bool = False, turn: CallbackPriority = CallbackPriority.REST
    ) -> DescriptorWatch:
        """Have `callback(fd, now)` called whenever `fd` is readable (or `writable`). One watch a descriptor."""
        events = selectors.EVENT_WRITE if writable else selectors.EVENT_READ
        watch = DescriptorWatch(self, fd, events, callback, turn)
        self._selector.register(fd, events, watch)
        self._watches[fd] = watch
        return watch

    def watched(self, fd: int) -> DescriptorWatch | None:
        """The watch of a descriptor."""
        return self._watches.get(fd)

    @property
    def watching(self) -> Collection[int]:
        """The descriptors that are waited for."""
        return self._watches.keys()

    def change(self, watch: DescriptorWatch, events: int) -> None:
        """Wait for these events of the `selectors` module instead."""
        self._selector.modify(watch.fd, events, watch)

    def forget(self, fd: int) -> None:
        """Wait for `fd` no longer; to be called before it is closed. One that is not watched stays so."""
        if self._watches.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def at(self, when: float, callback: Tick) -> DueCall:
        """Have `callback(now)` called once, at `when` (seconds on the clock of `now`) or a moment later."""
        moment = DueCall(self, when, callback)
        self._moments.append(moment)
        return moment

    def drop(self, moment: DueCall) -> None:
        if moment in self._moments:
            self._moments.remove(moment)

    def deadlines(self, next_wake: Callable[[], float | None], tick: Tick) -> None:
        """For what moves its deadline as it goes along. Both are called in the order of these calls."""
        self._deadlines.append((next_wake, tick))

    def wait(self, take: Callable[[News], None] = lambda news: None, longest_s: float = LONGEST_WAIT_S) -> int:
        """Wait for the first descriptor that is ready or the first moment that is due, and call what asked for it.

        `take` gets what each callback has returned, as soon as it has. Returns how many descriptors were ready.
        """
        wakes = [wake for next_wake, _ in self._deadlines if (wake := next_wake()) is not None]
        wakes += [moment.when for moment in self._moments]
        timeout = min(max(0.0, min(wakes) - self.now()), longest_s) if wakes else longest_s
        ready: list[DescriptorWatch] = [key.data for key, _ in self._selector.select(timeout)]
        for watch in sorted(ready, key=_turn):
            # One may have been closed by what an earlier one of this batch led to.
            if watch.open:
                # The moment is taken anew: a report that seems older than what the last one led to would teach nothing.
                take(watch.callback(watch.fd, self.now()))
        now = self.now()
        for next_wake, tick in tuple(self._deadlines):
            due = next_wake()
            if due is not None and due <= now:
                take(tick(now))
        for moment in [moment for moment in self._moments if moment.when <= now]:
            self.drop(moment)
            take(moment.callback(now))
        return len(ready)

    def only(self, fds: Collection[int]) -> None:
        """From now on wait for these descriptors and for no other, and for no moment that was asked for so far."""
        for fd in tuple(self._watches):
            if fd not in fds:
                self.forget(fd)
        self._deadlines.clear()
        self._moments.clear()

    def close(self) -> None:
        """Every watch ends."""
        self._watches.clear()
        self._selector.close()


def _turn(watch: DescriptorWatch) -> CallbackPriority:
    return watch.turn
