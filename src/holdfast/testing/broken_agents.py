"""Agents with one thing wrong each, for `mutants`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from holdfast.decide.agent import Agent
from holdfast.model.commands import Ack, MemberState, Prepare, Stop
from holdfast.model.exits import WorkerExit


class StopIsFailure(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        intent, self._intent = self._intent, False
        super()._exited(ended, now)
        self._intent = intent


class StatelessBeat(Agent):
    def tick(self, now: float) -> list[Any]:
        mine = self._mine
        beats = self._lease_s is not None and now >= self._next_beat
        if beats and not (self._kill_at is not None or now >= self._lease_until):
            self._mine = {}
        out = super().tick(now)
        self._mine = mine
        return out


class LeaseFromReceipt(Agent):
    def _renew(self, ack: Ack, now: float) -> None:
        super()._renew(structs.replace(ack, sent=now), now)


class NoStopMemory(Agent):
    def _stop(self, command: Stop, now: float) -> None:
        if command.attempt > self.attempt and not self._alive():
            self.stopped = max(self.stopped, command.attempt)
        else:
            super()._stop(command, now)

    def _prepare(self, command: Prepare, now: float) -> None:
        self._stop_memory = 0
        super()._prepare(command, now)


class PrepareGrantsLease(Agent):
    def _prepare(self, command: Prepare, now: float) -> None:
        if self._lease_s is not None and command.attempt >= self.attempt:
            self._lease_until = max(self._lease_until, now + self._lease_s)
        super()._prepare(command, now)


class TakesAnyAck(Agent):
    def _renew(self, ack: Ack, now: float) -> None:
        self._first_sent = float("-inf")
        super()._renew(ack, now)


class ObeysOldGo(Agent):
    def _go(self, command: Any) -> None:
        super()._go(structs.replace(command, attempt=self.attempt))


class SaysStoppedEarly(Agent):
    def _stop(self, command: Stop, now: float) -> None:
        super()._stop(command, now)
        self.stopped = max(self.stopped, command.attempt)


class KilledKept(Agent):
    """One SIGKILL, and no lease that runs out later ends anything."""

    def _enter(self, attempt: int) -> None:
        killed = self._killed
        super()._enter(attempt)
        self._killed = killed


class IntentKept(Agent):
    def _enter(self, attempt: int) -> None:
        intent = self._intent
        super()._enter(attempt)
        self._intent = intent


class KillTimerKept(Agent):
    def _reaped(self, attempt: int) -> None:
        kill_at = self._kill_at
        super()._reaped(attempt)
        self._kill_at = kill_at

    def _enter(self, attempt: int) -> None:
        kill_at = self._kill_at
        super()._enter(attempt)
        self._kill_at = kill_at


class DyingIgnored(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        super()._exited(structs.replace(ended, was_dying=False), now)


class StopUnmarked(Agent):
    def _exited(self, ended: WorkerExit, now: float) -> None:
        super()._exited(ended, now)
        if (mine := self._mine.get(ended.rank)) is not None and mine.exit is not None:
            mine.exit = structs.replace(mine.exit, after_stop=False)


class StopRewrites(Agent):
    """A stop makes stopped ranks also of those that had failed before it."""

    def _intend(self, attempt: int) -> None:
        super()._intend(attempt)
        for mine in self._mine.values():
            if mine.state is MemberState.FAILED and mine.exit is not None:
                mine.state, mine.exit = MemberState.STOPPED, structs.replace(mine.exit, after_stop=True)


class NeverKills(Agent):
    def tick(self, now: float) -> list[Any]:
        if self._intent:
            self._kill_at = None
            self._killed = True
        return super().tick(now)
