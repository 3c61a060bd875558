"""Ends ranks whose program has failed with an exception while their process lives on.

A non-daemon thread, an atexit handler, or a destructor that waits for a peer keeps such a process alive for ever, and
the other ranks wait for it. There are two signs that the program has ended: the tag `[rank1]: ` that torch's handler of
uncaught exceptions puts before a traceback, and the error file of torchelastic's `@record`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from holdfast.act.workers import Worker
from holdfast.model.human_format import duration
from holdfast.observe.output_pump import OutputPump

#: A rank that has printed something is checked at most once in this many seconds.
LOOK_S = 5.0
TAIL_BYTES = 16 * 1024
_TAG = "]: Traceback (most recent call last):"


class UnendedRanks:
    """Checks the end of each live rank's output for an uncaught exception.

    `workers()` returns the live workers by rank. `wait_s`: seconds that a failed rank has to exit. `running()` returns
    the running attempt, or None. `say` prints a message.
    """

    def __init__(
        self,
        pump: OutputPump,
        workers: Callable[[], dict[int, Worker]],
        wait_s: float,
        running: Callable[[], int | None],
        now: float,
        say: Callable[[str], None],
    ) -> None:
        self._pump = pump
        self._workers = workers
        self._wait_s = wait_s
        self._running = running
        self._say = say
        self._due = now + LOOK_S
        #: Pid → time of its last output at the previous check.
        self._seen: dict[int, float | None] = {}
        #: Pid → time at which a sign of an uncaught exception was first found.
        self._over: dict[int, float] = {}

    def next_wake(self) -> float:
        return self._due

    def tick(self, now: float) -> None:
        self._due = now + LOOK_S
        attempt = self._running()
        if attempt is None:
            self._seen.clear()
            self._over.clear()
            return
        for rank, worker in self._workers().items():
            pid = worker.process.pid
            printed = self._pump.last_output_at(rank)
            if pid not in self._over and printed != self._seen.get(pid, 0.0):
                self._seen[pid] = printed
                if self._is_over(rank, worker):
                    self._over[pid] = now
            if pid in self._over:
                self._end(attempt, rank, worker, now)

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
