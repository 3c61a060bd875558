"""The event loop. Only this module waits: for ready descriptors and for times.

    reactor.watch(fd, callback)          calls callback(fd, now) when `fd` is readable
    reactor.at(when, callback)           calls callback(now) at that time
    reactor.deadlines(next_wake, tick)   calls `next_wake()` before each wait, and tick(now) once that time has come
    reactor.wait(take)                   waits once, and runs the callbacks that are due

Only the reactor reads the clock, and passes the time to all other code. A callback returns events, which `take` gets
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


#: Maximum length of one wait, in seconds: epoll accepts at most 24 days, and a caller's limit may be longer.
LONGEST_WAIT_S = 86_400.0


class CallbackPriority(enum.IntEnum):
    """The order of callbacks for descriptors that are ready at the same time."""

    #: The guard's descriptor comes first. A signal that requests the job's end is then handled before the exits of
    #: workers that the same signal has caused.
    GUARD = enum.auto()
    #: Exits are handled before output and the rest: a noisy worker's output must not delay the stop of other workers.
    DEATH = enum.auto()
    REST = enum.auto()


class DescriptorWatch:
    """A watched descriptor, until `close`. Closing the watch does not close the descriptor.

    `reactor`: the reactor that waits. `fd`: the descriptor. `events`: the awaited events, as in `selectors`.
    `callback`: called with (fd, now). `turn`: the callback's priority among ready descriptors.
    """

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
        """Set whether the callback is also called when the descriptor is writable."""
        self._want(self._events & selectors.EVENT_READ | (selectors.EVENT_WRITE if on else 0))

    def read_too(self, on: bool) -> None:
        """Set whether the callback is also called when the descriptor is readable. An error on the descriptor always
        calls it.
        """
        self._want(self._events & selectors.EVENT_WRITE | (selectors.EVENT_READ if on else 0))

    def _want(self, events: int) -> None:
        if self._events != events and self.open:
            self._events = events
            self._reactor.change(self, events)

    def close(self) -> None:
        """End the watch. Call this before closing the descriptor; a second call does nothing."""
        if self.open:
            self._reactor.forget(self.fd)


class DueCall:
    """A callback that runs once, unless `close` is called before.

    `reactor`: the reactor that waits. `when`: the due time on the reactor's clock, in seconds. `callback`: called with
    (now).
    """

    __slots__ = ("_reactor", "callback", "when")

    def __init__(self, reactor: Reactor, when: float, callback: Tick) -> None:
        self._reactor = reactor
        self.when = when
        self.callback = callback

    def close(self) -> None:
        self._reactor.drop(self)


class Reactor:
    """Waits and calls callbacks. `now`: returns seconds on a clock that does not jump."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._selector = selectors.DefaultSelector()
        self._watches: dict[int, DescriptorWatch] = {}
        self._moments: list[DueCall] = []
        self._deadlines: list[tuple[Callable[[], float | None], Tick]] = []

    def watch(
        self, fd: int, callback: Ready, *, writable: bool = False, turn: CallbackPriority = CallbackPriority.REST
    ) -> DescriptorWatch:
        """Call `callback(fd, now)` whenever `fd` is readable (or `writable`). Each descriptor has at most one watch."""
        events = selectors.EVENT_WRITE if writable else selectors.EVENT_READ
        watch = DescriptorWatch(self, fd, events, callback, turn)
        self._selector.register(fd, events, watch)
        self._watches[fd] = watch
        return watch

    def watched(self, fd: int) -> DescriptorWatch | None:
        """Return the watch of a descriptor; None: it is not watched."""
        return self._watches.get(fd)

    @property
    def watching(self) -> Collection[int]:
        """The watched descriptors."""
        return self._watches.keys()

    def change(self, watch: DescriptorWatch, events: int) -> None:
        """From now on, wait for these events (constants of `selectors`) of the watched descriptor."""
        self._selector.modify(watch.fd, events, watch)

    def forget(self, fd: int) -> None:
        """End the watch of `fd`, if there is one. Call this before closing `fd`."""
        if self._watches.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def at(self, when: float, callback: Tick) -> DueCall:
        """Call `callback(now)` once, at `when` (seconds on the clock of `now`) or a moment later."""
        moment = DueCall(self, when, callback)
        self._moments.append(moment)
        return moment

    def drop(self, moment: DueCall) -> None:
        if moment in self._moments:
            self._moments.remove(moment)

    def deadlines(self, next_wake: Callable[[], float | None], tick: Tick) -> None:
        """Register a deadline that may move: `tick(now)` runs once the time of `next_wake()` has come.

        Several deadlines are called in the order of their registration.
        """
        self._deadlines.append((next_wake, tick))

    def wait(self, take: Callable[[News], None] = lambda news: None, longest_s: float = LONGEST_WAIT_S) -> int:
        """Wait for the first ready descriptor or the first due time, and run the callbacks.

        `take` gets the result of each callback immediately. Return the number of ready descriptors.
        """
        wakes = [wake for next_wake, _ in self._deadlines if (wake := next_wake()) is not None]
        wakes += [moment.when for moment in self._moments]
        timeout = min(max(0.0, min(wakes) - self.now()), longest_s) if wakes else longest_s
        ready: list[DescriptorWatch] = [key.data for key, _ in self._selector.select(timeout)]
        for watch in sorted(ready, key=_turn):
            # An earlier callback of this batch may have closed this watch.
            if watch.open:
                # Read the clock again, so that an event is never dated before an event that was handled earlier.
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
        """Wait only for these descriptors from now on, and drop all registered times."""
        for fd in tuple(self._watches):
            if fd not in fds:
                self.forget(fd)
        self._deadlines.clear()
        self._moments.clear()

    def close(self) -> None:
        """End every watch and close the selector."""
        self._watches.clear()
        self._selector.close()


def pause(seconds: float) -> None:
    """Wait for some seconds, in a process without a reactor. An interrupt ends the wait."""
    reactor = Reactor(float)
    try:
        reactor.wait(longest_s=seconds)
    finally:
        reactor.close()


def _turn(watch: DescriptorWatch) -> CallbackPriority:
    return watch.turn
