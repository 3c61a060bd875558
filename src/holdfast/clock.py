"""Provides seconds since the epoch that never jump.

The wall clock is read once; from then on the monotonic clock advances the time. So a correction of the system clock can
neither trigger a deadline early nor delay it.
"""

from __future__ import annotations

import time


class Clock:
    """The time of one process. A run creates one, which dates everything in the run."""

    def __init__(self) -> None:
        #: The time of the boot: the zero of the kernel's own time stamps.
        self.boot = time.time() - time.monotonic()

    def not_before(self, moment: float) -> None:
        """Make sure that no later time is earlier than `moment`, a time recorded by another machine."""
        self.boot = max(self.boot, moment - time.monotonic())

    def now(self) -> float:
        return self.boot + time.monotonic()
