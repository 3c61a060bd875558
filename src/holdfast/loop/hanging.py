"""Hang detection as a station of the supervisor: looks at the ranks when they have been silent for long enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.explain.hang import Hung
from holdfast.explain.hang_watch import Closeness, HangWatch
from holdfast.model import events as ev
from holdfast.observe.hang import HangProbe, look_lightly
from holdfast.observe.progress import read_progress

if TYPE_CHECKING:
    from holdfast.reactor import Reactor


class Hanging:
    """Watches the attempt that runs.

    `pids`: rank → pid of the workers that live. `last_output_at`: seconds since the epoch, by rank. `progress_file`:
    where a rank tells its steps. `held_back`: a slow terminal keeps the workers waiting in their writes, so that their
    silence says nothing. `want_last_words`: told the attempt of a hang of which no look has a stack.
    """

    def __init__(
        self,
        timeout_s: float,
        reactor: Reactor,
        *,
        running: Callable[[], int | None],
        pids: Callable[[], dict[int, int]],
        last_output_at: Callable[[int], float | None],
        progress_file: Callable[[int, int], Path],
        held_back: Callable[[], bool],
        want_last_words: Callable[[int], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._reactor = reactor
        self._running = running
        self._pids = pids
        self._last_output_at = last_output_at
        self._progress_file = progress_file
        self._held_back = held_back
        self._want_last_words = want_last_words
        self._watch: HangWatch | None = None
        self._probe: HangProbe | None = None
        self._fds: tuple[int, ...] = ()

    def begin(self, attempt: int, now: float) -> None:
        """The attempt's ranks are all up."""
        self._watch = HangWatch(attempt, self._timeout_s, self._pids(), now)

    def next_wake(self) -> float | None:
        if self._watch is None or self._running() != self._watch.attempt:
            return self._probe.next_wake() if self._probe is not None else None
        return self._probe.next_wake() if self._probe is not None else self._watch.next_wake()

    def ready(self, fd: int, now: float) -> list[ev.Event]:
        if self._probe is None:
            return []
        self._reactor.forget(fd)
        self._fds = tuple(other for other in self._fds if other != fd)
        self._probe.ready(fd, now)
        return self._looked(now)

    def tick(self, now: float) -> list[ev.Event]:
        if self._probe is not None:
            self._wait_for(())
            self._probe.tick(now)
            return self._looked(now)
        watch = self._watch
        if watch is None or self._running() != watch.attempt:
            self._watch = None
            return []
        pids = self._pids()
        self._listen(watch, pids, now)
        closeness = watch.wants(now)
        if closeness is None:
            return []
        outputs = {rank: at for rank in pids if (at := self._last_output_at(rank)) is not None}
        steps = {rank: told for rank in pids if (told := self._progress(watch.attempt, rank)) is not None}
        if closeness is Closeness.LIGHT:
            look = look_lightly(pids, now, last_output_at=outputs, progress=steps)
            watch.looked(look, now, closeness)
            return []
        self._probe = HangProbe(pids, now, last_output_at=outputs, progress=steps)
        return self._looked(now)

    def close(self) -> None:
        self._end_look()

    def _listen(self, watch: HangWatch, pids: dict[int, int], now: float) -> None:
        """Bring the watch up to date: nobody is woken by a line or a step."""
        for rank in pids:
            if self._held_back():
                watch.heard(rank, now)
            if (at := self._last_output_at(rank)) is not None:
                watch.heard(rank, at)
            if told := self._progress(watch.attempt, rank):
                watch.heard(rank, told[1])
        for rank in watch.ranks() - pids.keys():
            watch.ended(rank)

    def _progress(self, attempt: int, rank: int) -> tuple[int, float] | None:
        return read_progress(self._progress_file(attempt, rank))

    def _looked(self, now: float) -> list[ev.Event]:
        probe = self._probe
        if probe is None:
            return []
        look = probe.result()
        if look is None:
            self._wait_for(probe.fds())
            return []
        self._end_look()
        watch = self._watch
        if watch is None or self._running() != watch.attempt:
            return []
        judgement = watch.looked(look, now)
        if isinstance(judgement, Hung):
            if not any(thread.frames for shot in look for thread in shot.threads):
                self._want_last_words(watch.attempt)
            return [ev.HangFound(attempt=watch.attempt, evidence=judgement.evidence)]
        return []

    def _wait_for(self, fds: tuple[int, ...]) -> None:
        for fd in set(self._fds) - set(fds):
            self._reactor.forget(fd)
        for fd in set(fds) - set(self._fds):
            self._reactor.watch(fd, self.ready)
        self._fds = fds

    def _end_look(self) -> None:
        self._wait_for(())
        if self._probe is not None:
            self._probe.kill()
            self._probe = None
