"""The workers of one machine: the live ones and those that have ended, and requests about all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.act.host_partners import Output
from holdfast.act.linux import descendants, handlers, is_dying
from holdfast.act.spawn import READY, Spawned
from holdfast.act.worker_environment import DRAIN, keep_environment
from holdfast.act.worker_starts import Ticket
from holdfast.model.exit_report import TRAVELLING_BYTES, WorkerExit
from holdfast.model.job_spec import Seat
from holdfast.model.process_messages import NotifyWorkers


class Worker(msgspec.Struct):
    """A worker with its process."""

    seat: Seat
    attempt: int
    process: Spawned
    directory: Path
    started_at: float
    env: Mapping[str, str]
    warm: bool = False
    #: On its status pipe.
    said: bytes = b""
    status_open: bool = True
    #: When it was seen dying, before its end was reported.
    dying_at: float | None = None

    @property
    def start_error(self) -> str:
        """Why it did not become the program; empty where it did."""
        return self.said.removeprefix(READY).decode(errors="replace")

    def keep_environment(self) -> None:
        """Called once its start is over, so that no start waits for the disk."""
        keep_environment(self.env, self.directory)

    def exit(self, info: os.waitid_result | None, order: int, output: Output, now: float) -> WorkerExit:
        """How it ended. `order`: the number of workers of this machine that had ended before."""
        exited = info is not None and info.si_code == os.CLD_EXITED
        status = info.si_status if info is not None else None
        rank = self.seat.rank
        return WorkerExit(
            role=self.seat.role,
            rank=rank,
            node=self.seat.node,
            attempt=self.attempt,
            pid=self.process.pid,
            local_rank=self.seat.local_rank,
            exit_code=status if exited else None,
            signal=None if exited else status,
            core_dumped=info is not None and info.si_code == os.CLD_DUMPED,
            started_at=self.started_at,
            ended_at=now if self.dying_at is None else self.dying_at,
            order=order,
            was_dying=self.dying_at is not None,
            last_words=output.tail(rank, TRAVELLING_BYTES) if not exited or status else "",
            last_words_stream=output.tail_stream(rank),
        )


class Workers:
    """By rank."""

    def __init__(self) -> None:
        self.alive: dict[int, Worker] = {}
        self.attempt = 0
        self._gone: dict[int, int] = {}
        """pid → rank of the workers of this attempt that have ended."""

    def begin(self, attempt: int) -> None:
        """The next worker is of this attempt."""
        if attempt != self.attempt:
            self.attempt, self._gone = attempt, {}

    def add(self, ticket: Ticket, process: Spawned, now: float, *, warm: bool = False) -> Worker:
        worker = Worker(ticket.seat, ticket.attempt, process, ticket.directory, now, ticket.env, warm)
        self.alive[ticket.seat.rank] = worker
        return worker

    def remove(self, worker: Worker) -> None:
        """It has ended."""
        del self.alive[worker.seat.rank]
        self._gone[worker.process.pid] = worker.seat.rank

    def note_dying(self, now: float) -> None:
        """One has died: the workers that are dying now were not killed by the stop that may follow."""
        # What killed the one may be the other's end, which takes longer: memory is given back before a death shows.
        for other in self.alive.values():
            if other.dying_at is None and is_dying(other.process.pid):
                other.dying_at = now

    def reap_others(self, pids: Iterable[int]) -> None:
        """Of these children, those that are no worker and have ended."""
        known = {worker.process.pid for worker in self.alive.values()}
        for pid in pids:
            if pid not in known:
                try:
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                except ChildProcessError:
                    pass  # reaped between the look and now

    def notify(self, order: NotifyWorkers, now: float) -> tuple[int, ...]:
        """Notify every worker of the attempt to save and exit; returns the ranks that listen."""
        from holdfast.act.drain_notice import notify_draining  # few attempts end in this way

        notice = {"reason": order.reason, "seconds": order.save_s, "until": now + order.save_s}
        workers = [worker for worker in self.alive.values() if worker.attempt == order.attempt]
        return tuple(w.seat.rank for w in workers if notify_draining(w.directory / DRAIN, w.process.pid, notice))

    def shielded(self, attempt: int) -> frozenset[int]:
        """The pids of those that catch SIGTERM only until their notice comes."""
        from holdfast.act.drain_notice import shielded  # no start needs it

        workers = [worker for worker in self.alive.values() if worker.attempt == attempt]
        return frozenset(w.process.pid for w in workers if shielded(w.directory / DRAIN))

    def unshield(self, attempt: int) -> None:
        """Their time is over: SIGTERM ends them."""
        from holdfast.act.drain_notice import announce_drain_end, shielded  # no start needs it

        for worker in self.alive.values():
            if worker.attempt == attempt and shielded(worker.directory / DRAIN):
                announce_drain_end(worker.directory / DRAIN)

    def forward(self, number: int, *, who_handles: bool = False) -> int:
        """Forward a signal to every worker unchanged; returns how many got it. `who_handles`: only those that handle
        it."""
        got = 0
        for worker in self.alive.values():
            if who_handles and number not in handlers(worker.process.pid)[0]:
                continue
            try:
                signal.pidfd_send_signal(worker.process.pidfd, number)
                got += 1
            except ProcessLookupError:
                pass  # it has ended; its pidfd tells
        return got

    def pids(self) -> dict[int, int]:
        """Rank → pid of the live workers."""
        return {rank: worker.process.pid for rank, worker in self.alive.items()}

    def rank_of(self, pid: int) -> int | None:
        """The rank whose process this is, or was in this attempt."""
        if pid in self._gone:
            return self._gone[pid]
        return next((rank for rank, top in self.pids().items() if pid == top or pid in descendants(top)), None)
