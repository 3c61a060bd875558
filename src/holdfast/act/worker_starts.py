"""Starts worker processes: warm, as a fork of a prewarmed process, or cold if there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.act.spawn import Spawned, spawn
from holdfast.act.worker_config import WorkerConfig, lay_out
from holdfast.model.cpu_lists import cpus_of
from holdfast.model.job_spec import Placement
from holdfast.model.process_messages import StartWorker


class Groups(Protocol):
    """Creates control groups for an attempt's workers, if the machine allows any."""

    def join(self, placement: Placement, memory_bytes: int | None, attempt: int = 1) -> tuple[Path, ...]: ...


class Ticket(msgspec.Struct, frozen=True):
    """A request to start one worker."""

    placement: Placement
    attempt: int
    command: tuple[str, ...]
    #: The command as submitted, before the expansion of names for the worker.
    written: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    #: The worker's stdin. `close` leaves it open, and closes the four fds of `out` and `err`.
    stdin_fd: int
    out: tuple[int, int]
    #: The read end and the write end of the stderr pipe. `out` has those of stdout.
    err: tuple[int, int]
    directory: Path
    groups: tuple[Path, ...]
    #: Whether to report a missing program before the worker may run. False if hooks run first, because they may create
    #: the program.
    check: bool

    @property
    def streams(self) -> tuple[int, int, int]:
        """Return the worker's stdin, stdout and stderr."""
        return self.stdin_fd, self.out[1], self.err[1]

    def close(self) -> None:
        """Close both ends of the pipes for stdout and stderr."""
        for fd in (*self.out, *self.err):
            os.close(fd)


def ticket_of(
    order: StartWorker, setting: WorkerConfig, groups: Groups | None, env: Mapping[str, str], directory: Path
) -> Ticket:
    """Create a start request with new pipes and control groups. A control group that cannot be created is left out.

    Raises OSError if a pipe or the command's script cannot be created, and `BadUsage` if the command contains an
    unknown name.
    """
    placement = order.placement
    role = setting.role_of(placement)
    command = setting.command_for(placement, env, directory)
    if setting.image_words and (image := setting.images.get(role.name)):
        command = (*setting.image_words, image, *command)
    if (cwd := setting.cwd_of(order.attempt, placement, env)) != setting.cwd:
        lay_out(cwd, setting.cwd)
    memory = role.resources.memory_bytes if setting.spec.binds else None
    pipes: list[int] = []
    try:
        pipes += setting.streams.pair(0)
        pipes += setting.streams.pair(1)
        joined = groups.join(placement, memory, order.attempt) if groups else ()
    except OSError:
        for fd in pipes:
            os.close(fd)
        raise
    return Ticket(
        placement=placement,
        attempt=order.attempt,
        command=command,
        written=role.command,
        env=env,
        cwd=cwd,
        stdin_fd=setting.streams.stdin(placement.rank),
        out=(pipes[0], pipes[1]),
        err=(pipes[2], pipes[3]),
        directory=directory,
        groups=tuple(joined),
        check=not (setting.spec.runtime.hooks or setting.spec.runtime.daemons),
    )


class WarmStart(msgspec.Struct, frozen=True):
    """The answer to a request for a warm worker: a prepared process that waits for GO, or None for a cold start."""

    ticket: Ticket
    process: Spawned | None


class Started(msgspec.Struct, frozen=True):
    """The result of a start request: a process that waits for GO, or the error that prevented the start."""

    ticket: Ticket
    process: Spawned | None
    error: str = ""
    #: True if the process was forked from a prewarmed process.
    warm: bool = False


class Nurseries(Protocol):
    """Provides warm workers. The only implementation is `holdfast.act.warm.nurseries.Warm`, which documents the
    methods. With this protocol a run without warm starts need not import that module.
    """

    def begin(self, command: tuple[str, ...], env: Mapping[str, str], cwd: Path, now: float) -> None: ...

    def ask(self, ticket: Ticket, now: float) -> list[WarmStart]: ...

    def released(self, now: float) -> None: ...

    def lost(self, now: float) -> None: ...

    def cancel(self) -> None: ...

    def rouse(self) -> None: ...

    def deliver(self, deliver: Callable[[list[WarmStart], float], None]) -> None: ...

    def next_wake(self) -> float | None: ...

    def tick(self, now: float) -> list[WarmStart]: ...


#: Seconds by which rank 0 runs before the other ranks, if each worker must still do its imports.
COLD_HEAD_START_S = 0.03
#: Seconds by which rank 0 runs before the other ranks, if the imports are done.
WARM_HEAD_START_S = 0.015
#: After this many seconds the other ranks run even without rank 0, so that only rank 0 is reported as late.
LONGEST_HEAD_START_S = 1.0


def head_start_s(*, warm: bool) -> float:
    """Return the seconds by which rank 0 runs earlier than the other ranks."""
    return WARM_HEAD_START_S if warm else COLD_HEAD_START_S


class HeadStart:
    """Lets rank 0 run first, so that it opens its port before the other ranks connect.

    A rank that finds the port closed retries half a second later (torch's TCPStore, as of 2.13). A whole warm restart
    takes a fraction of that.
    """

    def __init__(self, length_s: float) -> None:
        """`length_s`: the head start in seconds."""
        self._length_s = length_s
        self._held: list[int] = []
        self._due: float | None = None

    def holds(self, rank: int, now: float) -> bool:
        """Return whether this rank must wait for rank 0. Return False for rank 0."""
        if rank == 0:
            return False
        if not self._held:
            self._due = now + LONGEST_HEAD_START_S
        self._held.append(rank)
        return True

    def first_is_up(self, now: float) -> None:
        """Record that rank 0 runs its program. The other ranks may run after the head start."""
        if self._held:
            self._due = now + self._length_s

    def next_wake(self) -> float | None:
        return self._due

    def take(self, now: float) -> list[int]:
        """Return the ranks that may run now, each once."""
        if self._due is None or now < self._due:
            return []
        ranks = self._held
        self.clear()
        return ranks

    def clear(self) -> None:
        self._held, self._due = [], None


class Starts:
    """Answers every start request (`Ticket`) with one `Started`, unless the request is cancelled.

    `ask` and `tick` return the results that are known at once; `started` gets the later ones.
    """

    def __init__(self, warm: Nurseries | None, started: Callable[[list[Started], float], None]) -> None:
        self._warm = warm
        self._waiting: dict[int, Ticket] = {}
        if warm is not None:
            warm.deliver(lambda answers, now: started(self._settle(answers), now))

    def begin(self, command: tuple[str, ...], env: Mapping[str, str], cwd: Path, now: float) -> None:
        """Start the imports of this worker command early, in a prewarmed process."""
        if self._warm is not None:
            self._warm.begin(command, env, cwd, now)

    def ask(self, ticket: Ticket, now: float) -> list[Started]:
        """Start a worker. Return the results that are known now."""
        self._waiting[ticket.placement.rank] = ticket
        return self._settle([WarmStart(ticket, None)] if self._warm is None else self._warm.ask(ticket, now))

    def next_wake(self) -> float | None:
        return None if self._warm is None else self._warm.next_wake()

    def tick(self, now: float) -> list[Started]:
        return [] if self._warm is None else self._settle(self._warm.tick(now))

    def released(self, now: float) -> None:
        """Record that the attempt's workers run their programs now."""
        if self._warm is not None:
            self._warm.released(now)

    def lost(self, now: float) -> None:
        """Begin to prepare the next attempt's workers, because a worker of this one has failed."""
        if self._warm is not None:
            self._warm.lost(now)

    def cancel(self) -> None:
        """Cancel all waiting start requests, because the attempt is being stopped."""
        if self._warm is not None:
            self._warm.cancel()
        for ticket in self._waiting.values():
            ticket.close()
        self._waiting.clear()

    def rouse(self) -> None:
        """Continue (SIGCONT) each prewarmed process that is stopped and needed. Called after a SIGCHLD."""
        if self._warm is not None:
            self._warm.rouse()

    def _settle(self, answers: list[WarmStart]) -> list[Started]:
        started = []
        for answer in answers:
            ticket = self._waiting.pop(answer.ticket.placement.rank)
            started.append(_cold(ticket) if answer.process is None else Started(ticket, answer.process, warm=True))
        return started


def _cold(ticket: Ticket) -> Started:
    stdin_fd, stdout_fd, stderr_fd = ticket.streams
    try:
        process = spawn(
            ticket.command,
            ticket.env,
            cwd=ticket.cwd,
            stdin_fd=stdin_fd,
            stdout_fd=stdout_fd,
            stderr_fd=stderr_fd,
            groups=ticket.groups,
            cpus=cpus_of(ticket.placement.cpus),
            check=ticket.check,
        )
    except OSError as error:
        return Started(ticket, None, f"no process could be made: {error}")
    return Started(ticket, process)
