"""The nurseries of a job: one prewarmed process for each worker command, with the workers' imports done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.act.warm.nursery import Nursery
from holdfast.act.warm.nursery_input import NurseryInput
from holdfast.act.warm.unsafe_imports import Lessons
from holdfast.act.warm.warm_command import Blueprint, blueprint, shared
from holdfast.act.worker_starts import Ticket, WarmStart

if TYPE_CHECKING:
    from holdfast.reactor import Reactor

#: Default time limit for the imports, in seconds.
IMPORT_S = 120.0
_NAMED = "the command has names (PAI_*, HOLDFAST_*, <% … %>) that are filled in for each worker"
#: Seconds from the start of an attempt's workers until the next attempt's workers are forked. The present workers start
#: first.
STAND_BY_S = 1.0


class Warm:
    """Starts workers warm (as forks of a prewarmed process) if that is safe; otherwise prints the reason once."""

    def __init__(
        self,
        reactor: Reactor,
        say: Callable[[str], None],
        *,
        preload: tuple[str, ...] = (),
        standby: bool = False,
        import_s: float = IMPORT_S,
        python: str = sys.executable,
        lessons: Path | None = None,
    ) -> None:
        """Start without prewarmed processes.

        `say`: prints why workers start cold. `preload`: modules to import first. `standby`: while an attempt runs, keep
        forked workers ready for the next one. `import_s`: limit in seconds for the imports. `python`: an interpreter
        that is allowed besides holdfast's own. `lessons`: the directory that stores which imports make forks unsafe;
        None stores nothing.
        """
        self._reactor = reactor
        self._say = say
        self._preload = preload
        self._standby = standby
        self._import_s = import_s
        self._python = python
        self._lessons = Lessons(lessons)
        self._nurseries: dict[tuple[str, ...], Nursery] = {}
        self._said: set[str] = set()
        #: Command → the number of workers that the present attempt has requested.
        self._wanted: dict[tuple[str, ...], int] = {}
        self._attempt = 0
        self._stand_by_at: float | None = None
        self._deliver: Callable[[list[WarmStart], float], None] = lambda answers, now: None

    def deliver(self, deliver: Callable[[list[WarmStart], float], None]) -> None:
        """Set the function that gets the workers that are not ready when `ask` or `tick` returns. `deliver(starts,
        now)`: the function.
        """
        self._deliver = deliver

    def begin(self, command: tuple[str, ...], env: Mapping[str, str], cwd: Path, now: float) -> None:
        """Start the imports of this worker command early, while other work goes on."""
        nursery = self._nursery(command, env, cwd)
        if not isinstance(nursery, str):
            nursery.begin(now)

    def ask(self, ticket: Ticket, now: float) -> list[WarmStart]:
        """Request a worker. Return the started workers that are known at once; later ones are delivered by the function
        of `deliver`.
        """
        if ticket.attempt != self._attempt:
            self._attempt, self._wanted, self._stand_by_at = ticket.attempt, {}, None
        same = ticket.command == ticket.written
        nursery = self._nursery(ticket.command, ticket.env, ticket.cwd) if same else _NAMED
        if isinstance(nursery, str):
            self._say_once(f"warm start is off, workers start cold: {nursery}")
            return [WarmStart(ticket, None)]
        if differs := nursery.fits(ticket):
            why = f"{differs} changed since the imports were done"
            self._say_once(f"warm start: attempt {ticket.attempt} starts cold: {why}")
            return [WarmStart(ticket, None)]
        self._wanted[ticket.command] = self._wanted.get(ticket.command, 0) + 1
        return nursery.ask(ticket, now)

    def _nursery(self, command: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Nursery | str:
        if command not in self._nurseries:
            plan = blueprint(command, env, cwd, self._python)
            if not isinstance(plan, Blueprint):
                return plan
            self._nurseries[command] = Nursery(
                NurseryInput(plan, shared(env), cwd, self._preload, self._import_s, env.get("HOLDFAST_JOB", "")),
                lessons=self._lessons,
                reactor=self._reactor,
                heard=lambda answers, now: self._deliver(answers, now),
                say=self._say_once,
            )
        return self._nurseries[command]

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def released(self, now: float) -> None:
        """Note that the attempt's workers run now."""
        if self._standby:
            self._stand_by_at = now + STAND_BY_S

    def lost(self, now: float) -> None:
        """Fork the next attempt's workers, because a worker has failed. holdfast meanwhile stops and explains the
        present attempt.
        """
        self._stand_by_at = None
        self._fork(now)

    def _fork(self, now: float) -> None:
        for command, count in self._wanted.items():
            self._nurseries[command].stand_by(count, now)

    def cancel(self) -> None:
        """Cancel all waiting requests for workers, because the attempt is being stopped."""
        self._stand_by_at = None
        for nursery in self._nurseries.values():
            nursery.cancel()

    def rouse(self) -> None:
        """Continue (SIGCONT) each prewarmed process that is stopped and needed. Called after a SIGCHLD."""
        for nursery in self._nurseries.values():
            nursery.rouse()

    def next_wake(self) -> float | None:
        wakes = [self._stand_by_at, *(nursery.next_wake() for nursery in self._nurseries.values())]
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> list[WarmStart]:
        """Fork standby workers when they are due, and check all time limits. Return the answers to requests for
        workers.
        """
        if self._stand_by_at is not None and now >= self._stand_by_at:
            self._stand_by_at = None
            self._fork(now)
        return [answer for nursery in self._nurseries.values() for answer in nursery.tick(now)]

    def close(self) -> None:
        for nursery in self._nurseries.values():
            nursery.close()
