"""Handles signals to holdfast: requests to stop, exits of children, and signals for the workers.

The user starts the guard, which gets the signals of a user, a terminal or a scheduler. The supervisor has its own
session and pid, and gets a signal only if it was sent to that pid. If both get the same signal within a moment, it was
sent to every process of the job (Slurm without cgroups, systemd, `kill` over a tree). The workers then have it already,
and a second one could kill a worker that is exiting. So the supervisor does not forward it.
"""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Callable
from typing import Protocol

from holdfast.act.workers import Workers
from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.node.signal_pipe import Signals
from holdfast.platforms.platform import PLATFORM_SIGNALS
from holdfast.platforms.platform_registry import on_platform
from holdfast.reactor import Reactor

#: Seconds before a signal is forwarded, to see whether guard and supervisor both get it. Between two processes a sender
#: needs microseconds, or some milliseconds if the kernel interrupts it.
HOLD_S = 0.1
#: If guard and supervisor get the same signal within this many seconds, it counts as one, even if it was forwarded.
SAME_S = 1.0
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class SignalRoute(enum.Enum):
    """The process that received a signal."""

    GUARD = enum.auto()
    SUPERVISOR = enum.auto()


class SignalRoutes:
    """Detects a signal that was sent to both the guard and the supervisor."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[SignalRoute, float]] = {}

    def both(self, number: int, via: SignalRoute, now: float) -> bool:
        """Record that a signal arrived at the guard or the supervisor (`via`). Return True if the other one got it a
        moment ago. `number`: the signal.
        """
        first = self._first.get(number)
        if first is not None and first[0] is not via and now - first[1] <= SAME_S:
            del self._first[number]
            return True
        self._first[number] = (via, now)
        return False


class ProcessesBelow(Protocol):
    """The descendants of this process, and the workers among them."""

    workers: Workers

    def reap(self, now: float) -> None: ...

    def resized(self) -> None: ...


class SignalHandler:
    """Turns signals into stop requests, and forwards signals for the workers."""

    def __init__(
        self,
        signals: Signals,
        reactor: Reactor,
        below: ProcessesBelow,
        say: Callable[[str], None],
        *,
        grace_s: float,
        node: str,
    ) -> None:
        """Set up the handler.

        `below`: the processes that descend from this process. `say` prints a message. `grace_s`: seconds from SIGINT to
        SIGKILL. `node`: the name of this node.
        """
        self._signals = signals
        self._below = below
        self._say = say
        self._grace_s = grace_s
        #: The node's name; "" if no platform can explain a signal.
        self._node = node if on_platform(os.environ) else ""
        self._ways = SignalRoutes()
        self._asked = False
        #: Signal → when to forward it to the workers, unless all processes turn out to have it.
        self._held: dict[int, float] = {}
        self._passed_on: list[tuple[float, int]] = []
        reactor.watch(signals.fileno(), self._ready)
        reactor.deadlines(self._next_wake, self._tick)

    def passed_on(self, since: float) -> tuple[int, ...]:
        """Return the signals for the workers that were delayed or forwarded at `since` or later."""
        return tuple(number for at, number in self._passed_on if at >= since)

    def _ready(self, fd: int, now: float) -> list[ev.Event]:
        numbers = self._signals.take()
        if signal.SIGCHLD in numbers:
            self._below.reap(now)
        return [
            event
            for number in numbers
            if number != signal.SIGCHLD
            for event in self.heard(number, SignalRoute.SUPERVISOR, now)
        ]

    def by_guard(self, number: int, typed: bool, now: float) -> list[ev.Event]:
        """Handle a signal that the guard received."""
        return self.heard(number, SignalRoute.GUARD, now, typed=typed)

    def heard(self, number: int, via: SignalRoute, now: float, *, typed: bool = False) -> list[ev.Event]:
        """Handle a signal that arrived at the guard or the supervisor (`via`).

        `typed`: the user typed it at the terminal, which does not send it to the workers.
        """
        if number == signal.SIGWINCH:
            self._below.resized()
            return []
        everywhere = self._ways.both(number, via, now)
        told = self._told(number)
        if told and number not in _PASSED_ON:
            return told
        if number not in _PASSED_ON:
            return [ev.StopRequested(request=self._request(number, now, everywhere=everywhere, typed=typed))]
        # Schedulers announce the end of a job with SIGUSR1 or SIGUSR2, and programs that handle it save a checkpoint.
        if not everywhere:
            if number in self._held:
                # The signal came twice by the same way, so the first one was not sent to every process. Forward it.
                self._pass_on(number)
            self._passed_on.append((now, number))
            self._held[number] = now + HOLD_S
        elif self._held.pop(number, None) is not None:
            name = signal.Signals(number).name
            self._say(f"{name} came to every process of the job, the workers included: it is not passed on")
        return told

    def _told(self, number: int) -> list[ev.Event]:
        """Return an event if the platform can explain this signal; else nothing."""
        if not self._node or number not in PLATFORM_SIGNALS:
            return []
        return [ev.NodeSignalled(node=self._node, boot=0, number=number)]

    def _next_wake(self) -> float | None:
        return min(self._held.values(), default=None)

    def _tick(self, now: float) -> None:
        for number in [number for number, due in self._held.items() if due <= now]:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        self._held.pop(number, None)
        # A platform's warning is only for programs that handle the signal, because it would kill others.
        got = self._below.workers.forward(number, who_handles=bool(self._node))
        self._say(f"{signal.Signals(number).name} is passed on to {got} workers")

    def _request(self, number: int, now: float, *, everywhere: bool, typed: bool) -> StopRequest:
        name = signal.Signals(number).name
        again = self._asked and not everywhere
        self._asked = True
        kills = again and number == signal.SIGINT
        if number == signal.SIGINT and self._below.workers.pids() and not everywhere:
            if again:
                self._say("Ctrl-C again: what is left of the workers is killed now")
            else:
                self._say(
                    f"Ctrl-C: the workers get SIGINT, after {self._grace_s / 2:g} s SIGTERM, after {self._grace_s:g} s "
                    "SIGKILL; Ctrl-C again kills them at once"
                )
        words = {
            signal.SIGINT: "Ctrl-C (SIGINT)",
            signal.SIGTERM: "holdfast got SIGTERM: a scheduler or a person asked it to end",
            signal.SIGHUP: "holdfast got SIGHUP: the terminal it ran in was closed",
        }
        return StopRequest(
            reason=words.get(signal.Signals(number), f"holdfast got {name}"),
            solution="Nothing to repair: start the job again when you want it to go on.",
            source=StopSource.SIGNAL,
            at=now,
            signal=number,
            grace_s=0.0 if kills else None,
            everywhere=everywhere,
            hold_s=0.0 if everywhere or typed or kills else HOLD_S,
        )
