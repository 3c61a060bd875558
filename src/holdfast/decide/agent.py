"""The agent: owns one node's processes and obeys the owner, but only the owner of *now*.

Pure like the gang: commands and process facts in, instructions out, `now` passed in. On one machine it lives in the
supervisor's process; across machines each node runs one. What makes it safe to lose messages, owners and agents:

- it ignores commands of an owner of before (a lower term);
- it ignores commands for attempts below its own, at or below the floor, or already stopped (it remembers);
- a process starts once an attempt, and only while the lease holds;
- the lease is counted from when the acknowledged heartbeat was *sent*; when it ends, the agent kills its own;
- it says `stopped` only when the last process is reaped.
"""

from __future__ import annotations

from signal import Signals
from typing import assert_never

import msgspec
from msgspec.structs import replace

from holdfast.model.commands import ALIVE, Ack, Command, Go, Member, MemberState, Prepare, Report, Stop
from holdfast.model.exits import WorkerExit
from holdfast.model.jobs import Seat
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

_SIGTERM = int(Signals.SIGTERM)


class _Mine(msgspec.Struct):
    """One worker of this node in the agent's attempt."""

    seat: Seat
    state: MemberState = MemberState.BOOTING
    exit: WorkerExit | None = None
    ended_at: float = 0.0
    start_failed: str = ""


class Agent:
    """One node's agent.

    `lease_s`: None where owner and agent share a process and die together; then there are no heartbeats either.
    `boot`: any number that rises with each start of the agent.
    """

    def __init__(self, node: str, boot: int, *, lease_s: float | None = None, beat_s: float = 5.0) -> None:
        self.node = node
        self.boot = boot
        self.attempt = 0
        self.stopped = 0
        """Every process of attempts up to this one is reaped."""
        self.floor = 0
        self.term = 0
        """The highest term of an owner that was heard."""
        self._lease_s = lease_s
        self._beat_s = beat_s
        self._lease_until = float("inf") if lease_s is None else float("-inf")
        self._next_beat = float("-inf")
        self._first_sent: float | None = None
        self._mine: dict[int, _Mine] = {}
        self._stop_memory = 0
        self._intent = False
        """A stop was recorded before it was carried out: exits from here on are stopped, never failed."""
        self._kill_at: float | None = None
        self._killed = False
        self._term_at: float | None = None
        """Workers that listen may save until then; nobody has been signalled yet."""
        self._listening: set[int] | None = None
        """Who is waited for until then; None: not told yet."""
        self._again_at: float | None = None
        """SIGTERM follows then: what the workers got first was another signal."""
        self._signal = _SIGTERM
        self._grace_s = 0.0
        self._reason = ""
        self._out: list[Instruction] = []

    # ------------------------------------------------------------------------------------------ the doors

    def obey(self, command: Command, now: float) -> list[Instruction]:
        """Take a command of the owner. Obsolete ones change nothing; all are answered with the present state."""
        if command.term < self.term:
            # An owner of before: its attempts may have other workers than the present one's of the same number.
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
        """Take a fact about a process of this node."""
        match fact:
            case WorkerPrepared():
                self._become(fact.attempt, fact.rank, MemberState.BOOTING, MemberState.PREPARED)
            case WorkerUp():
                self._become(fact.attempt, fact.rank, MemberState.GOING, MemberState.UP)
            case WorkerExited():
                self._exited(fact.exit, now)
            case WorkerStartFailed():
                mine = self._mine.get(fact.rank)
                if mine is not None and fact.attempt == self.attempt and mine.state in ALIVE:
                    mine.state = MemberState.STOPPED if self._intent else MemberState.FAILED
                    mine.start_failed, mine.ended_at = fact.reason, now
            case WorkersNotified():
                if fact.attempt == self.attempt and self._term_at is not None:
                    self._listening = {rank for rank in fact.listening if self.state(rank) in ALIVE}
                    self._left(now)
            case AllReaped():
                self._reaped(fact.attempt)
            case _:
                assert_never(fact)
        self._report(now)
        return self._take()

    def tick(self, now: float) -> list[Instruction]:
        """`next_wake` has come: the lease may be over, a grace time may be, or a heartbeat may be due."""
        if now >= self._lease_until and not self._killed and self._alive():
            self._end(f"no word from the owner for {self._lease_s:g} s: the lease is over", now)
        if self._term_at is not None and now >= self._term_at:
            self._terminate(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._killed = True
            self._kill_at = self._again_at = None
            self._out.append(SignalWorkers(attempt=self.attempt, hard=True, reason=self._reason))
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            self._out.append(SignalWorkers(attempt=self.attempt, hard=False, reason=self._reason))
        if self._lease_s is not None and now >= self._next_beat:
            self._report(now)
        return self._take()

    def next_wake(self) -> float | None:
        """When `tick` is due, in seconds on the clock of `now`."""
        wakes = [self._kill_at, self._term_at, self._again_at]
        if self._lease_s is not None:
            wakes.append(self._next_beat)
            if self._alive() and not self._killed:
                wakes.append(self._lease_until)
        return min((wake for wake in wakes if wake is not None), default=None)

    def state(self, rank: int) -> MemberState:
        mine = self._mine.get(rank)
        return MemberState.NONE if mine is None else mine.state

    # ------------------------------------------------------------------------------------------ commands

    def _prepare(self, command: Prepare, now: float) -> None:
        attempt = command.attempt
        if attempt < self.attempt or attempt <= max(self.floor, self._stop_memory) or now >= self._lease_until:
            return
        if attempt > self.attempt:
            if self._alive() or (self.attempt > self.stopped and self._mine):
                # One attempt at a time: end the old one first. The owner says PREPARE again until it is obeyed.
                self._end(f"attempt {attempt} has begun", now)
                return
            self._enter(attempt)
            for seat in command.seats:
                if seat.node == self.node:
                    self._mine[seat.rank] = _Mine(seat=seat)
                    self._out.append(StartWorker(attempt=attempt, seat=seat, shape=command.shape))

    def _go(self, command: Go) -> None:
        if command.attempt != self.attempt or command.attempt <= max(self.floor, self._stop_memory):
            return
        for rank, mine in self._mine.items():
            if mine.state is MemberState.PREPARED:
                mine.state = MemberState.GOING
                self._out.append(ReleaseWorker(attempt=self.attempt, rank=rank))

    def _stop(self, command: Stop, now: float) -> None:
        if command.attempt < self.attempt or command.attempt <= self.stopped:
            return
        self._stop_memory = max(self._stop_memory, command.attempt)
        if self.attempt <= self.stopped or not self._mine:
            # Nothing of an older attempt lives here, and now nothing of this one ever will.
            self._enter(max(command.attempt, self.attempt))
            self.stopped = self.attempt
            return
        wait_s = command.save_s + command.hold_s
        term_at, kill_at = now + wait_s, now + wait_s + command.grace_s
        self._grace_s, self._signal = command.grace_s, command.signal
        if not self._intent:
            self._reason = command.reason
            self._intend(self.attempt)
            self._kill_at, self._term_at = kill_at, term_at
            if command.save_s > 0:
                self._listening = None
                notice = NotifyWorkers(attempt=self.attempt, reason=command.reason, save_s=command.save_s)
                self._out.append(notice)
            elif wait_s <= 0:
                self._terminate(now)
            return
        if self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_at)
        if self._term_at is not None and term_at < self._term_at:
            self._term_at = term_at
            if wait_s <= 0:
                self._terminate(now)

    def _terminate(self, now: float) -> None:
        """Nobody has to be waited for any more: ask every process to leave."""
        self._term_at = None
        kill_at = now + self._grace_s
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        order = SignalWorkers(attempt=self.attempt, hard=False, reason=self._reason, signal=self._signal)
        self._out.append(order)
        self._again_at = None if self._signal == _SIGTERM else now + self._grace_s / 2

    def _left(self, now: float) -> None:
        """All who wanted to save have left: what is left of the time helps nobody."""
        if self._term_at is not None and self._listening is not None and not self._listening:
            self._terminate(now)

    def _renew(self, ack: Ack, now: float) -> None:
        self.floor = max(self.floor, ack.floor)
        if self.attempt <= self.floor and self._alive():
            self._end(f"attempt {self.attempt} is over for the owner", now)
        if self._lease_s is None or self._first_sent is None or not self._first_sent <= ack.sent <= now:
            return  # an answer to the agent that was here before: what it said grants this one nothing
        # From the sending, not the receipt: the owner counts from when it last heard us, which is later.
        self._lease_until = max(self._lease_until, ack.sent + self._lease_s)

    # ------------------------------------------------------------------------------------------ facts

    def _become(self, attempt: int, rank: int, source: MemberState, target: MemberState) -> None:
        mine = self._mine.get(rank)
        if mine is not None and attempt == self.attempt and mine.state is source:
            mine.state = target

    def _exited(self, ended: WorkerExit, now: float) -> None:
        mine = self._mine.get(ended.rank)
        if mine is None or ended.attempt != self.attempt or mine.state not in ALIVE:
            return
        mine.exit, mine.ended_at = ended, now if ended.ended_at is None else ended.ended_at
        ran = mine.state in (MemberState.UP, MemberState.GOING)
        if ended.ok and ran:
            mine.state = MemberState.DONE
        elif self._intent and not ended.was_dying:
            mine.exit = replace(ended, after_stop=True)
            mine.state = MemberState.STOPPED
        else:
            mine.state = MemberState.FAILED
            if ended.ok:
                # It did none of its work: that is no success, and the others were never let go.
                mine.start_failed = "its process ended with status 0 before it was told to go"
        if self._listening is not None:
            self._listening.discard(ended.rank)
            self._left(now)

    def _reaped(self, attempt: int) -> None:
        if attempt != self.attempt or not self._intent:
            return
        for mine in self._mine.values():
            if mine.state in ALIVE:
                mine.state = MemberState.STOPPED
        self.stopped = max(self.stopped, attempt)
        self._kill_at = self._term_at = self._again_at = None

    # ------------------------------------------------------------------------------------------ inside

    def _enter(self, attempt: int) -> None:
        self.attempt = attempt
        self._mine = {}
        self._intent = False
        self._kill_at = self._term_at = self._again_at = None
        self._killed = False
        self._listening = None

    def _end(self, reason: str, now: float) -> None:
        """Kill what lives, without grace: nobody is left who could have asked for any."""
        if not self._killed:
            self._reason = reason
            self._intend(self.attempt)
            self._kill_at, self._term_at, self._again_at = now, None, None

    def _intend(self, attempt: int) -> None:
        self._intent = True
        self._stop_memory = max(self._stop_memory, attempt)

    def _alive(self) -> bool:
        return any(mine.state in ALIVE for mine in self._mine.values())

    def _report(self, now: float) -> None:
        self._next_beat = now + self._beat_s
        if self._first_sent is None:
            self._first_sent = now
        members = tuple(
            Member(
                rank=rank,
                state=mine.state,
                exit=mine.exit,
                age_s=max(0.0, now - mine.ended_at) if mine.ended_at else 0.0,
                start_failed=mine.start_failed,
            )
            for rank, mine in self._mine.items()
        )
        report = Report(
            node=self.node,
            boot=self.boot,
            attempt=self.attempt,
            stopped=self.stopped,
            sent=now,
            members=members,
            term=self.term,
        )
        self._out.append(SendReport(report=report))

    def _take(self) -> list[Instruction]:
        out, self._out = self._out, []
        return out
