"""The zone of this machine's clock, for what a person reads on a terminal. `TZ=UTC` in the environment gives UTC."""

from __future__ import annotations

import time

from holdfast.model import in_words


def local(at: float) -> float:
    """Local time minus UTC, in seconds, at `at` (seconds since the epoch); 0 where no calendar has that moment."""
    try:
        return time.localtime(at).tm_gmtoff
    except (OverflowError, ValueError, OSError):
        return 0.0


def clock(at: float) -> str:
    """`2026-11-22 14:20:01 +01:00`: the moment on this machine's clock."""
    return in_words.clock(at, local)
