"""Agents with one planted fault each. `mutants` has the list of all of them."""

from __future__ import annotations

from msgspec import structs

from holdfast.decide.agent import Agent, AgentStop, Lease
from holdfast.decide.node_workers import NodeWorkers
from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import Ack, Command, Go, MemberState, Prepare, Stop
from holdfast.model.process_messages import Instruction, SendReport


class StopIsFailure(NodeWorkers):
    def exited(self, ended: WorkerExit, now: float, *, intended: bool) -> None:
        super().exited(ended, now, intended=False)


class StatelessBeat(Agent):
    def tick(self, now: float) -> list[Instruction]:
        return [
            SendReport(report=structs.replace(order.report, members=())) if isinstance(order, SendReport) else order
            for order in super().tick(now)
        ]


class LeaseFromReceipt(Lease):
    def renew(self, ack: Ack, now: float) -> None:
        super().renew(structs.replace(ack, sent=now), now)


class NoStopMemory(Agent):
    def obey(self, command: Command, now: float) -> list[Instruction]:
        self.remembered, before = 0, self.attempt
        early = isinstance(command, Stop) and command.attempt > self.attempt and not self.workers.alive()
        out = super().obey(command, now)
        if early:
            self.attempt = before
        return out


class PrepareGrantsLease(Agent):
    def obey(self, command: Command, now: float) -> list[Instruction]:
        if isinstance(command, Prepare) and self.lease.length_s is not None and command.attempt >= self.attempt:
            self.lease.until = max(self.lease.until, now + self.lease.length_s)
        return super().obey(command, now)


class TakesAnyAck(Lease):
    def renew(self, ack: Ack, now: float) -> None:
        self.first_sent = float("-inf")
        super().renew(ack, now)


class ObeysOldGo(Agent):
    def obey(self, command: Command, now: float) -> list[Instruction]:
        if isinstance(command, Go):
            command = structs.replace(command, attempt=self.attempt)
        return super().obey(command, now)


class SaysStoppedEarly(Agent):
    def obey(self, command: Command, now: float) -> list[Instruction]:
        out = super().obey(command, now)
        if not isinstance(command, Stop):
            return out
        self.stopped = max(self.stopped, command.attempt)
        return [
            SendReport(report=structs.replace(order.report, stopped=self.stopped))
            if isinstance(order, SendReport)
            else order
            for order in out
        ]


class KilledKept(AgentStop):
    """An agent that forgets to clear `killed` for the next stop, so that an expired lease no longer kills its
    workers."""

    def reset(self) -> None:
        killed = getattr(self, "killed", False)
        super().reset()
        self.killed = killed


class IntentKept(AgentStop):
    def reset(self) -> None:
        intended = getattr(self, "intended", False)
        super().reset()
        self.intended = intended


class KillTimerKept(AgentStop):
    def reaped(self) -> None:
        kill_at = self.kill_at
        super().reaped()
        self.kill_at = kill_at

    def reset(self) -> None:
        kill_at = getattr(self, "kill_at", None)
        super().reset()
        self.kill_at = kill_at


class DyingIgnored(NodeWorkers):
    def exited(self, ended: WorkerExit, now: float, *, intended: bool) -> None:
        super().exited(structs.replace(ended, was_dying=False), now, intended=intended)


class StopUnmarked(NodeWorkers):
    def exited(self, ended: WorkerExit, now: float, *, intended: bool) -> None:
        super().exited(ended, now, intended=intended)
        if (hand := self.slots.get(ended.rank)) is not None and hand.exit is not None:
            hand.exit = structs.replace(hand.exit, after_stop=False)


class StopRewrites(Agent):
    """An agent that on a stop marks ranks as stopped although they had failed before the stop."""

    def obey(self, command: Command, now: float) -> list[Instruction]:
        if isinstance(command, Stop):
            for hand in self.workers.slots.values():
                if hand.state is MemberState.FAILED and hand.exit is not None:
                    hand.state, hand.exit = MemberState.STOPPED, structs.replace(hand.exit, after_stop=True)
        return super().obey(command, now)


class NeverKills(Agent):
    def tick(self, now: float) -> list[Instruction]:
        if self.stopping.intended:
            self.stopping.kill_at = None
            self.stopping.killed = True
        return super().tick(now)
