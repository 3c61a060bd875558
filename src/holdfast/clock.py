"""Seconds since the epoch that never jump.

Wall time is read once; from then on the monotonic clock carries it forward, so that a corrected system clock can
neither fire a deadline nor hold one back.
"""

from __future__ import annotations

import time


class Clock:
    """The time of one process. A run makes one, and everything in it is dated by that."""

    def __init__(self) -> None:
        self.boot = time.time() - time.monotonic()
        """The moment that the kernel's own stamps count from."""

    def not_before(self, moment: float) -> None:
        """What another machine has dated goes on here: from now on no moment is earlier than its last."""
        self.boot = max(self.boot, moment - time.monotonic())

    def now(self) -> float:
        return self.boot + time.monotonic()
