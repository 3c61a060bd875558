"""What one rank did between two looks: moved, stood, or waited for the others."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from holdfast.explain.stacks import Frame, outline, own_frame, peer_wait, signature
from holdfast.model.base import Noun
from holdfast.model.evidence import RankSnapshot, ThreadState

IDLE_CORES = 0.05
"""Less CPU than this over a look's gap is nothing: watchdogs and heartbeats of a waiting process use about 1 %."""
IO_MOVES_BYTES_PER_S = 256 * 1024
"""More than this through files is a download or a checkpoint, not a hang."""
_SOCKET_CALLS = ("recvfrom", "recvmsg", "recvmmsg", "accept", "accept4", "connect", "sendto", "sendmsg")
_STOPPED = ("T", "t")


class Manner(enum.StrEnum):
    """How a rank spends its time, from surest trouble to none."""

    STOPPED = "stopped"
    """By a signal or a debugger: it cannot go on by itself."""
    ASLEEP = "asleep"
    """No CPU, same place, and that place is its own code."""
    IDLE = "idle"
    """No CPU; no stack to tell where."""
    IN_PEERS = "waits for peers"
    """No CPU, inside a collective or a receive."""
    SPINS_IN_PEERS = "spins for peers"
    """Burns CPU, inside a collective, at the same place in every look."""
    SAME_LINE = "same line"
    """Burns CPU at the same place in every look; it may well compute."""
    BUSY = "busy"
    """Burns CPU; no stack to tell at what."""
    MOVING = "moving"


class View(Noun, frozen=True, kw_only=True):
    """One rank over a row of looks."""

    rank: int
    manner: Manner
    silent_s: float
    """Since its last output or step, at the last look."""
    spoke: bool
    """It printed or told a step between the looks."""
    heard: bool
    """It has printed or told a step at all, in this attempt."""
    step: int | None
    main: ThreadState
    """The thread that tells where it is, at the last look."""

    @property
    def frames(self) -> tuple[str, ...]:
        return self.main.frames

    @property
    def place(self) -> tuple[str, ...]:
        return signature(self.main.frames) if self.main.frames else (self.main.waits_in,)

    @property
    def where(self) -> str:
        """`all_reduce (train.py:20)`, `load (data.py:12), in the system call read`, as far as it is known."""
        at = peer_wait(self.frames)
        own = own_frame(self.frames[at + 1 :] if at is not None else self.frames)
        if at is not None:
            waiting = Frame(self.frames[at])
            place = f"called at {own.place}" if own and own.ours else waiting.place
            return f"{waiting.function} ({place})"
        call = self.main.waits_in.split(" ")[0]
        if own is None:
            return f"the system call {call}" if call else "an unknown place"
        text = f"{own.function} ({own.place})"
        return f"{text}, in the system call {call}" if call else text

    @property
    def doing(self) -> str:
        """In words, for one rank: `is stopped (state T)`."""
        state = self.main.state
        match self.manner:
            case Manner.STOPPED if state == "t":
                return "is held by a debugger (state t)"
            case Manner.STOPPED:
                return "is stopped (state T)"
            case Manner.ASLEEP | Manner.IDLE if state == "D":
                return f"is stuck in the kernel (state D) in {self.where}"
            case Manner.ASLEEP | Manner.IDLE:
                return f"stands in {self.where}"
            case Manner.IN_PEERS:
                return f"waits in {self.where}"
            case Manner.SPINS_IN_PEERS:
                return f"waits busily in {self.where}"
            case Manner.SAME_LINE:
                return f"burns CPU at one place, {self.where}"
            case Manner.BUSY:
                return "burns CPU"
            case Manner.MOVING:
                return "moves"


def last_word(shot: RankSnapshot, started_at: float) -> float:
    """When the rank last printed or told a step; the attempt's start before its first word."""
    return max(at for at in (shot.last_output_at, shot.last_step_at, started_at) if at is not None)


def view(shots: Sequence[RankSnapshot], started_at: float) -> View:
    """One rank's looks in time order, at least one. With a single look only a stop can be told from movement."""
    first, last = shots[0], shots[-1]
    word_at = last_word(last, started_at)
    main = telling(last)
    return View(
        rank=last.rank,
        manner=_manner(shots),
        silent_s=max(0.0, last.at - word_at),
        spoke=word_at > first.at,
        heard=word_at > started_at,
        step=last.last_step,
        main=main,
    )


def telling(shot: RankSnapshot) -> ThreadState:
    """The thread that says where the rank is: a stopped one, the main thread, or a child's main thread with a stack."""
    own = _own(shot)
    for thread in shot.threads:
        if thread.state in _STOPPED and thread not in own:
            return thread
    if own and (own[0].frames or not any(thread.frames for thread in shot.threads)):
        return own[0]
    return next((thread for thread in shot.threads if thread.frames), ThreadState(tid=shot.pid))


def _own(shot: RankSnapshot) -> list[ThreadState]:
    return [thread for thread in shot.threads if thread.pid in (0, shot.pid)]


def _stopped(shot: RankSnapshot) -> bool:
    own = _own(shot)
    if own and all(thread.state in _STOPPED for thread in own):
        return True
    return any(thread.state == "T" for thread in shot.threads if thread not in own)


def _manner(shots: Sequence[RankSnapshot]) -> Manner:
    first, last = shots[0], shots[-1]
    if all(_stopped(shot) for shot in shots):
        return Manner.STOPPED
    span_s = last.at - first.at
    if len(shots) < 2 or span_s <= 0 or first.pid != last.pid:
        return Manner.MOVING
    if (last.io_bytes - first.io_bytes) / span_s > IO_MOVES_BYTES_PER_S:
        return Manner.MOVING
    # A thread that is runnable in every look wants the CPU: on a crowded machine it just does not get it.
    starved = all(telling(shot).state == "R" for shot in shots)
    idle = not starved and (last.cpu_s - first.cpu_s) / span_s < IDLE_CORES
    stacks = [telling(shot).frames for shot in shots]
    known = [frames for frames in stacks if frames]
    if len(known) < 2:
        return _without_stacks(last, known, idle=idle)
    same = len({signature(frames) for frames in known}) == 1
    peers = all(peer_wait(frames) is not None for frames in known)
    if idle:
        if not same and len({outline(frames) for frames in known}) > 1:
            return Manner.MOVING
        return Manner.IN_PEERS if peers or _on_socket(last) else Manner.ASLEEP
    if not same or _children_work(first, last):
        return Manner.MOVING
    return Manner.SPINS_IN_PEERS if peers else Manner.SAME_LINE


def _without_stacks(last: RankSnapshot, known: Sequence[tuple[str, ...]], *, idle: bool) -> Manner:
    if not idle:
        return Manner.BUSY
    if known:
        # One stack only, taken right before the end: with no CPU used it is where the rank was all along.
        return Manner.IN_PEERS if peer_wait(known[0]) is not None else Manner.ASLEEP
    return Manner.IN_PEERS if _on_socket(last) else Manner.IDLE


def _on_socket(shot: RankSnapshot) -> bool:
    return telling(shot).waits_in.split(" ")[0] in _SOCKET_CALLS


def _children_work(first: RankSnapshot, last: RankSnapshot) -> bool:
    """Most of the CPU was used by descendants: data loaders at work, not a spin in the rank itself."""
    before = sum(thread.cpu_s for thread in _own(first))
    own_s = sum(thread.cpu_s for thread in _own(last)) - before
    return 0 <= own_s < (last.cpu_s - first.cpu_s) / 2
