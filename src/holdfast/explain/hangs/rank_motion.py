"""Decides from a series of snapshots whether a rank makes progress, stands still or waits for other ranks. Pure.

It also decides whether a child process for which the rank waits is working or loops for ever.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import pairwise

from holdfast.explain.hangs.wait_rules import (
    Wait,
    WaitFrame,
    WaitTarget,
    call_of,
    channel_of,
    outline,
    own_frame,
    peer_wait,
    python_only,
    signature,
    wait_of,
)
from holdfast.model.evidence import RankSnapshot, ThreadState
from holdfast.model.noun_base import Noun

#: Limit on the CPU use of a process tree in which one child may loop, in cores. A looping thread uses one core, and its
#: parent almost none.
MOST_CORES = 1.2
#: Resolution of the kernel's CPU times, in seconds.
_TICK_S = 0.01
#: Limit on input and output of a process tree in which one child may loop, in bytes per second. A parent that polls a
#: pipe once a second stays below this limit.
STILL_BYTES_PER_S = 1024
#: Programs that may compute for minutes without input and output. A rank that waits for such a program does not hang.
_AT_WORK = frozenset(
    {
        "as", "cc1", "cc1plus", "cicc", "clang", "clang++", "collect2", "cudafe++", "fatbinary", "gzip", "hipcc", "ld",
        "ld.gold", "ld.lld", "lld", "lto1", "lto-wrapper", "nvcc", "nvlink", "pigz", "ptxas", "rustc", "tar", "unzip",
        "xz", "zstd",
    }
)  # fmt: skip


def looping_child(shots: Sequence[RankSnapshot]) -> ThreadState | None:
    """Return the child of a rank that may loop for ever, from the last snapshot; None if its children work or are idle.

    The child's stack is unknown, so its activity decides: a child that works will sooner or later read or write, start
    a process, use more than one core, or exit.

    shots: the rank's snapshots in time order.
    """
    children = [_children(shot) for shot in shots]
    if len(shots) < 2 or not children[-1] or len({frozenset(one) for one in children}) > 1:
        return None
    span_s = shots[-1].at - shots[0].at
    if span_s <= 0 or (shots[-1].io_bytes - shots[0].io_bytes) / span_s > STILL_BYTES_PER_S:
        return None
    busy = [pid for pid in children[-1] if all(one[pid].state == "R" for one in children)]
    if len(busy) != 1 or children[-1][busy[0]].name.partition(" (")[0] in _AT_WORK:
        return None
    for (before, was), (after, now) in pairwise(zip(shots, children, strict=True)):
        # On a busy machine a looping child gets less than one core, but it uses some CPU time in every interval.
        own_s, tree_s = now[busy[0]].cpu_s - was[busy[0]].cpu_s, after.cpu_s - before.cpu_s
        if not 0 < own_s <= tree_s + _TICK_S <= MOST_CORES * (after.at - before.at) + 2 * _TICK_S:
            return None
    return children[-1][busy[0]]


def _children(shot: RankSnapshot) -> dict[int, ThreadState]:
    """Return the rank's child processes and their descendants: process id → its main thread."""
    return {
        thread.pid: thread for thread in shot.threads if thread.pid not in (0, shot.pid) and thread.tid == thread.pid
    }


#: CPU use between two snapshots, in cores, below which a rank counts as idle. Watchdogs and heartbeats of a waiting
#: process use about 0.01 cores.
IDLE_CORES = 0.05
#: File input and output, in bytes per second, above which a rank makes progress: it downloads data or writes a
#: checkpoint.
IO_MOVES_BYTES_PER_S = 256 * 1024
#: Maximum number of different outlines in all snapshots of a rank that loops. An outline is a stack without line
#: numbers.
LOOP_OUTLINES = 3
#: Voluntary switches and page faults per second, below which a running thread only computes in place.
SPIN_SWITCHES_PER_S = 20.0
SPIN_FAULTS_PER_S = 20.0
_STOPPED = ("T", "t")
_ON_OTHERS = (WaitTarget.PEERS, WaitTarget.DEVICE)


class Manner(enum.StrEnum):
    """The state of a rank, ordered from the surest sign of a hang to no sign."""

    #: A signal or a debugger has stopped the rank: it cannot continue by itself.
    STOPPED = "stopped"
    #: The rank uses no CPU, and is always at the same place, which is not a wait for peers.
    ASLEEP = "asleep"
    #: The rank uses no CPU, and no stack shows its place.
    IDLE = "idle"
    #: The rank uses no CPU, and is in a collective or a receive.
    IN_PEERS = "waits for peers"
    #: The rank uses the CPU in a collective, and is at the same place in every snapshot.
    SPINS_IN_PEERS = "spins for peers"
    #: The rank uses the CPU at the same place in every snapshot. It may be computing.
    SAME_LINE = "same line"
    #: The rank uses the CPU in the same few functions in every snapshot. It may be computing.
    LOOPS = "loops"
    #: The rank waits for a child process that uses the CPU, without input, output or new processes. The child may be
    #: computing.
    CHILD_LOOPS = "child loops"
    #: The rank uses the CPU without system calls and without new memory, and no stack shows its place.
    SPINS = "spins"
    #: The rank uses the CPU, and no stack shows its place.
    BUSY = "busy"
    MOVING = "moving"


class View(Noun, frozen=True, kw_only=True):
    """The state of one rank, computed from a series of snapshots."""

    rank: int
    manner: Manner
    #: Seconds from the rank's last output or step to the last snapshot.
    silent_s: float
    #: Whether the rank printed a line or reported a step between the first and last snapshot.
    spoke: bool
    #: Whether the rank has printed a line or reported a step in this attempt.
    heard: bool
    #: Whether the rank has printed during `silent_s`, but only repetitions of earlier lines.
    repeats: bool = False
    step: int | None
    #: The thread that shows the rank's place in the last snapshot.
    main: ThreadState
    #: The looping child process of the rank, such as `612 (python)`; else empty.
    child: str = ""
    #: The target of the rank's wait, if its frames or the kernel show one.
    wait: Wait | None = None

    @property
    def frames(self) -> tuple[str, ...]:
        return self.main.frames

    @property
    def place(self) -> tuple[str, ...]:
        frames = python_only(self.main.frames)
        return signature(self.main.frames) if frames else (self.main.waits_in,)

    @property
    def where(self) -> str:
        """The place in words, as far as known: `all_reduce (train.py:20)`, `load (data.py:12), in the system call
        read`."""
        at = peer_wait(self.frames)
        own = own_frame(self.frames[at + 1 :] if at is not None else python_only(self.frames) or self.frames)
        if at is not None:
            waiting = WaitFrame(self.frames[at])
            place = f"called at {own.place}" if own and own.ours else waiting.place
            what = f", for {self.wait.what}" if self.wait is not None and self.wait.what else ""
            return f"{_short(waiting.function)} ({place}){what}"
        call = self.main.waits_in.split(" ")[0]
        waits = f", where it waits for {self.wait.what}{self._of_file}" if self.wait and self.wait.what else ""
        if own is None:
            return f"the system call {call}{waits}" if call else f"an unknown place{waits}"
        text = f"{_short(own.function)} ({own.place})"
        if waits:
            return f"{text}{waits}"
        return f"{text}, in the system call {call}" if call else text

    @property
    def _of_file(self) -> str:
        """The file of the system call, in brackets: ` (/data/shard.bin)`; empty: no file."""
        name = self.main.file.partition(" ")[2]
        return f" ({name})" if name.startswith("/") else ""

    @property
    def doing(self) -> str:
        """The rank's state, as the predicate of a sentence: `is stopped (state T)`."""
        state = self.main.state
        match self.manner:
            case Manner.STOPPED if state == "t":
                return "is held by a debugger (state t)"
            case Manner.STOPPED:
                return "is stopped (state T)"
            case Manner.ASLEEP | Manner.IDLE if state == "D":
                return f"is stuck in the kernel (state D) in {self.where}"
            case Manner.ASLEEP | Manner.IDLE:
                return f"is blocked in {self.where}"
            case Manner.IN_PEERS:
                return f"waits in {self.where}"
            case Manner.SPINS_IN_PEERS:
                return f"waits busily in {self.where}"
            case Manner.SAME_LINE:
                return f"burns CPU at one place, {self.where}"
            case Manner.LOOPS:
                return f"burns CPU in a loop, {self.where}"
            case Manner.CHILD_LOOPS:
                at = self.where.partition(", where it waits")[0]
                return f"waits in {at} for its child process {self.child}, which burns CPU without an end"
            case Manner.SPINS:
                return "burns CPU in place, without a system call"
            case Manner.BUSY:
                return "burns CPU"
            case Manner.MOVING:
                return "moves"


def last_word(shot: RankSnapshot, started_at: float) -> float:
    """Return when the rank of this snapshot last printed a line or reported a step.

    If it never did, return the attempt's start.
    """
    return max(at for at in (shot.last_output_at, shot.last_step_at, started_at) if at is not None)


def view(shots: Sequence[RankSnapshot], started_at: float) -> View:
    """Return the view of one rank from its snapshots in time order. A single snapshot only shows whether the rank is
    stopped."""
    first, last = shots[0], shots[-1]
    word_at = last_word(last, started_at)
    main = telling(last)
    manner = _manner(shots)
    child = looping_child(shots) if manner is Manner.CHILD_LOOPS else None
    return View(
        rank=last.rank,
        manner=manner,
        child=f"{child.pid} ({child.name.partition(' (')[0]})" if child is not None else "",
        wait=_wait(last),
        silent_s=max(0.0, last.at - word_at),
        spoke=word_at > first.at,
        heard=word_at > started_at,
        repeats=last.repeats,
        step=last.last_step,
        main=main,
    )


def telling(shot: RankSnapshot) -> ThreadState:
    """Return the thread that best shows what the rank does: a stopped thread of a child, else the main thread, else
    another thread with a stack.
    """
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
    # A thread that is runnable in every snapshot is not idle, because it may get little CPU time on a busy machine.
    starved = all(telling(shot).state == "R" for shot in shots)
    idle = not starved and (last.cpu_s - first.cpu_s) / span_s < IDLE_CORES
    stacks = [telling(shot).frames for shot in shots]
    known = [frames for frames in stacks if frames]
    if idle and _stuck_in_kernel(shots):
        return Manner.ASLEEP
    if len(known) < 2:
        return _without_stacks(shots, known, idle=idle)
    same = len({signature(frames) for frames in known}) == 1
    if idle:
        if not same and len({outline(frames) for frames in known}) > 1:
            return Manner.MOVING
        return Manner.IN_PEERS if _for_peers(last, known, idle=True) else Manner.ASLEEP
    if _children_work(first, last):
        return Manner.CHILD_LOOPS if same and looping_child(shots) is not None else Manner.MOVING
    if not same:
        return Manner.LOOPS if _one_loop(known) else Manner.MOVING
    return Manner.SPINS_IN_PEERS if _for_peers(last, known, idle=False) else Manner.SAME_LINE


def _without_stacks(shots: Sequence[RankSnapshot], known: Sequence[tuple[str, ...]], *, idle: bool) -> Manner:
    last = shots[-1]
    if not idle:
        return Manner.SPINS if _spins(shots) else Manner.BUSY
    # Only one snapshot has a stack. The rank used no CPU, so it was at that place all the time.
    if known:
        return Manner.IN_PEERS if _for_peers(last, known, idle=True) else Manner.ASLEEP
    return Manner.IN_PEERS if _peers(_called(last)) else Manner.IDLE


def _spins(shots: Sequence[RankSnapshot]) -> bool:
    """Return whether one thread of the rank runs in every snapshot, uses most of the rank's CPU time, and only
    computes in place."""
    first, last = shots[0], shots[-1]
    span_s, used_s = last.at - first.at, last.cpu_s - first.cpu_s
    running = [{thread.tid: thread for thread in _own(shot) if thread.state == "R"} for shot in shots]
    for tid in set(running[0]).intersection(*running[1:]):
        before, now = running[0][tid], running[-1][tid]
        if now.cpu_s - before.cpu_s < used_s / 2 or now.switches == 0:
            continue  # other threads compute too, or the kernel does not show the switches
        if now.switches - before.switches <= SPIN_SWITCHES_PER_S * span_s:
            return now.faults - before.faults <= SPIN_FAULTS_PER_S * span_s
    return False


def _for_peers(last: RankSnapshot, known: Sequence[tuple[str, ...]], *, idle: bool) -> bool:
    """Return whether the rank waits for other ranks in every snapshot.

    If a snapshot has native frames, only the last such one counts.
    """
    close = [frames for frames in known if len(python_only(frames)) < len(frames)]
    waits = [wait_of(frames) for frames in (close[-1:] or known)]
    if all(waits) or not idle:
        waiting = all(wait is not None and wait.waits in _ON_OTHERS and (idle or wait.spins) for wait in waits)
        return waiting or (idle and _by_a_thread(last, waits[-1]))
    # No frame shows the wait, so use the system call.
    return _peers(_called(last))


def _one_loop(stacks: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the stacks show one loop.

    In a loop they differ only below one function, which calls few others, and none of them is in a collective.
    """
    if len({outline(frames) for frames in stacks}) > LOOP_OUTLINES or any(peer_wait(one) is not None for one in stacks):
        return False
    outwards = [tuple(reversed(python_only(frames))) for frames in stacks]
    for level in zip(*outwards, strict=False):
        if len(set(level)) > 1:
            return len({(WaitFrame(text).function, WaitFrame(text).file) for text in level}) == 1
    return True


def _by_a_thread(shot: RankSnapshot, wait: Wait | None) -> bool:
    """Return whether the rank waits for a thread of its process, and one of its threads waits for other ranks."""
    if wait is None or wait.waits is not WaitTarget.THREAD:
        return False
    main = telling(shot)
    others = (wait_of(thread.frames) for thread in _own(shot) if thread is not main and thread.frames)
    return any(other is not None and other.waits is WaitTarget.PEERS for other in others)


def _peers(wait: Wait | None) -> bool:
    return wait is not None and wait.waits is WaitTarget.PEERS


def _called(shot: RankSnapshot) -> Wait | None:
    main = telling(shot)
    return call_of(main.waits_in, main.file) if main.waits_in else None


def _wait(shot: RankSnapshot) -> Wait | None:
    """Return the rank's wait.

    In state D the kernel's wait channel shows it; otherwise the frames or the system call do.
    """
    main = telling(shot)
    if main.state == "D":
        return channel_of(main.waits_in) or call_of(main.waits_in, main.file)
    if main.state == "R":
        return wait_of(main.frames) if peer_wait(main.frames) is not None else None
    said, called = wait_of(main.frames), _called(shot)
    if said is None or (said.weak and called is not None and called.what):
        return called or said
    return said


def _stuck_in_kernel(shots: Sequence[RankSnapshot]) -> bool:
    """Return whether the rank's thread was blocked in the kernel (state D) in every snapshot.

    If so, ignore its frames: the kernel blocks the rank, not another rank.
    """
    return len(shots) > 1 and all(telling(shot).state == "D" for shot in shots)


def _short(function: str) -> str:
    """Return the name of a C++ function without its arguments, cut to 80 characters."""
    name = function.partition("(")[0] if not function.startswith("(") else function
    return name if len(name) <= 80 else f"{name[:77]}…"


def _children_work(first: RankSnapshot, last: RankSnapshot) -> bool:
    """Return whether child processes, such as data loaders, used most of the CPU time.

    If so, the rank itself does not spin.
    """
    before = sum(thread.cpu_s for thread in _own(first))
    own_s = sum(thread.cpu_s for thread in _own(last)) - before
    return 0 <= own_s < (last.cpu_s - first.cpu_s) / 2
