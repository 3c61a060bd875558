"""A host runs processes on one machine: it performs an agent's instructions, and tells it what becomes of them.

Everything the job starts is found again, whatever session it moves to: the supervisor is a subreaper, so each process
below it stays its descendant. The kernel announces deaths on pidfds, in the order in which they happened.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec

from holdfast import children
from holdfast.act.environ import DRAIN
from holdfast.act.leaving import Leaving, kill
from holdfast.act.linux import children as children_of
from holdfast.act.linux import descendants, is_dying
from holdfast.act.ports import Holder, Ports
from holdfast.act.setting import Setting
from holdfast.act.spawn import READY, Spawned
from holdfast.act.starts import COLD_HEAD_START_S, WARM_HEAD_START_S, HeadStart, Nurseries, Started, Starts, Ticket
from holdfast.model.exits import TRAVELLING_BYTES, WorkerExit
from holdfast.model.jobs import Seat, shapes
from holdfast.model.processes import (
    AllReaped,
    Fact,
    Instruction,
    NotifyWorkers,
    ReleaseWorker,
    SendReport,
    SignalWorkers,
    StartWorker,
    WorkerExited,
    WorkerPrepared,
    WorkersNotified,
    WorkerStartFailed,
    WorkerUp,
)
from holdfast.reactor import Reactor, Turn

if TYPE_CHECKING:
    from holdfast.act.partners import Groups, Output


class _Worker(msgspec.Struct):
    seat: Seat
    attempt: int
    process: Spawned
    directory: Path
    started_at: float
    said: bytes = b""
    status_open: bool = True
    dying_at: float | None = None
    """When it was seen dying, before its end was told."""


class Host(Protocol):
    """What an agent needs of its machine. Which machines there are is the business of `cluster/`."""

    def perform(self, instruction: Instruction, now: float) -> list[Fact]:
        """Start, release, notify, signal or stop workers; what is known of it at once. Again it does no harm."""
        ...

    def processes(self) -> list[int]:
        """Every process of the job on this machine, grandchildren included."""
        ...

    def pids(self) -> dict[int, int]:
        """Rank → pid of the workers that live here."""
        ...


class LocalHost:
    """The machine that this process is on. `learn` gets the facts that no instruction has asked for, and when."""

    def __init__(
        self,
        setting: Setting,
        reactor: Reactor,
        output: Output,
        learn: Callable[[list[Fact], float], None],
        *,
        groups: Groups | None = None,
        warm: Nurseries | None = None,
        store: Holder | None = None,
    ) -> None:
        self._setting = setting
        self._reactor = reactor
        self._learn = learn
        self._output = output
        self._groups = groups
        self._starts = Starts(warm, self._started)
        self._head_start = HeadStart(COLD_HEAD_START_S if warm is None else WARM_HEAD_START_S)
        self._workers: dict[int, _Worker] = {}
        self._ports = Ports(setting.master_port, store)
        self._order = 0
        self._stopping: SignalWorkers | None = None
        self._leaving = Leaving()
        self._mute = 0
        self._attempt = 0
        self._gone: dict[int, int] = {}
        """pid → rank of the workers of this attempt that have ended."""

    # ------------------------------------------------------------------------------------------ instructions

    def perform(self, instruction: Instruction, now: float) -> list[Fact]:
        """Do it; what is known of it at once. `SendReport` is not for this station."""
        match instruction:
            case StartWorker():
                return self._start(instruction, now)
            case ReleaseWorker():
                return self._release(instruction, now)
            case NotifyWorkers():
                return [WorkersNotified(attempt=instruction.attempt, listening=self._notify(instruction, now))]
            case SignalWorkers():
                self._stopping = instruction
                self._starts.cancel()
                self._head_start.clear()
                self._signal(instruction)
                return list(self._emptied())
            case SendReport():
                return []
            case _:
                assert_never(instruction)

    def _start(self, order: StartWorker, now: float) -> list[Fact]:
        seat, attempt = order.seat, order.attempt
        self._stopping = None
        self._leaving.begin_anew()
        if attempt != self._attempt:
            self._attempt, self._gone = attempt, {}
        try:
            directory = self._setting.directory(attempt, seat)
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            pass  # the disk is full or read-only: the pump says so, and the worker runs without its files
        env = self._environment(order, directory)
        role = next(role for role in self._setting.spec.roles if role.name == seat.role)
        pipes: list[int] = []
        try:
            pipes += self._setting.streams.pair(0)
            pipes += self._setting.streams.pair(1)
            groups = self._groups.join(seat, role.resources.memory_bytes, attempt) if self._groups else ()
        except OSError as error:
            for fd in pipes:
                os.close(fd)
            return [WorkerStartFailed(attempt=attempt, rank=seat.rank, reason=f"no process could be made: {error}")]
        ticket = Ticket(
            seat=seat,
            attempt=attempt,
            command=role.command,
            env=env,
            cwd=self._setting.cwd,
            stdin_fd=self._setting.streams.stdin(seat.rank),
            out=(pipes[0], pipes[1]),
            err=(pipes[2], pipes[3]),
            directory=directory,
            groups=tuple(groups),
        )
        return self._watch(self._starts.ask(ticket, now), now)

    def _watch(self, started: list[Started], now: float) -> list[Fact]:
        """Workers that have their process, and those for which none could be made."""
        facts: list[Fact] = []
        for one in started:
            ticket, process = one.ticket, one.process
            seat, attempt = ticket.seat, ticket.attempt
            if process is None:
                ticket.close()
                facts.append(WorkerStartFailed(attempt=attempt, rank=seat.rank, reason=one.error))
                continue
            os.close(ticket.out[1])
            os.close(ticket.err[1])
            worker = _Worker(seat, attempt, process, ticket.directory, now)
            self._workers[seat.rank] = worker
            self._reactor.watch(process.status_fd, partial(self._heard, worker), turn=Turn.DEATH)
            self._reactor.watch(process.pidfd, partial(self._died, worker), turn=Turn.DEATH)
            self._output.add(seat, ticket.out[0], ticket.err[0], ticket.directory)
        return facts

    def warm_up(self, seats: Sequence[Seat], now: float) -> None:
        """Have the imports of the first attempt done while its checks run."""
        for role in self._setting.spec.roles:
            seat = next(seat for seat in seats if seat.role == role.name)
            order = StartWorker(attempt=1, seat=seat, shape=shapes(seats)[seat.node])
            env = self._environment(order, self._setting.directory(1, seat))
            self._starts.begin(role.command, env, self._setting.cwd, now)

    def _environment(self, order: StartWorker, directory: Path) -> dict[str, str]:
        attempt = order.attempt
        return self._setting.environment_of(order, directory, self._ports.of(attempt), self._ports.held(attempt))

    def _release(self, order: ReleaseWorker, now: float) -> list[Fact]:
        self._starts.released(now)
        worker = self._workers.get(order.rank)
        if worker is None or worker.attempt != order.attempt:
            return []
        if 0 not in self._workers or self._ports.held(order.attempt) or not self._head_start.holds(order.rank, now):
            self._let_go(worker)
        return []

    def _let_go(self, worker: _Worker) -> None:
        try:
            os.write(worker.process.go_fd, b"g")
        except BrokenPipeError:
            pass  # it has died; its pidfd tells

    # ------------------------------------------------------------------------------------------ facts

    def _started(self, started: list[Started], now: float) -> None:
        self._learn([*self._watch(started, now), *self._emptied()], now)

    def _heard(self, worker: _Worker, fd: int, now: float) -> None:
        self._learn(self._said(worker, now), now)

    def _died(self, worker: _Worker, fd: int, now: float) -> None:
        self._learn(self._ended(worker, now), now)

    def _said(self, worker: _Worker, now: float) -> list[Fact]:
        """The status pipe: `+` prepared, end of file up, anything else why it is not the program."""
        data = os.read(worker.process.status_fd, 4096)
        rank, attempt = worker.seat.rank, worker.attempt
        if data:
            fresh = data.startswith(READY) and not worker.said
            worker.said += data
            return [WorkerPrepared(attempt=attempt, rank=rank, pid=worker.process.pid)] if fresh else []
        self._close_status(worker)
        error = worker.said.removeprefix(READY).decode(errors="replace")
        if error:
            return [WorkerStartFailed(attempt=attempt, rank=rank, reason=error)]
        if rank == 0:
            self._head_start.first_is_up(now)
        return [WorkerUp(attempt=attempt, rank=rank)] if worker.said else []

    def _close_status(self, worker: _Worker) -> None:
        if worker.status_open:
            worker.status_open = False
            self._forget(worker.process.status_fd)

    def _forget(self, fd: int) -> None:
        self._reactor.forget(fd)
        os.close(fd)

    def _ended(self, worker: _Worker, now: float) -> list[Fact]:
        """It has died: what it said of its start first, then its exit."""
        facts = self._said(worker, now) if worker.status_open else []
        if worker.status_open:
            facts += self._said(worker, now)
        info = os.waitid(os.P_PIDFD, worker.process.pidfd, os.WEXITED)
        self._close_status(worker)
        self._forget(worker.process.pidfd)
        os.close(worker.process.go_fd)
        rank = worker.seat.rank
        del self._workers[rank]
        self._gone[worker.process.pid] = rank
        self._look_for_dying(now)
        self._output.finish(rank, now)
        self._order += 1
        exited = info is not None and info.si_code == os.CLD_EXITED
        status = info.si_status if info is not None else None
        ended = WorkerExit(
            role=worker.seat.role,
            rank=rank,
            node=worker.seat.node,
            attempt=worker.attempt,
            pid=worker.process.pid,
            local_rank=worker.seat.local_rank,
            exit_code=status if exited else None,
            signal=None if exited else status,
            core_dumped=info is not None and info.si_code == os.CLD_DUMPED,
            started_at=worker.started_at,
            ended_at=now if worker.dying_at is None else worker.dying_at,
            order=self._order,
            was_dying=worker.dying_at is not None,
            last_words=self._output.tail(rank, TRAVELLING_BYTES) if not exited or status else "",
            last_words_stream=self._output.tail_stream(rank),
        )
        if self._stopping is None and not ended.ok and self._setting.spec.restarts.max_restarts:
            self._starts.lost(now)
        return [*facts, WorkerExited(exit=ended), *self._emptied()]

    def _look_for_dying(self, now: float) -> None:
        """One has died: who else is dying by now was not killed by the stop that may follow."""
        # What killed the one may be the other's end, which takes longer: memory is given back before a death is told.
        if self._stopping is None:
            for other in self._workers.values():
                if other.dying_at is None and is_dying(other.process.pid):
                    other.dying_at = now

    def reap(self, now: float) -> None:
        """A child died or was stopped (SIGCHLD). Workers tell by their pidfds; orphans that became ours end here."""
        self._starts.rouse()
        known = {worker.process.pid for worker in self._workers.values()} | children.helpers()
        for pid in children_of(os.getpid()):
            if pid not in known:
                try:
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                except ChildProcessError:
                    pass  # reaped between the look and now
        self._learn(list(self._emptied()), now)

    # ------------------------------------------------------------------------------------------ time

    def next_wake(self) -> float | None:
        """When `tick` is due: a nursery has a time limit, or rank 0 has had its head start."""
        wakes = (self._starts.next_wake(), self._head_start.next_wake())
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> None:
        for rank in self._head_start.take(now):
            if rank in self._workers:
                self._let_go(self._workers[rank])
        self._learn(self._watch(self._starts.tick(now), now), now)

    # ------------------------------------------------------------------------------------------ ending

    def _job_processes(self) -> list[int]:
        return descendants(os.getpid(), children.helpers())

    def _signal(self, order: SignalWorkers) -> None:
        if order.hard:
            kill(self._job_processes())
            return
        mute = [worker for worker in self._workers.values() if worker.attempt == self._mute]
        for worker in mute:
            self._output.hush(worker.seat.rank)
        self._leaving.ask(order.signal, self._tops(), {worker.process.pid for worker in mute})

    def _tops(self) -> list[int]:
        """Children of ours that are the job's: ranks, and what ended processes left behind."""
        helpers = children.helpers()
        return [pid for pid in children_of(os.getpid()) if pid not in helpers]

    def _notify(self, order: NotifyWorkers, now: float) -> tuple[int, ...]:
        """Tell every worker to save and leave; the ranks that listen."""
        from holdfast.act.draining import tell  # few attempts end in this way

        notice = {"reason": order.reason, "seconds": order.save_s, "until": now + order.save_s}
        workers = [worker for worker in self._workers.values() if worker.attempt == order.attempt]
        return tuple(w.seat.rank for w in workers if tell(w.directory / DRAIN, w.process.pid, notice))

    def _emptied(self) -> Iterator[Fact]:
        """While stopping: the last process is reaped, or there are more to kill."""
        if self._stopping is None:
            return
        if tops := self._tops():
            if self._stopping.hard:
                self._signal(self._stopping)  # what a dying process had forked before our signal reached it
            else:
                ranks = self.pids().values()
                self._leaving.ask_left_behind(pid for pid in tops if pid not in ranks)
            return
        stopping, self._stopping = self._stopping, None
        yield AllReaped(attempt=stopping.attempt)

    # ------------------------------------------------------------------------------------------ for the other stations

    def forward(self, number: int) -> int:
        """Pass a signal on to every worker, as it is; how many got it."""
        got = 0
        for worker in self._workers.values():
            try:
                signal.pidfd_send_signal(worker.process.pidfd, number)
                got += 1
            except ProcessLookupError:
                pass  # it has ended; its pidfd tells
        return got

    def resized(self) -> None:
        """The user's terminal has another size: tell the worker that writes to it."""
        if self._setting.streams.resized():
            self.forward(signal.SIGWINCH)

    def want_last_words(self, attempt: int) -> None:
        """When this attempt is asked to leave, its workers shall write where they stand: nobody else can tell."""
        self._mute = attempt

    def processes(self) -> list[int]:
        """Every process of the job, grandchildren included."""
        return self._job_processes()

    def pids(self) -> dict[int, int]:
        """Rank → pid of the workers that live."""
        return {rank: worker.process.pid for rank, worker in self._workers.items()}

    def rank_of(self, pid: int) -> int | None:
        """The rank whose process this is, or was in this attempt."""
        if pid in self._gone:
            return self._gone[pid]
        return next((rank for rank, top in self.pids().items() if pid == top or pid in descendants(top)), None)
