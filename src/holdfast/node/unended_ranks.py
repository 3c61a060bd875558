"""Ends ranks whose program has failed with an exception while the process lives on.

A non-daemon thread, an atexit handler, or a destructor that waits for a peer can keep such a process alive for ever,
and the other ranks wait for it. Two signs prove the failure: the tag `[rank1]: `, which torch's handler of uncaught
exceptions puts before a traceback, and the error file of torchelastic's `@record`. A traceback from the program's own
module at the end of the output proves nothing, because the program may have handled the exception. Then a stack from
py-spy decides. Without a stack the rank is ended after `PLAIN_S` seconds in which no rank of this node has printed and
the process has used no CPU. A process that sleeps for a time is not ended, because it may try again later.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.act.workers import Worker
from holdfast.model.gang_protocol import Closeness, LookAtRanks, RanksSeen
from holdfast.model.human_format import duration
from holdfast.observe import procfs
from holdfast.observe.output_pump import OutputPump

if TYPE_CHECKING:
    from holdfast.node.owner_probes import HangSampler
    from holdfast.observe.procfs import ProcessLook

#: The output of a rank is checked at most once in this many seconds, and only if it is new.
LOOK_S = 5.0
#: Seconds that a rank must be idle after a traceback at the end of its output before it is ended, if its stack is
#: unreadable.
PLAIN_S = 30.0
#: A process that uses at most this share of a CPU counts as idle.
IDLE_SHARE = 0.02
TAIL_BYTES = 16 * 1024
#: System calls of `time.sleep`.
_SLEEPS = ("nanosleep", "clock_nanosleep", "hrtimer_nanosleep", "select", "pselect6")
_HEADER = "Traceback (most recent call last):"
_TAG = f"]: {_HEADER}"


class Doubt(msgspec.Struct):
    """A rank whose program may be over, because its output ends with a traceback. `since`: when the rank became idle.
    `cpu_s`: the CPU seconds of its process at that time.
    """

    since: float
    cpu_s: float
    #: Whether the rank's stack was requested. If it is unreadable, only the idle time decides.
    looked: bool = False


def ends_with_uncaught(text: str) -> bool:
    """Return whether the text ends like an uncaught exception: with a traceback whose outermost frame is module code.

    Return False if lines follow the exception, because the program went on. Also return False if the outermost frame is
    a function, because that function caught the exception.
    """
    before, found, after = text.rpartition(_HEADER)
    lines = after.strip("\n").splitlines()
    if not found or (before and not before.endswith("\n")) or len(lines) < 3:
        return False
    outermost = lines[0].strip()
    program = outermost.endswith(", in <module>") or outermost.startswith('File "<frozen runpy>"')
    inner = all(line[:1] in (" ", "\t", "") for line in lines[:-1])
    return program and inner and lines[-1][:1] not in (" ", "\t", "")


class UnendedRanks:
    """Checks the end of each live rank's output for an uncaught exception.

    `workers()`: returns the live workers by rank. `sampler(tell)`: returns a sampler that reads their stacks. `wait_s`:
    seconds that a failed rank may take to exit. `running()`: returns the running attempt, or None. `say`: prints a
    message.
    """

    def __init__(
        self,
        pump: OutputPump,
        workers: Callable[[], dict[int, Worker]],
        sampler: Callable[[Callable[[RanksSeen], None]], HangSampler],
        wait_s: float,
        running: Callable[[], int | None],
        now: float,
        say: Callable[[str], None],
    ) -> None:
        self._pump = pump
        self._workers = workers
        self._new_sampler = sampler
        self._wait_s = wait_s
        self._running = running
        self._say = say
        self._due = now + LOOK_S
        #: Pid → when it had last printed, at the previous check.
        self._seen: dict[int, float | None] = {}
        #: Pid → when its output first showed an uncaught exception.
        self._over: dict[int, float] = {}
        #: Pid → the facts about a process whose output ends with a traceback.
        self._doubts: dict[int, Doubt] = {}
        #: When any rank of this node had last printed, at the previous check.
        self._latest: float | None = None
        self._sampler: HangSampler | None = None

    def next_wake(self) -> float:
        return self._due

    def tick(self, now: float) -> None:
        self._due = now + LOOK_S
        attempt = self._running()
        if attempt is None:
            self._seen.clear()
            self._over.clear()
            self._doubts.clear()
            return
        alive = self._workers()
        for rank, worker in alive.items():
            pid = worker.process.pid
            printed = self._pump.last_output_at(rank)
            if pid not in self._over and printed != self._seen.get(pid, 0.0):
                self._seen[pid] = printed
                self._doubts.pop(pid, None)
                if self._is_over(rank, worker):
                    self._over[pid] = now
                elif ends_with_uncaught(self._pump.tail(rank, TAIL_BYTES)):
                    self._doubts[pid] = Doubt(now, _cpu_s(pid))
        if self._doubts:
            self._doubt(attempt, alive, now)
        for rank, worker in alive.items():
            if worker.process.pid in self._over:
                self._end(attempt, rank, worker, now)

    def _doubt(self, attempt: int, alive: dict[int, Worker], now: float) -> None:
        """Check the ranks whose output ends with a traceback. Request each stack once, and end the ranks that were idle
        for `PLAIN_S` seconds.
        """
        latest = max((at for rank in alive if (at := self._pump.last_output_at(rank)) is not None), default=None)
        goes_on = latest != self._latest
        self._latest = latest
        pids = {rank: worker.process.pid for rank, worker in alive.items() if worker.process.pid in self._doubts}
        for pid in pids.values():
            doubt, seen = self._doubts[pid], procfs.snapshot(pid)
            cpu_s = seen.cpu_s if seen is not None else 0.0
            busy = cpu_s - doubt.cpu_s > IDLE_SHARE * max(LOOK_S, now - doubt.since)
            if goes_on or busy:
                doubt.since, doubt.cpu_s = now, cpu_s
            elif now - doubt.since >= PLAIN_S and not (seen is not None and _sleeps(seen)):
                self._over[pid] = doubt.since
        new = [pid for pid in pids.values() if not self._doubts[pid].looked and now - self._doubts[pid].since >= LOOK_S]
        if new:
            for pid in new:
                self._doubts[pid].looked = True
            self._sampler = self._sampler or self._new_sampler(self._seen_stacks)
            self._sampler.look(LookAtRanks(attempt=attempt, number=0, closeness=Closeness.STACKS), now)

    def _seen_stacks(self, answer: RanksSeen) -> None:
        for shot in answer.look:
            if shot.pid in self._doubts and (over := shot.left_program) is not None:
                doubt = self._doubts.pop(shot.pid)
                if over:
                    self._over[shot.pid] = doubt.since

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def _is_over(self, rank: int, worker: Worker) -> bool:
        if os.path.exists(worker.env.get("TORCHELASTIC_ERROR_FILE", "")):  # noqa: PTH110  # the user may set any text
            return True
        return f"[rank{rank}{_TAG}" in self._pump.tail(rank, TAIL_BYTES)

    def _end(self, attempt: int, rank: int, worker: Worker, now: float) -> None:
        late_s = now - self._over[worker.process.pid]
        if late_s < self._wait_s:
            self._due = min(self._due, self._over[worker.process.pid] + self._wait_s)
            return
        number = signal.SIGTERM if worker.unended_s is None else signal.SIGKILL
        if worker.unended_s is None:
            worker.unended_s = late_s
            self._say(
                f"attempt {attempt}: rank {rank} has printed its exception, and its process has not ended for "
                f"{duration(late_s)}: it is ended now"
            )
        try:
            signal.pidfd_send_signal(worker.process.pidfd, number)
        except ProcessLookupError:
            pass  # ignore a process that has just exited


def _sleeps(seen: ProcessLook) -> bool:
    """Return whether the main thread of the process, or of one of its children, sleeps for a time."""
    main = [thread for thread in seen.threads if thread.tid == thread.pid]
    return any(thread.waits_in.partition(" ")[0] in _SLEEPS for thread in main)


def _cpu_s(pid: int) -> float:
    seen = procfs.snapshot(pid)
    return seen.cpu_s if seen is not None else 0.0
