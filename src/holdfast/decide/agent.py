"""The agent: it owns one node's processes and obeys the present owner.

Pure like the gang: commands of the owner and facts about processes come in, instructions go out. On one machine it runs
in the supervisor's process; with several machines each node runs one. It is safe to lose messages, owners and agents:

- it ignores commands of an earlier owner (a lower term);
- it ignores commands for attempts older than its present one, for attempts that the owner has ended, and for attempts
  whose stop it has recorded;
- a worker starts once per attempt, and only while the lease holds;
- the lease counts from when the acknowledged heartbeat was *sent*; when it ends, the agent kills its processes;
- it reports an attempt as stopped only when the last process is reaped.
"""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals
from typing import assert_never

from holdfast.decide.attempt_timers import soonest
from holdfast.decide.node_workers import NodeWorkers
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import ALIVE, Ack, Command, Go, MemberState, Prepare, Report, Stop
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


class Lease:
    """One agent's lease. It counts from when the acknowledged heartbeat was sent, by the agent's clock."""

    def __init__(self, length_s: float | None) -> None:
        """`length_s`: seconds; None: the owner and the agent share a process, so the lease never ends."""
        self.length_s = length_s
        self.until = float("inf") if length_s is None else float("-inf")
        #: When this agent sent its first heartbeat.
        self.first_sent: float | None = None

    def spoke(self, now: float) -> None:
        if self.first_sent is None:
            self.first_sent = now

    def is_over(self, now: float) -> bool:
        return now >= self.until

    def renew(self, ack: Ack, now: float) -> None:
        """Renew the lease, because an acknowledgement arrived at `now`."""
        if self.length_s is None or self.first_sent is None or not self.first_sent <= ack.sent <= now:
            # An earlier agent of this node sent this heartbeat, so the acknowledgement does not extend the present
            # agent's lease.
            return
        # Count from the sending time. The owner counts from the arrival of the heartbeat, which is later, so the
        # agent's lease ends first.
        self.until = max(self.until, ack.sent + self.length_s)


SIGTERM = int(Signals.SIGTERM)


class AgentStop:
    """The agent's plan for the stop of its present attempt: which signal it sends at which time.

    Times are seconds on the agent's clock.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.grace_s = 0.0
        #: The signal that asks the workers to exit; SIGKILL follows later.
        self.signal = SIGTERM
        self.reset()

    def reset(self) -> None:
        """Clear the plan of the stop, because another attempt begins."""
        #: Whether the agent has recorded the stop. After that a worker's exit counts as stopped, not as failed.
        self.intended = False
        self.killed = False
        #: Seconds until the agent sends the first signal to processes that exited workers left running; None: it sends
        #: the signal at once.
        self.leftover_s: float | None = None
        #: When to send SIGKILL; None: no SIGKILL is planned.
        self.kill_at: float | None = None
        #: When to send the first signal; None: no signal is planned. Until then the workers that registered for a
        #: notice may save a checkpoint.
        self.term_at: float | None = None
        #: The live ranks that registered for a notice, and may save until `term_at`; None: not known yet.
        self.listening: set[int] | None = None
        #: When to send SIGTERM, if the first signal was another one (such as SIGUSR1); None: no SIGTERM is planned.
        self.again_at: float | None = None

    def reaped(self) -> None:
        """Cancel all planned signals, because the attempt's last process has ended."""
        self.kill_at = self.term_at = self.again_at = None

    def kill_now(self, reason: str, now: float) -> None:
        """Plan SIGKILL for now, without a grace period. `reason`: why, for the report."""
        self.reason = reason
        self.kill_at, self.term_at, self.again_at = now, None, None

    def kill_by(self, at: float) -> None:
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)

    def asked(self, now: float) -> None:
        """Record that the workers get the first signal now. Plan the later signals."""
        self.term_at = None
        self.kill_by(now + self.grace_s)
        self.again_at = None if self.signal == SIGTERM else now + self.grace_s / 2

    def has_left(self, rank: int) -> None:
        if self.listening is not None:
            self.listening.discard(rank)

    @property
    def waits_in_vain(self) -> bool:
        """Whether the stop can go on at once: every worker that registered for a notice has exited, so no worker is
        saving.
        """
        return self.term_at is not None and self.listening is not None and not self.listening


class Agent:
    """One node's agent.

    `boot`: a number that rises with each start of the agent. `lease_s`: seconds; None: the owner and the agent share a
    process, so the agent sends no heartbeats. `beat_s`: seconds between heartbeats. `lease`, `workers`, `stopping`: the
    classes of the agent's parts; tests replace them.
    """

    def __init__(
        self,
        node: str,
        boot: int,
        *,
        lease_s: float | None = None,
        beat_s: float = 5.0,
        lease: Callable[[float | None], Lease] = Lease,
        workers: Callable[[], NodeWorkers] = NodeWorkers,
        stopping: Callable[[], AgentStop] = AgentStop,
    ) -> None:
        self.node = node
        self.boot = boot
        self.attempt = 0
        #: The newest attempt that has ended on this node: it has no process left, and older attempts have none either.
        self.stopped = 0
        self.floor = 0
        #: The highest owner term in any command so far. The term rises with each restart of the owner.
        self.term = 0
        #: The highest attempt that the agent has recorded as stopped. It never prepares this attempt again.
        self.remembered = 0
        self.next_beat = float("-inf")
        self.lease = lease(lease_s)
        self.workers = workers()
        self.stopping = stopping()
        self._beat_s = beat_s
        self._out: list[Instruction] = []

    # ------------------------------------------------------------------------ methods that take inputs

    def obey(self, command: Command, now: float) -> list[Instruction]:
        """Obey a command of the owner, or ignore it if it is obsolete.

        The agent answers every command except `Ack` with a report.
        """
        if command.term < self.term:
            # Ignore commands of an earlier owner, because the same attempt number may mean another attempt now.
            if not isinstance(command, Ack):
                self._report(now)
            return self._take()
        self.term = command.term
        match command:
            case Prepare():
                self._prepare(command, now)
            case Go():
                self._go(command)
            case Stop():
                self._stop(command, now)
            case Ack():
                self._renew(command, now)
                return self._take()
            case _:
                assert_never(command)
        self._report(now)
        return self._take()

    def learn(self, fact: Fact, now: float) -> list[Instruction]:
        """Handle a fact about a process of this node, such as its exit."""
        match fact:
            case WorkerPrepared() if fact.attempt == self.attempt:
                self.workers.prepared(fact.rank, warm=fact.warm)
            case WorkerUp() if fact.attempt == self.attempt:
                self.workers.become(fact.rank, MemberState.GOING, MemberState.UP)
            case WorkerExited() if fact.exit.attempt == self.attempt:
                self._exited(fact.exit, now)
            case WorkerStartFailed() if fact.attempt == self.attempt:
                self.workers.failed_to_start(fact.rank, fact.reason, now, intended=self.stopping.intended)
            case WorkersNotified() if fact.attempt == self.attempt:
                self.workers.notified(fact.listening)
                if self.stopping.term_at is not None:
                    self.stopping.listening = {rank for rank in fact.listening if self.state(rank) in ALIVE}
                    self._look(now)
            case WorkerPrepared() | WorkerUp() | WorkerExited() | WorkerStartFailed() | WorkersNotified():
                pass  # ignore a fact about an attempt before the present one
            case AllReaped():
                self._reaped(fact.attempt)
            case _:
                assert_never(fact)
        self._report(now)
        return self._take()

    def tick(self, now: float) -> list[Instruction]:
        """Act at `now`: the lease or a grace period has ended, or a heartbeat is due."""
        stopping = self.stopping
        if self.lease.is_over(now) and not stopping.killed and self.workers.alive():
            self._end(f"no word from the owner for {self.lease.length_s:g} s: the lease is over", now)
        if stopping.term_at is not None and now >= stopping.term_at:
            self._terminate(now)
        if stopping.kill_at is not None and now >= stopping.kill_at:
            stopping.killed = True
            stopping.kill_at = stopping.again_at = None
            self._out.append(SignalWorkers(attempt=self.attempt, hard=True, reason=stopping.reason))
        if stopping.again_at is not None and now >= stopping.again_at:
            stopping.again_at = None
            self._out.append(
                SignalWorkers(attempt=self.attempt, hard=False, reason=stopping.reason, leftover_s=stopping.leftover_s)
            )
        if self.lease.length_s is not None and now >= self.next_beat:
            self._report(now)
        return self._take()

    def next_wake(self) -> float | None:
        """Return when `tick` is due, in seconds on the clock of `now`; None: nothing is due until an input comes."""
        stopping = self.stopping
        wakes = [stopping.kill_at, stopping.term_at, stopping.again_at]
        if self.lease.length_s is not None:
            wakes.append(self.next_beat)
            if self.workers.alive() and not stopping.killed:
                wakes.append(self.lease.until)
        return soonest(wakes)

    def state(self, rank: int) -> MemberState:
        return self.workers.state(rank)

    # --------------------------------------------------------------------- handling the owner's commands

    def _prepare(self, command: Prepare, now: float) -> None:
        attempt = command.attempt
        if attempt < self.attempt or attempt <= max(self.floor, self.remembered) or self.lease.is_over(now):
            return
        if attempt > self.attempt:
            if self.workers.alive() or (self.attempt > self.stopped and self.workers.slots):
                # Only one attempt may run on a node, so end the old one first. The owner repeats PREPARE until the
                # agent obeys it.
                self._end(f"attempt {attempt} has begun", now)
                return
            self._enter(attempt)
            shape, meeting, peers = command.shape, command.meeting, command.peers
            for placement in command.placements:
                if placement.node == self.node:
                    self.workers.add(placement)
                    self._out.append(
                        StartWorker(attempt=attempt, placement=placement, shape=shape, meeting=meeting, peers=peers)
                    )

    def _go(self, command: Go) -> None:
        if command.attempt != self.attempt or command.attempt <= max(self.floor, self.remembered):
            return
        for rank in self.workers.slots:
            if self.workers.become(rank, MemberState.PREPARED, MemberState.GOING):
                self._out.append(ReleaseWorker(attempt=self.attempt, rank=rank))

    def _stop(self, command: Stop, now: float) -> None:
        if command.attempt < self.attempt or command.attempt <= self.stopped:
            return
        self.remembered = max(self.remembered, command.attempt)
        if self.attempt <= self.stopped or not self.workers.slots:
            # No process of the job runs on this node, so the attempt is stopped already.
            self._enter(max(command.attempt, self.attempt))
            self.stopped = self.attempt
            return
        stopping, wait_s = self.stopping, command.save_s + command.hold_s
        term_at, kill_at = now + wait_s, now + wait_s + command.grace_s
        if command.within_s is not None:
            kill_at = min(kill_at, now + command.within_s)
        stopping.grace_s, stopping.signal = command.grace_s, command.signal
        sooner = stopping.leftover_s is not None and command.leftover_s is None
        stopping.leftover_s = command.leftover_s
        if not stopping.intended:
            stopping.reason = command.reason
            self._intend()
            stopping.kill_at, stopping.term_at = kill_at, term_at
            if command.save_s > 0:
                stopping.listening = None
                notice = NotifyWorkers(attempt=self.attempt, reason=command.reason, save_s=command.save_s)
                self._out.append(notice)
            elif wait_s <= 0:
                self._terminate(now)
            return
        if stopping.kill_at is not None:
            stopping.kill_by(kill_at)
        if stopping.term_at is not None and term_at < stopping.term_at:
            stopping.term_at = term_at
            if wait_s <= 0:
                self._terminate(now)
        elif sooner and stopping.term_at is None and not stopping.killed:
            self._out.append(SignalWorkers(attempt=self.attempt, hard=False, reason=command.reason))

    def _terminate(self, now: float) -> None:
        """Send the first signal to the workers, because the time to save is over or no worker is saving."""
        stopping = self.stopping
        stopping.asked(now)
        order = SignalWorkers(
            attempt=self.attempt,
            hard=False,
            reason=stopping.reason,
            signal=stopping.signal,
            leftover_s=stopping.leftover_s,
        )
        self._out.append(order)

    def _look(self, now: float) -> None:
        if self.stopping.waits_in_vain:
            self._terminate(now)

    def _renew(self, ack: Ack, now: float) -> None:
        self.floor = max(self.floor, ack.floor)
        if self.attempt <= self.floor and self.workers.alive():
            self._end(f"attempt {self.attempt} is over for the owner", now)
        self.lease.renew(ack, now)

    # ----------------------------------------------------------------- handling facts about processes

    def _exited(self, ended: WorkerExit, now: float) -> None:
        if self.state(ended.rank) not in ALIVE:
            return
        self.workers.exited(ended, now, intended=self.stopping.intended)
        self.stopping.has_left(ended.rank)
        self._look(now)

    def _reaped(self, attempt: int) -> None:
        if attempt != self.attempt or not self.stopping.intended:
            return
        self.workers.reaped()
        self.stopped = max(self.stopped, attempt)
        self.stopping.reaped()

    # ---------------------------------------------------------------------------------- internal methods

    def _enter(self, attempt: int) -> None:
        self.attempt = attempt
        self.workers.reset()
        self.stopping.reset()

    def _end(self, reason: str, now: float) -> None:
        """Kill all live processes at once. Only the owner may grant a grace period."""
        if not self.stopping.killed:
            self._intend()
            self.stopping.kill_now(reason, now)

    def _intend(self) -> None:
        self.stopping.intended = True
        self.remembered = max(self.remembered, self.attempt)

    def _report(self, now: float) -> None:
        self.next_beat = now + self._beat_s
        self.lease.spoke(now)
        report = Report(
            node=self.node,
            boot=self.boot,
            attempt=self.attempt,
            stopped=self.stopped,
            sent=now,
            members=self.workers.members(now),
            term=self.term,
        )
        self._out.append(SendReport(report=report))

    def _take(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out
