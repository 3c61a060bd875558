"""Ends ranks whose program has failed with an exception while their process lives on.

A non-daemon thread, an atexit handler, or a destructor that waits for a peer keeps such a process alive for ever, and
the other ranks wait for it. Two signs are certain, because a program that goes on does not give them: the tag
`[rank1]: ` that torch's handler of uncaught exceptions puts before a traceback, and the error file of torchelastic's
`@record`. Output that ends with a traceback from the program's own module is a doubt: the program may have handled the
exception. The stack of py-spy decides it; without one, `PLAIN_S` seconds do in which no rank of this node prints
anything and the process uses no CPU.
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

#: A rank that has printed something is checked at most once in this many seconds.
LOOK_S = 5.0
#: Seconds of silence after a traceback at the end of the output, if no stack shows whether the program is over.
PLAIN_S = 30.0
#: Up to this share of a CPU is no work.
IDLE_SHARE = 0.02
TAIL_BYTES = 16 * 1024
_HEADER = "Traceback (most recent call last):"
_TAG = f"]: {_HEADER}"


class Doubt(msgspec.Struct):
    """A rank whose output ends with a traceback. `since`: from when on it has done nothing."""

    since: float
    cpu_s: float
    #: Whether its stack was requested; a rank without a readable stack keeps its doubt.
    looked: bool = False


def ends_with_uncaught(text: str) -> bool:
    """Return whether the text ends with a traceback whose outermost frame is a module's, as of an uncaught exception.

    One that the program caught in a function begins with that function; lines after the exception show that the
    program went on.
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

    `workers()` returns the live workers by rank. `sampler(tell)` makes what reads their stacks. `wait_s`: seconds that
    a failed rank has to exit. `running()` returns the running attempt, or None. `say` prints a message.
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
        #: Pid → time of its last output at the previous check.
        self._seen: dict[int, float | None] = {}
        #: Pid → time at which a sign of an uncaught exception was first found.
        self._over: dict[int, float] = {}
        #: Pid → the doubt about it.
        self._doubts: dict[int, Doubt] = {}
        #: The latest output of any rank of this node at the last look.
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
        """Look at the doubtful ranks: request their stacks once, and end what has done nothing for `PLAIN_S`."""
        latest = max((at for rank in alive if (at := self._pump.last_output_at(rank)) is not None), default=None)
        goes_on = latest != self._latest
        self._latest = latest
        pids = {rank: worker.process.pid for rank, worker in alive.items() if worker.process.pid in self._doubts}
        for pid in pids.values():
            doubt, cpu_s = self._doubts[pid], _cpu_s(pid)
            if goes_on or cpu_s - doubt.cpu_s > IDLE_SHARE * max(LOOK_S, now - doubt.since):
                doubt.since, doubt.cpu_s = now, cpu_s
            elif now - doubt.since >= PLAIN_S:
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


def _cpu_s(pid: int) -> float:
    seen = procfs.snapshot(pid)
    return seen.cpu_s if seen is not None else 0.0
