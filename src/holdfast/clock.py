"""Provides seconds since the epoch that never jump.

The wall clock is read once. From then on the monotonic clock advances the time, so that a correction of the system
clock can neither trigger a deadline early nor delay it.
"""

from __future__ import annotations

import time


class Clock:
    """The clock of one process. A run creates one, and it dates everything in the run."""

    def __init__(self) -> None:
        #: When the machine booted. The kernel's time stamps count from this time.
        self.boot = time.time() - time.monotonic()

    def not_before(self, moment: float) -> None:
        """Advance the clock if necessary, so that no later time is before `moment`, which another machine
        has recorded.
        """
        self.boot = max(self.boot, moment - time.monotonic())

    def now(self) -> float:
        return self.boot + time.monotonic()
