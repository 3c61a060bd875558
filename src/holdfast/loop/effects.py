"""Evidence of deaths that a platform's signal may have caused: it waits until the platform has said what it meant.

Where a platform signals every process of a job, workers die of it before the owner has asked, and sometimes before the
signal has reached any process of holdfast's. What explains such a death is the platform's word.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from holdfast.model import events as ev

if TYPE_CHECKING:
    from holdfast.loop.platform import Platform
    from holdfast.reactor import Reactor

ARRIVES_S = 0.5
"""A signal that has killed a worker reaches a process of holdfast's within this time."""


class Effects:
    """What waits, and until when."""

    def __init__(self, platform: Platform, reactor: Reactor) -> None:
        self._platform = platform
        self._reactor = reactor
        self._held: list[ev.EvidenceCollected] = []
        self._until = 0.0

    def holds(self, event: ev.Event, now: float) -> bool:
        """Whether this one has to wait."""
        if not isinstance(event, ev.EvidenceCollected) or event.evidence.stop is not None:
            return False
        terminated = any(
            worker.exit is not None and worker.exit.signal == signal.SIGTERM for worker in event.evidence.workers
        )
        if not terminated and not self._platform.asking:
            return False
        self._held.append(event)
        if not self._platform.asking:
            self._until = now + ARRIVES_S
            self._reactor.at(self._until, lambda now: None)
        return True

    def take(self, now: float) -> list[ev.EvidenceCollected]:
        """What has waited long enough."""
        if not self._held or self._platform.asking or now < self._until:
            return []
        held, self._held = self._held, []
        return held
