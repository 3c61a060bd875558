"""The supervisor's clock: seconds since the epoch that never jump.

Wall time is read once; from then on the monotonic clock carries it forward, so that a corrected system clock can
neither fire a deadline nor hold one back.
"""

from __future__ import annotations

import time


class Clock:
    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()
