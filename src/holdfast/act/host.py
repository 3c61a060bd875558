"""A host runs processes on one machine: it performs an agent's instructions, and reports facts about the processes.

The supervisor is a subreaper, so every process of the job stays its descendant, in any session. The kernel reports
exits on pidfds in the order in which they happened.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, assert_never

from msgspec.structs import replace

from holdfast import children
from holdfast.act.leftovers import Leftovers
from holdfast.act.linux import children as children_of
from holdfast.act.linux import descendants
from holdfast.act.process_limits import limits_of
from holdfast.act.rendezvous_ports import Holder, RolePorts, ports_of
from holdfast.act.spawn import READY
from holdfast.act.termination import ALREADY_TOLD, Termination, kill
from holdfast.act.worker_config import WorkerConfig
from holdfast.act.worker_starts import Groups, HeadStart, Nurseries, Started, Starts, head_start_s, ticket_of
from holdfast.act.workers import Output, Worker, Workers
from holdfast.errors import BadUsage
from holdfast.model.gang_protocol import Meeting
from holdfast.model.job_spec import Placement, shapes
from holdfast.model.process_messages import (
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
from holdfast.reactor import CallbackPriority, Reactor


class Host(Protocol):
    """Performs an agent's instructions on its machine."""

    def perform(self, instruction: Instruction, now: float) -> list[Fact]:
        """Start, release, notify, signal or stop workers. Return the facts that are known at once. An instruction can
        be repeated safely.
        """
        ...

    def processes(self) -> list[int]:
        """Return the pid of every process of the job on this machine, descendants included."""
        ...


class LocalHost:
    """Runs workers as children of this process.

    `learn`: gets the later facts about processes, with their time.
    """

    def __init__(
        self,
        setting: WorkerConfig,
        reactor: Reactor,
        output: Output,
        learn: Callable[[list[Fact], float], None],
        *,
        groups: Groups | None = None,
        warm: Nurseries | None = None,
        store: Holder | None = None,
    ) -> None:
        """Create a host without workers.

        `setting`: the configuration of the workers. `reactor`: waits for processes and pipes. `output`: stores the
        workers' output. `learn`: gets the facts that are not known at once. `groups`: makes control groups, if the
        machine allows any. `warm`: starts workers warm; None for cold starts only. `store`: hosts the rendezvous store;
        None if rank 0 hosts it.
        """
        self._setting = setting
        self._reactor = reactor
        self._learn = learn
        self._output = output
        self._groups = groups
        self._starts = Starts(warm, self._started)
        self._head_start = HeadStart(head_start_s(warm=warm is not None))
        self.workers = Workers()
        self._ports = ports_of(setting, store)
        self.ports = RolePorts(setting, self._ports)
        self._order = 0
        self._stopping: SignalWorkers | None = None
        self._leaving = Termination()
        #: The processes that ended ranks of the present attempt have left running.
        self.leftovers = Leftovers()
        self._mute = 0

    # ------------------------------------------------------------------ methods that carry out the agent's instructions

    def perform(self, instruction: Instruction, now: float) -> list[Fact]:
        """Perform an instruction. Return the facts that are known at once. `SendReport` is ignored, because another
        class handles it.
        """
        match instruction:
            case StartWorker():
                return self._start(instruction, now)
            case ReleaseWorker():
                return self._release(instruction, now)
            case NotifyWorkers():
                return [WorkersNotified(attempt=instruction.attempt, listening=self.workers.notify(instruction, now))]
            case SignalWorkers():
                self._stopping = instruction
                self._output.stopping(instruction.reason, now)
                self._starts.cancel()
                self._head_start.clear()
                if not instruction.hard:
                    self.leftovers.allow(instruction.leftover_s)
                self._signal(instruction, now)
                return list(self._emptied(now))
            case SendReport():
                return []
            case _:
                assert_never(instruction)

    def _start(self, order: StartWorker, now: float) -> list[Fact]:
        self._stopping = None
        if order.attempt != self.workers.attempt:
            self.leftovers.begin_anew()
        self._leaving.begin_anew()
        self.workers.begin(order.attempt)
        directory = self._setting.directory_for(order.attempt, order.placement)
        try:
            ticket = ticket_of(order, self._setting, self._groups, self._environment(order, directory), directory)
        except (OSError, BadUsage) as error:
            reason = error.message if isinstance(error, BadUsage) else f"no process could be made: {error}"
            return [WorkerStartFailed(attempt=order.attempt, rank=order.placement.rank, reason=reason)]
        return self._watch(self._starts.ask(ticket, now), now)

    def _watch(self, started: list[Started], now: float) -> list[Fact]:
        """Watch the workers that now have a process. Return a `WorkerStartFailed` for each worker that has none."""
        facts: list[Fact] = []
        for one in started:
            ticket, process = one.ticket, one.process
            if process is None:
                ticket.close()
                facts.append(WorkerStartFailed(attempt=ticket.attempt, rank=ticket.placement.rank, reason=one.error))
                continue
            os.close(ticket.out[1])
            os.close(ticket.err[1])
            worker = self.workers.add(ticket, process, now, warm=one.warm)
            self._reactor.watch(process.status_fd, partial(self._on_readable, worker), turn=CallbackPriority.DEATH)
            self._reactor.watch(process.pidfd, partial(self._died, worker), turn=CallbackPriority.DEATH)
            self._output.add(ticket.placement, ticket.out[0], ticket.err[0], ticket.directory)
        return facts

    def warm_up(self, placements: Sequence[Placement], now: float) -> None:
        """Let prewarmed processes do the imports of the first attempt's workers while the attempt's checks run."""
        for role in self._setting.spec.roles:
            placement = next(placement for placement in placements if placement.role == role.name)
            order = StartWorker(attempt=1, placement=placement, shape=shapes(placements)[placement.node])
            env = self._environment(order, self._setting.directory(1, placement))
            self._starts.begin(role.command, env, self._setting.cwd, now)

    def heard_by(self, learn: Callable[[list[Fact], float], None]) -> None:
        """Set the function that gets the later facts about processes."""
        self._learn = learn

    def environment(self, order: StartWorker) -> dict[str, str]:
        """Return the environment of a worker's process."""
        return self._environment(order, self._setting.directory(order.attempt, order.placement))

    def _environment(self, order: StartWorker, directory: Path) -> dict[str, str]:
        env = self._setting.environment_of(order, directory, order.meeting or self.meet(order.attempt))
        return env if order.peers is None else self.ports.tell(env, order, order.peers)

    def meet(self, attempt: int) -> Meeting:
        """Return the rendezvous address of an attempt whose rank 0 runs on this node. Repeated calls return the same
        address.
        """
        port = self._ports.of(attempt)
        return Meeting(address=self._setting.master_addr, port=port, served=self._ports.held(attempt))

    def _release(self, order: ReleaseWorker, now: float) -> list[Fact]:
        self._starts.released(now)
        self._ports.let_go()
        worker = self.workers.alive.get(order.rank)
        if worker is None or worker.attempt != order.attempt:
            return []
        if (
            0 not in self.workers.alive
            or self._ports.held(order.attempt)
            or not self._head_start.holds(order.rank, now)
        ):
            self._let_go(worker)
        return []

    def _let_go(self, worker: Worker) -> None:
        self.ports.let_go(worker.placement)
        try:
            os.write(worker.process.go_fd, b"g")
        except BrokenPipeError:
            pass  # ignore the error: the worker has died, and its pidfd reports that

    # --------------------------------------------------------------------------- methods that report facts to the agent

    def _started(self, started: list[Started], now: float) -> None:
        self._learn([*self._watch(started, now), *self._emptied(now)], now)

    def _on_readable(self, worker: Worker, fd: int, now: float) -> None:
        self._learn(self._said(worker, now), now)

    def _died(self, worker: Worker, fd: int, now: float) -> None:
        self._learn(self._ended(worker, now), now)

    def _said(self, worker: Worker, now: float) -> list[Fact]:
        """Read the status pipe. `+`: the process is prepared. End of file: the program runs. Other text: the start has
        failed.
        """
        data = os.read(worker.process.status_fd, 4096)
        rank, attempt = worker.placement.rank, worker.attempt
        if data:
            fresh = data.startswith(READY) and not worker.said
            worker.said += data
            pid, warm = worker.process.pid, worker.warm
            return [WorkerPrepared(attempt=attempt, rank=rank, pid=pid, warm=warm)] if fresh else []
        self._close_status(worker)
        if worker.start_error:
            return [WorkerStartFailed(attempt=attempt, rank=rank, reason=worker.start_error)]
        if rank == 0:
            self._head_start.first_is_up(now)
        return [WorkerUp(attempt=attempt, rank=rank)] if worker.said else []

    def _close_status(self, worker: Worker) -> None:
        if worker.status_open:
            worker.status_open = False
            worker.keep_environment()
            self._forget(worker.process.status_fd)

    def _forget(self, fd: int) -> None:
        self._reactor.forget(fd)
        os.close(fd)

    def _ended(self, worker: Worker, now: float) -> list[Fact]:
        """Handle the exit of a worker. Report its start first, then its exit."""
        facts = self._said(worker, now) if worker.status_open else []
        if worker.status_open:
            facts += self._said(worker, now)
        info = os.waitid(os.P_PIDFD, worker.process.pidfd, os.WEXITED | os.WNOWAIT)
        failed = info is not None and (info.si_code, info.si_status) != (os.CLD_EXITED, 0)
        limits = limits_of(worker.process.pid) if failed else ()
        usage = os.wait4(worker.process.pid, 0)[2]
        self._close_status(worker)
        self._forget(worker.process.pidfd)
        os.close(worker.process.go_fd)
        self.workers.remove(worker)
        if self._stopping is None:
            self.workers.note_dying(now)
        self._output.drain(worker.placement.rank, now)
        self._order += 1
        ended = worker.exit(info, self._order, self._output, now)
        if limits:
            ended = replace(ended, limits=limits, cpu_s=usage.ru_utime + usage.ru_stime)
        self._output.ended(ended, now)
        self.leftovers.rank_ended(ended.rank, worker.directory, now, ok=ended.ok)
        if self._stopping is None and not ended.ok and self._setting.spec.restarts.max_restarts:
            self._starts.lost(now)
        return [*facts, WorkerExited(exit=ended), *self._emptied(now)]

    def reap(self, now: float) -> None:
        """Handle SIGCHLD by reaping orphans. Pidfds report the exits of workers."""
        self._starts.rouse()
        self.workers.reap_others(self._tops())
        self._learn(list(self._emptied(now)), now)

    # ----------------------------------------------------------------------------------- methods that check time limits

    def next_wake(self) -> float | None:
        """Return when `tick` is due: at a time limit of a prewarmed process, at the start of the ranks that wait for
        rank 0, or at the signal to a leftover process. None if nothing is due.
        """
        left = self.leftovers.next_wake() if self._asks_leftovers else None
        wakes = (self._starts.next_wake(), self._head_start.next_wake(), left)
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> None:
        """Let the ranks run that waited for rank 0, check the time limits of prewarmed processes, and signal leftover
        processes.
        """
        for rank in self._head_start.take(now):
            if rank in self.workers.alive:
                self._let_go(self.workers.alive[rank])
        facts = self._watch(self._starts.tick(now), now)
        if self._asks_leftovers:
            facts += self._emptied(now)
        self._learn(facts, now)

    # -------------------------------------------------------------------------- methods that end the workers' processes

    @property
    def _asks_leftovers(self) -> bool:
        return self._stopping is not None and not self._stopping.hard

    def _signal(self, order: SignalWorkers, now: float) -> None:
        if order.hard:
            processes = self.processes()
            self.leftovers.kill(processes, now)
            kill(processes)
            return
        mute = [worker for worker in self.workers.alive.values() if worker.attempt == self._mute]
        for worker in mute:
            self._output.hush(worker.placement.rank)
        shielded = self.workers.shielded(order.attempt)
        pids = {worker.process.pid: worker.process.pid in shielded for worker in mute}
        if order.signal in (ALREADY_TOLD, signal.SIGTERM) and shielded.difference(pids):
            self.workers.unshield(order.attempt)
        # Do not signal leftover processes yet, unless a signal from outside has reached every process of the job.
        ranks = self.workers.pids().values()
        tops = [pid for pid in self._tops() if order.signal == ALREADY_TOLD or pid in ranks]
        self._leaving.ask(order.signal, tops, pids)

    def _tops(self) -> list[int]:
        """Return the direct children of this process that belong to the job: workers and adopted orphans."""
        helpers = children.helpers()
        return [pid for pid in children_of(os.getpid()) if pid not in helpers]

    def _emptied(self, now: float) -> Iterator[Fact]:
        """Yield `AllReaped` when a stopped attempt has no process left. Until then, signal each process whose time
        limit has passed.
        """
        if self._stopping is None:
            return
        if tops := self._tops():
            if self._stopping.hard:
                # signal again, because a dying process may have forked before it got the signal
                self._signal(self._stopping, now)
            else:
                ranks = self.workers.pids().values()
                self.leftovers.forget(tops)
                left = self._leaving.unasked(pid for pid in tops if pid not in ranks)
                self._leaving.ask_left_behind(self.leftovers.take_due(left, self.processes, now))
            return
        for rank in self.workers.ended():
            self._output.finish(rank, now)
        stopping, self._stopping = self._stopping, None
        yield AllReaped(attempt=stopping.attempt)

    # ------------------------------------------------------------------------ methods that other parts of the node call

    def resized(self) -> None:
        """Apply the new size of the user's terminal to the worker's pseudo-terminal."""
        if self._setting.streams.resized():
            self.workers.forward(signal.SIGWINCH)

    def want_last_words(self, attempt: int) -> None:
        """Make this attempt's workers write their stacks when they are stopped, because no tool can read the stacks."""
        self._mute = attempt

    def processes(self) -> list[int]:
        """Return the pid of every process of the job on this machine, descendants included."""
        return descendants(os.getpid(), children.helpers())
