"""The workers that one node runs for the agent's present attempt: their states and exits."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.model.exit_report import WorkerExit
from holdfast.model.gang_protocol import ALIVE, Member, MemberState
from holdfast.model.job_spec import Placement


class WorkerSlot(msgspec.Struct):
    """One worker's state, as its agent keeps it. Times are seconds on the agent's clock."""

    placement: Placement
    state: MemberState = MemberState.BOOTING
    exit: WorkerExit | None = None
    ended_at: float = 0.0
    start_failed: str = ""
    warm: bool = False
    listened: bool = False


class NodeWorkers:
    """The workers of the agent's present attempt. Times are seconds on the agent's clock."""

    def __init__(self) -> None:
        self.slots: dict[int, WorkerSlot] = {}

    def reset(self) -> None:
        """Forget the workers of the previous attempt, because another one begins."""
        self.slots = {}

    def add(self, placement: Placement) -> None:
        self.slots[placement.rank] = WorkerSlot(placement=placement)

    def state(self, rank: int) -> MemberState:
        hand = self.slots.get(rank)
        return MemberState.NONE if hand is None else hand.state

    def alive(self) -> bool:
        return any(hand.state in ALIVE for hand in self.slots.values())

    def become(self, rank: int, source: MemberState, target: MemberState) -> bool:
        """Move a worker from the state `source` to `target`. Return False if it is in another state."""
        hand = self.slots.get(rank)
        if hand is None or hand.state is not source:
            return False
        hand.state = target
        return True

    def prepared(self, rank: int, *, warm: bool) -> None:
        """Record that the worker's process is ready and waits for GO. `warm`: whether it is a fork of a prewarmed
        process.
        """
        if self.become(rank, MemberState.BOOTING, MemberState.PREPARED):
            self.slots[rank].warm = warm

    def notified(self, listening: tuple[int, ...]) -> None:
        """Record that the workers were notified to save and exit. `listening`: the ranks that had registered for such a
        notice.
        """
        for rank in listening:
            if rank in self.slots:
                self.slots[rank].listened = True

    def failed_to_start(self, rank: int, reason: str, now: float, *, intended: bool) -> None:
        hand = self.slots.get(rank)
        if hand is not None and hand.state in ALIVE:
            hand.state = MemberState.STOPPED if intended else MemberState.FAILED
            hand.start_failed, hand.ended_at = reason, now

    def exited(self, ended: WorkerExit, now: float, *, intended: bool) -> None:
        """Record a worker's exit. `intended`: whether the agent had recorded the attempt's stop before."""
        hand = self.slots.get(ended.rank)
        if hand is None or hand.state not in ALIVE:
            return
        hand.exit, hand.ended_at = ended, now if ended.ended_at is None else ended.ended_at
        ran = hand.state in (MemberState.UP, MemberState.GOING)
        if ended.ok and ran:
            hand.state = MemberState.DONE
        elif intended and not ended.was_dying:
            hand.exit = replace(ended, after_stop=True)
            hand.state = MemberState.STOPPED
        else:
            hand.state = MemberState.FAILED
            if ended.ok:
                # A worker that exits before GO has done no work, so it failed even with exit status 0.
                hand.start_failed = "its process ended with status 0 before it was told to go"

    def reaped(self) -> None:
        """Mark all live workers as stopped. No process is left, even if the agent has missed some exits."""
        for hand in self.slots.values():
            if hand.state in ALIVE:
                hand.state = MemberState.STOPPED

    def members(self, now: float) -> tuple[Member, ...]:
        """Return the state of each worker for the report to the owner."""
        return tuple(
            Member(
                rank=rank,
                state=hand.state,
                exit=hand.exit,
                age_s=max(0.0, now - hand.ended_at) if hand.ended_at else 0.0,
                start_failed=hand.start_failed,
                warm=hand.warm,
                listened=hand.listened,
            )
            for rank, hand in self.slots.items()
        )
