"""The zone of this machine's clock, for times on a terminal; or UTC, where the user has asked for it.

`TZ` of the environment would do the same, and would also be that of the user's workers.
"""

from __future__ import annotations

import time

from holdfast.model import human_format

_asked_for_utc = False


def use_utc(wanted: bool = True) -> None:
    """From now on this process prints its times in UTC."""
    global _asked_for_utc
    _asked_for_utc = wanted


def local(at: float) -> float:
    """Local time minus UTC, in seconds, at `at` (seconds since the epoch); 0 where no calendar has that moment."""
    if _asked_for_utc:
        return 0.0
    try:
        return time.localtime(at).tm_gmtoff
    except (OverflowError, ValueError, OSError):
        return 0.0


def clock(at: float) -> str:
    """`2026-11-22 14:20:01 +01:00`: the moment on this machine's clock."""
    return human_format.clock(at, local)


def ago(at: float, now: float) -> str:
    """`3 min ago`, `2 h ago`: one unit is enough of an age."""
    return " ".join(human_format.duration(max(now - at, 0.0)).split()[:2]) + " ago"
