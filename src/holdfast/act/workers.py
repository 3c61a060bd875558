"""Keeps track of the live and ended workers of one machine, and signals or notifies them.

A worker that must end soon gets a notice, so that it can save and exit. There are two ways, and neither harms a program
that ignores them. First: a worker registers for the notice by creating the file at the path in HOLDFAST_DRAIN, and
holdfast writes one line of JSON into the file. Second: SIGUSR2, which holdfast sends only to a process with a handler
for it, because the default action would end the process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.act.linux import descendants, handlers, is_dying
from holdfast.act.spawn import READY, Spawned
from holdfast.act.worker_environment import DRAIN, keep_environment
from holdfast.act.worker_starts import Ticket
from holdfast.model.exit_report import TRAVELLING_BYTES, WorkerExit
from holdfast.model.job_spec import Placement
from holdfast.model.process_messages import NotifyWorkers
from holdfast.safe_files import write_file

_NOTICE = signal.SIGUSR2


class Output(Protocol):
    """Reads and stores the workers' output."""

    def add(self, placement: Placement, stdout_fd: int, stderr_fd: int, directory: Path) -> None:
        """Read a new worker's output from the two fds, into files in `directory`."""
        ...

    def drain(self, rank: int, now: float) -> None:
        """Read the rest that the pipes of an ended worker contain."""
        ...

    def ended(self, ended: WorkerExit, now: float) -> None:
        """Record the worker's exit, and close its pipes, unless another process has them open."""
        ...

    def stopping(self, reason: str, now: float) -> None:
        """Record that the workers are asked to exit, for this reason."""
        ...

    def finish(self, rank: int, now: float) -> None:
        """Read the rest of a worker's output, and close its files. Call this when no process of the attempt is left."""
        ...

    def tail(self, rank: int, limit_bytes: int) -> str:
        """Return the end of the worker's output, from the stream of `tail_stream`."""
        ...

    def tail_stream(self, rank: int) -> str:
        """Return `stderr` or `stdout`, or "" if the worker wrote nothing."""
        ...

    def hush(self, rank: int) -> None:
        """Do not show the worker's stacks on the terminal, because holdfast requested them."""
        ...


#: Python's exit status after an uncaught exception.
PYTHON_EXCEPTION = 1


class Worker(msgspec.Struct):
    """One worker and its process."""

    placement: Placement
    attempt: int
    process: Spawned
    directory: Path
    started_at: float
    env: Mapping[str, str]
    warm: bool = False
    #: The bytes read from the worker's status pipe.
    said: bytes = b""
    status_open: bool = True
    #: When holdfast saw the worker dying, before the kernel reported its exit; None if it did not see that.
    dying_at: float | None = None
    #: Seconds from the failure of the worker's program with an exception until holdfast ended the worker; None if
    #: holdfast did not end it.
    unended_s: float | None = None

    @property
    def start_error(self) -> str:
        """Return the error that prevented the worker's start, or "" if there was none."""
        return self.said.removeprefix(READY).decode(errors="replace")

    def keep_environment(self) -> None:
        """Write the worker's environment to disk. Call this after the worker's start, because the disk may be slow."""
        keep_environment(self.env, self.directory)

    def exit(self, info: os.waitid_result | None, order: int, output: Output, now: float) -> WorkerExit:
        """Return the worker's exit. `info`: the result of waitid. `order`: how many workers of this machine have exited
        so far. `output`: the workers' output; its end becomes part of the result.
        """
        exited = info is not None and info.si_code == os.CLD_EXITED
        status = info.si_status if info is not None else None
        if self.unended_s is not None and not exited:
            # The program had ended with an exception before holdfast sent the signal. So report Python's status for an
            # exception.
            exited, status = True, PYTHON_EXCEPTION
        rank = self.placement.rank
        return WorkerExit(
            role=self.placement.role,
            rank=rank,
            node=self.placement.node,
            attempt=self.attempt,
            pid=self.process.pid,
            local_rank=self.placement.local_rank,
            exit_code=status if exited else None,
            signal=None if exited else status,
            core_dumped=info is not None and info.si_code == os.CLD_DUMPED,
            started_at=self.started_at,
            ended_at=now if self.dying_at is None else self.dying_at,
            order=order,
            was_dying=self.dying_at is not None,
            unended_s=self.unended_s,
            last_words=output.tail(rank, TRAVELLING_BYTES) if not exited or status else "",
            last_words_stream=output.tail_stream(rank),
        )


class Workers:
    """The workers of one attempt, by rank."""

    def __init__(self) -> None:
        self.alive: dict[int, Worker] = {}
        self.attempt = 0
        #: Pid → rank of this attempt's ended workers.
        self._gone: dict[int, int] = {}

    def begin(self, attempt: int) -> None:
        """Begin this attempt: forget the ended workers of an earlier attempt."""
        if attempt != self.attempt:
            self.attempt, self._gone = attempt, {}

    def add(self, ticket: Ticket, process: Spawned, now: float, *, warm: bool = False) -> Worker:
        """Add a worker whose process exists now. `warm`: the process was forked from a prewarmed process. `now`: the
        time of the start."""
        worker = Worker(ticket.placement, ticket.attempt, process, ticket.directory, now, ticket.env, warm)
        self.alive[ticket.placement.rank] = worker
        return worker

    def remove(self, worker: Worker) -> None:
        """Move an ended worker from the live to the ended workers."""
        del self.alive[worker.placement.rank]
        self._gone[worker.process.pid] = worker.placement.rank

    def note_dying(self, now: float) -> None:
        """Record which workers are already dying when another worker exits. The stop that may follow has not killed
        them.
        """
        # A dying worker may be the cause, because the kernel frees its memory first and reports its exit late.
        for other in self.alive.values():
            if other.dying_at is None and is_dying(other.process.pid):
                other.dying_at = now

    def reap_others(self, pids: Iterable[int]) -> None:
        """Reap the exited children among `pids` that are not workers."""
        known = {worker.process.pid for worker in self.alive.values()}
        for pid in pids:
            if pid not in known:
                try:
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
                except ChildProcessError:
                    pass  # ignore a child that has been reaped already

    def notify(self, order: NotifyWorkers, now: float) -> tuple[int, ...]:
        """Notify every worker of the attempt to save and exit (a drain notice). Return the ranks that can receive the
        notice.
        """
        notice = {"reason": order.reason, "seconds": order.save_s, "until": now + order.save_s}
        workers = [worker for worker in self.alive.values() if worker.attempt == order.attempt]
        return tuple(w.placement.rank for w in workers if _notify_draining(w.directory / DRAIN, w.process.pid, notice))

    def shielded(self, attempt: int) -> frozenset[int]:
        """Return the pids of the shielded workers: they catch SIGTERM only for their drain notice."""
        workers = [worker for worker in self.alive.values() if worker.attempt == attempt]
        return frozenset(w.process.pid for w in workers if _shielded(w.directory / DRAIN))

    def unshield(self, attempt: int) -> None:
        """Let the shielded workers (those that catch SIGTERM only for their drain notice) exit at the next SIGTERM,
        because the attempt is being stopped.
        """
        for worker in self.alive.values():
            if worker.attempt == attempt and _shielded(worker.directory / DRAIN):
                _announce_drain_end(worker.directory / DRAIN)

    def forward(self, number: int, *, who_handles: bool = False) -> int:
        """Send a signal to every worker, and return how many got it. `who_handles`: only to workers with a handler for
        it. `number`: the signal.
        """
        got = 0
        for worker in self.alive.values():
            if who_handles and number not in handlers(worker.process.pid)[0]:
                continue
            try:
                signal.pidfd_send_signal(worker.process.pidfd, number)
                got += 1
            except ProcessLookupError:
                pass  # ignore the error: the worker has exited, and its pidfd reports that
        return got

    def pids(self) -> dict[int, int]:
        """Return rank → pid of the live workers."""
        return {rank: worker.process.pid for rank, worker in self.alive.items()}

    def ended(self) -> list[int]:
        """Return the ranks of this attempt's workers that have ended."""
        return list(self._gone.values())

    def rank_of(self, pid: int) -> int | None:
        """Return the rank of the worker with the process `pid` or with a descendant `pid`. Ended workers of this
        attempt count too.
        """
        if pid in self._gone:
            return self._gone[pid]
        return next((rank for rank, top in self.pids().items() if pid == top or pid in descendants(top)), None)


def _notify_draining(file: Path, pid: int, notice: Mapping[str, object]) -> bool:
    """Notify a worker. Return whether it can receive the notice: its file exists, or it handles SIGUSR2."""
    asked = file.exists()
    fresh = file.with_name(f".{file.name}.new")
    try:
        write_file(fresh, msgspec.json.encode(notice) + b"\n")
        fresh.replace(file)  # rename the file into place, so that a reader sees a whole line
    except OSError:
        asked = False  # the disk is full, so the worker cannot receive the notice by the file
    if _NOTICE not in handlers(pid)[0]:
        return asked
    try:
        os.kill(pid, _NOTICE)
    except ProcessLookupError:
        return False
    return True


def _shielded(file: Path) -> bool:
    """Return whether the worker catches SIGTERM only for its drain notice (`holdfast.on_drain`), and saves nothing on
    SIGTERM.
    """
    return file.with_name(f"{file.name}.shielded").exists()


def _announce_drain_end(file: Path) -> None:
    """Write the file that makes a shielded worker exit on the next SIGTERM. `file`: the worker's drain file."""
    fresh = file.with_name(f".{file.name}.leave")
    try:
        write_file(fresh, b"")
        fresh.replace(file.with_name(f"{file.name}.leave"))
    except OSError:
        pass  # ignore a full disk: SIGKILL ends the worker later
