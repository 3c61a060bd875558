"""Looks for checkpoints while an attempt runs, at moments when workers have just written output.

It has no timer of its own: it never looks at a silent job. It looks a moment after output, since a program that prints
"saving" opens its file next. The cost of a look bounds how often looks follow each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.decide.phases import Phase

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.observe.checkpoint_files import CheckpointWatch

#: From the output to the look.
AFTER_S = 0.25
#: The least time between two looks; they take at most a hundredth of a core.
GAP_S = 5.0
COST_FACTOR = 100.0


class CheckpointPoller:
    """`heard_at`: when any worker last wrote. `pids`: rank → pid of the workers that live. `clock`: now."""

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
        """The gang has entered another phase. Right before a stop, look once more at the files that were open."""
        if phase is Phase.PREPARING:
            self._watch, self._looked_at = None, now
        elif phase is Phase.RUNNING:
            # A quick worker has written before all are up: what counts is whether it wrote in this attempt.
            self._running, self._gap_s = True, 0.0
        elif self._running:
            self._running, self._due = False, None
            if phase is Phase.DRAINING and self._watch is not None and self._watch.waits:
                self._watch.look(self._pids().values())

    def finished(self) -> tuple[str, ...]:
        """The checkpoints of this attempt that were seen to be finished."""
        return () if self._watch is None else tuple(self._watch.finished)

    def next_wake(self) -> float | None:
        if self._running and self._due is None and (heard_at := self._heard_at()) > self._looked_at:
            self._due = max(heard_at + AFTER_S, self._looked_at + self._gap_s)
        return self._due

    def tick(self, now: float) -> None:
        from holdfast.observe.checkpoint_files import CheckpointWatch  # no start needs this import

        self._due = None
        if self._running:
            if self._watch is None:
                self._watch = CheckpointWatch(self._ours)
            self._watch.look(self._pids().values())
            self._looked_at = now
            self._gap_s = max(GAP_S, COST_FACTOR * (self._clock() - now))
