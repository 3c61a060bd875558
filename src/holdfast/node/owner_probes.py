"""Carries out two kinds of requests of the owner: to sample a node's ranks, and to measure links to its peers."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.gang_protocol import (
    Closeness,
    ClosePort,
    LookAtRanks,
    MeasurePeer,
    OpenPort,
    PeerMeasured,
    PortOpen,
    RankActivity,
    RanksSeen,
)
from holdfast.observe.link_exchange import PeerPort, PeerProbe
from holdfast.observe.progress_reader import read_progress
from holdfast.observe.rank_look import HangProbe, bounded, look_lightly
from holdfast.observe.repeated_lines import RepeatedLines

if TYPE_CHECKING:
    from holdfast.act.workers import Workers
    from holdfast.observe.output_pump import OutputPump
    from holdfast.reactor import Reactor


#: If a rank reports no steps, repeated lines count as signs of life for at most this many hang time-outs.
REPEATS_FACTOR = 2.0


class HangSampler:
    """Samples one node's ranks. A new sample replaces a running one.

    `tell`: sends the result to the owner. `progress_file(attempt, rank)`: the file in which the rank writes its steps.
    `timeout_s`: the hang time-out; None: holdfast only warns about silent ranks, and every printed line is a sign of
    life.
    """

    def __init__(
        self,
        reactor: Reactor,
        tell: Callable[[RanksSeen], None],
        workers: Workers,
        output: OutputPump,
        progress_file: Callable[[int, int], Path],
        timeout_s: float | None,
    ) -> None:
        self._reactor = reactor
        self._tell = tell
        self._workers = workers
        self._output = output
        self._progress_file = progress_file
        self._timeout_s = timeout_s
        self._lines: defaultdict[int, RepeatedLines] = defaultdict(RepeatedLines)
        self._asked: LookAtRanks | None = None
        self._probe: HangProbe | None = None
        self._fds: tuple[int, ...] = ()
        reactor.deadlines(self._next_wake, self._tick)

    def look(self, asked: LookAtRanks, now: float) -> None:
        """Sample the ranks for the owner's request (`asked`). Send the result at once, or after the last stack was
        read.
        """
        self.close()
        if self._asked is not None and self._asked.attempt != asked.attempt:
            self._lines.clear()
        self._asked = asked
        pids = self._workers.pids()
        if asked.closeness is Closeness.WORDS:
            heard = tuple(RankActivity(rank=rank, at=self._heard_at(asked.attempt, rank, now)) for rank in pids)
            self._tell(RanksSeen(attempt=asked.attempt, number=asked.number, heard=heard))
            return
        outputs = {rank: at for rank in pids if (at := self._new_line_at(asked.attempt, rank)) is not None}
        repeating = [rank for rank in outputs if outputs[rank] != self._output.last_output_at(rank)]
        steps = {rank: told for rank in pids if (told := self._progress(asked.attempt, rank)) is not None}
        look = look_lightly(pids, now, last_output_at=outputs, progress=steps, repeating=repeating)
        if asked.closeness is Closeness.LIGHT:
            self._tell(RanksSeen(attempt=asked.attempt, number=asked.number, look=bounded(look)))
            return
        self._probe = HangProbe(look, now, native=asked.native)
        self._looked()

    def _heard_at(self, attempt: int, rank: int, now: float) -> float | None:
        if self._output.paused:
            # a slow terminal blocks the workers' writes, so silence is no sign of a hang
            return now
        told = self._progress(attempt, rank)
        moments = (self._new_line_at(attempt, rank), told[1] if told is not None else None)
        return max((at for at in moments if at is not None), default=None)

    def _new_line_at(self, attempt: int, rank: int) -> float | None:
        """Return when the rank last printed a line that counts as a sign of life."""
        at = self._output.last_output_at(rank)
        if self._timeout_s is None or at is None:
            return at
        told = self._progress(attempt, rank) is not None
        new_at = self._lines[rank].new_at(at, self._output.ends(rank), only_counts=told)
        return new_at if told or new_at is None or at - new_at > REPEATS_FACTOR * self._timeout_s else at

    def _progress(self, attempt: int, rank: int) -> tuple[int, float] | None:
        return read_progress(self._progress_file(attempt, rank))

    def _ready(self, fd: int, now: float) -> None:
        if self._probe is not None:
            self._reactor.forget(fd)
            self._fds = tuple(other for other in self._fds if other != fd)
            self._probe.ready(fd, now)
            self._looked()

    def _next_wake(self) -> float | None:
        return self._probe.next_wake() if self._probe is not None else None

    def _tick(self, now: float) -> None:
        if self._probe is not None:
            self._wait_for(())
            self._probe.tick(now)
            self._looked()

    def _looked(self) -> None:
        assert self._probe is not None and self._asked is not None
        look = self._probe.result()
        if look is None:
            self._wait_for(self._probe.fds())
            return
        self.close()
        self._tell(RanksSeen(attempt=self._asked.attempt, number=self._asked.number, look=bounded(look)))

    def _wait_for(self, fds: tuple[int, ...]) -> None:
        for fd in set(self._fds) - set(fds):
            self._reactor.forget(fd)
        for fd in set(fds) - set(self._fds):
            self._reactor.watch(fd, self._ready)
        self._fds = fds

    def close(self) -> None:
        self._wait_for(())
        if self._probe is not None:
            self._probe.kill()
            self._probe = None


class LinkProbe:
    """Measures links to peers.

    `among`: the first and the last port that the probe may open (for firewalls); None: any port. `tell`: sends the
    result to the owner.
    """

    def __init__(
        self, reactor: Reactor, among: tuple[int, int] | None, tell: Callable[[PortOpen | PeerMeasured], None]
    ) -> None:
        self._reactor = reactor
        self._among = among
        self._tell = tell
        self._port: PeerPort | None = None
        self._probes: set[PeerProbe] = set()

    def take(self, order: OpenPort | MeasurePeer | ClosePort, now: float) -> None:
        """Carry out the owner's request: open a port, measure the link to a peer, or close the port."""
        match order:
            case OpenPort():
                self.close()
                self._open(order)
            case MeasurePeer():
                self._probes.add(PeerProbe(order, self._reactor, now, self._measured))
            case ClosePort():
                self.close()

    def close(self) -> None:
        """Stop measuring links, and close the port that peers connect to."""
        for probe in self._probes:
            probe.close()
        self._probes.clear()
        if self._port is not None:
            self._port.close()
            self._port = None

    def _open(self, order: OpenPort) -> None:
        try:
            self._port = PeerPort(order, self._reactor, self._ports())
        except OSError as error:
            why = f"no port can be opened: {error.strerror or error}"
            self._tell(PortOpen(attempt=order.attempt, round=order.round, trouble=why))
            return
        self._tell(PortOpen(attempt=order.attempt, round=order.round, port=self._port.port))

    def _ports(self) -> Iterator[int]:
        if self._among is None:
            yield 0
            return
        first, last = self._among
        # Jobs with the same port range start at different ports, from the end; the search for MASTER_PORT starts at the
        # beginning.
        begin = last - os.getpid() % (last - first + 1)
        yield from range(begin, first - 1, -1)
        yield from range(last, begin, -1)

    def _measured(self, probe: PeerProbe, said: PeerMeasured) -> None:
        self._probes.discard(probe)
        self._tell(said)
