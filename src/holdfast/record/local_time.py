"""The time zone of times that are printed on a terminal: this machine's zone, or UTC on request.

It does not change the variable `TZ`, because the user's workers would inherit that.
"""

from __future__ import annotations

import time

from holdfast.model import human_format

_asked_for_utc = False


def use_utc(wanted: bool = True) -> None:
    """Make this process print times in UTC. `wanted` False: print local times again."""
    global _asked_for_utc
    _asked_for_utc = wanted


def local(at: float) -> float:
    """Return local time minus UTC in seconds, at the time `at`; 0 if `at` is out of range.

    `at`: seconds since the epoch.
    """
    if _asked_for_utc:
        return 0.0
    try:
        return time.localtime(at).tm_gmtoff
    except (OverflowError, ValueError, OSError):
        return 0.0


def clock(at: float) -> str:
    """Format a time in the local zone: `2026-11-22 14:20:01 +01:00`."""
    return human_format.clock(at, local)


def ago(at: float, now: float) -> str:
    """Format an age with only its largest unit: `3 min ago`, `2 h ago`."""
    return " ".join(human_format.duration(max(now - at, 0.0)).split()[:2]) + " ago"
