"""Serves torch's timers (TORCHELASTIC_ENABLE_FILE_TIMER=1). If a timer expires, its worker is killed and the attempt
ends.

A worker uses `with torch.distributed.elastic.timer.expires(after=60)`: the block must end within that time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.model import events as ev
from holdfast.model.evidence import StopRequest, StopSource
from holdfast.model.phrases import Phrase
from holdfast.observe.timer_pipe import TimerPipe, TorchTimer
from holdfast.reactor import Reactor

ENABLE = "TORCHELASTIC_ENABLE_FILE_TIMER"
FILE = "TORCHELASTIC_TIMER_FILE"


class TorchTimers:
    """Kills workers whose timers expire.

    `path`: the pipe that workers write their timers to. `processes()`: returns the pids of all processes of the job.
    `rank_of(pid)`: returns the rank of a process, or None. `say`: prints a message.
    """

    def __init__(
        self,
        path: Path,
        reactor: Reactor,
        *,
        processes: Callable[[], list[int]],
        rank_of: Callable[[int], int | None],
        say: Callable[[str], None],
    ) -> None:
        self._processes = processes
        self._rank_of = rank_of
        self._say = say
        self._pipe = TimerPipe(path)
        self._watch = reactor.watch(self._pipe.fileno(), self._ready)
        reactor.deadlines(self._pipe.first, self._tick)

    def _ready(self, fd: int, now: float) -> None:
        self._pipe.read()

    def _tick(self, now: float) -> list[ev.Event]:
        """Kill the workers whose timers have expired. The returned stop request names the first timer."""
        self._pipe.read()  # read the pipe again, because a worker may just have left its timed block
        alive = frozenset(self._processes())
        late = [timer for timer in self._pipe.over(now) if timer.pid in alive]
        killed: dict[int, TorchTimer] = {}
        for timer in late:
            if timer.pid not in killed and 0 < timer.signal < signal.NSIG:
                killed[timer.pid] = timer
        for timer in late:
            if timer.pid not in killed:
                self._say(f"{self._whose(timer)} is over; it names no signal, so its worker goes on")
        if not killed:
            return []
        first = next(iter(killed.values()))
        reason = f"{self._whose(first)} was over at its time, and the worker was not done"
        for pid, timer in killed.items():
            os.kill(pid, timer.signal)
        self._pipe.forget()
        request = StopRequest(
            reason=reason,
            solution="See what that part of the program waited for, or give it more time: expires(after=…).",
            source=StopSource.TIMER,
            phrase=Phrase.HUNG_WORKER,
            at=now,
            final=False,
        )
        return [ev.StopRequested(request=request)]

    def _whose(self, timer: TorchTimer) -> str:
        rank = self._rank_of(timer.pid)
        who = f"rank {rank} (pid {timer.pid})" if rank is not None else f"pid {timer.pid}"
        return f"the timer {timer.scope_id[:200]!r} of {who}"

    def close(self) -> None:
        self._watch.close()
        self._pipe.close()


def timer_file(environment: Mapping[str, str], job_dir: Path, cwd: Path) -> Path | None:
    """Return the path of the pipe for torch's timers, or None if the job does not use them."""
    if environment.get(ENABLE) != "1":
        return None
    named = environment.get(FILE)
    return cwd / named if named else job_dir / "timers"
