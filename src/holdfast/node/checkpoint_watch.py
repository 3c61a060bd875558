"""Looks for checkpoints of a running attempt, shortly after its workers have printed output.

The scan comes a moment after the output, because a program opens its file only after it has printed "saving". A silent
job is not scanned. The pause after a scan grows with the time that the scan took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase
from holdfast.node import rare_parts

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.observe.checkpoint_files import CheckpointWatch

#: Seconds from a worker's output to the scan for checkpoints.
AFTER_S = 0.25
#: Shortest time between two scans, in seconds. After a slow scan the pause is longer, so that scans use at most 1 % of
#: a core.
GAP_S = 5.0
COST_FACTOR = 100.0


class CheckpointPoller:
    """Looks for finished checkpoints of one attempt after another.

    `heard_at()` returns the time of the workers' latest output. `pids()` returns rank → pid of the living workers.
    `ours`: holdfast's directories; their files are not checkpoints. `clock()` returns the present time.
    """

    def __init__(
        self,
        heard_at: Callable[[], float],
        pids: Callable[[], dict[int, int]],
        ours: tuple[Path, ...],
        clock: Callable[[], float],
    ) -> None:
        self._heard_at = heard_at
        self._pids = pids
        self._ours = tuple(str(path) for path in ours)
        self._clock = clock
        self._watch: CheckpointWatch | None = None
        self._looked_at = 0.0
        self._gap_s = GAP_S
        self._due: float | None = None
        self._running = False

    def entered(self, phase: Phase, now: float) -> None:
        """Handle a new phase of the gang. Before a stop, check the files that were open for writing at the last
        scan.
        """
        if phase is Phase.PREPARING:
            self._watch, self._looked_at = None, now
        elif phase is Phase.RUNNING:
            # A fast worker may print before all workers are up. Its output belongs to this attempt, so it counts.
            self._running, self._gap_s = True, 0.0
        elif self._running:
            self._running, self._due = False, None
            if phase is Phase.DRAINING and self._watch is not None and self._watch.waits:
                self._watch.look(self._pids().values())

    def finished(self) -> tuple[str, ...]:
        """Return the complete checkpoints of this attempt."""
        return () if self._watch is None else tuple(self._watch.finished)

    def next_wake(self) -> float | None:
        if self._running and self._due is None and (heard_at := self._heard_at()) > self._looked_at:
            self._due = max(heard_at + AFTER_S, self._looked_at + self._gap_s)
        return self._due

    def tick(self, now: float) -> None:
        self._due = None
        if self._running:
            if self._watch is None:
                self._watch = rare_parts.checkpoint_files.CheckpointWatch(self._ours)
            self._watch.look(self._pids().values())
            self._looked_at = now
            self._gap_s = max(GAP_S, COST_FACTOR * (self._clock() - now))
