"""Converts a line's time stamp to seconds since the epoch, as far as the stamp and its file allow.

Most stamps are incomplete: glog, torch, NCCL and syslog write no year, and few loggers write their time zone. Two
assumptions supply the missing parts: a line is not newer than the last write to its file, and its time is local time. A
clock time without a date stays without a date.
"""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

#: Seconds by which a stamp may be later than the last write to its file, because its zone differs or its clock is fast.
SLACK_S = 86_400.0

MONTHS = {name: i for i, name in enumerate(re.findall("...", "JanFebMarAprMayJunJulAugSepOctNovDec"), 1)}
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
#: Prefixes of the group names in the pattern for time stamps. Each date format has its own prefix.
_FORMS = ("", "g", "s", "c", "a", "v", "n")


class Origin(NamedTuple):
    """Facts about the file of a text that complete the time stamps in it."""

    #: Name of the log, such as `worker-1 stderr`, or of the file.
    source: str = ""
    #: When the file was last written, in seconds since the epoch; None: unknown, so that the year is unknown too.
    written_at: float | None = None
    #: Local time minus UTC when the file was last written, in seconds.
    utc_offset_s: float = 0.0


class Stamp(NamedTuple):
    """A parsed time stamp."""

    #: Seconds since the epoch if `dated`; otherwise only differences between stamps of the same kind are meaningful.
    at: float
    dated: bool
    #: The level letter of a glog stamp; empty for other stamps.
    level: str = ""


def read_stamp(match: re.Match[str], origin: Origin) -> Stamp | None:
    """Convert a match of the time pattern in `log_lines`; None if the numbers are no date."""
    g = match.groupdict()
    if g["ep"]:
        fraction = g["ef"] or ""
        return Stamp(float(g["ep"]) + (float(f"0.{fraction.lstrip('.')}") if fraction else 0.0), True)
    for form in _FORMS:
        if (month := g[f"{form}mo"]) is None:
            continue
        number = MONTHS.get(month, 0) if month.isalpha() else int(month)
        day = int(g[f"{form}d"])
        if not (1 <= number <= 12 and 1 <= day <= 31):
            return None
        clock = _clock(g[f"{form}h"], g[f"{form}mi"], g[f"{form}s"], g.get(f"{form}f"))
        zone = g.get(f"{form}z")
        offset = origin.utc_offset_s if zone is None else _offset(zone)
        if year := g.get(f"{form}y"):
            whole = max(1, int(year)) if len(year) == 4 else 2000 + int(year)
            return Stamp(_days(whole, number, day) * 86_400 + clock - offset, True, g["gl"] or "")
        if origin.written_at is None:
            return Stamp(_days(1970, number, day) * 86_400 + clock, False, g["gl"] or "")
        at = _newest(number, day, clock - offset, origin.written_at + SLACK_S)
        return Stamp(at, True, g["gl"] or "")
    return Stamp(_clock(g["th"], g["tmi"], g["ts"], g["tf"]), False)


def _clock(hour: str, minute: str, second: str, fraction: str | None) -> float:
    digits = (fraction or "").strip(".,:").replace(".", "").replace(":", "")
    return (int(hour) * 60 + int(minute)) * 60 + int(second) + (float(f"0.{digits}") if digits else 0.0)


def _days(year: int, month: int, day: int) -> int:
    return datetime.date(year, month, 1).toordinal() + day - 1 - _EPOCH_DAY


def _newest(month: int, day: int, seconds: float, limit: float) -> float:
    """Return the latest time not after `limit` that has this month and day. `seconds`: the time of day in UTC."""
    year = datetime.datetime.fromtimestamp(limit, datetime.UTC).year + 1
    for tried in range(year, year - 9, -1):  # 29 February occurs at least once in eight years
        try:
            datetime.date(tried, month, day)
        except ValueError:
            continue
        at = _days(tried, month, day) * 86_400 + seconds
        if at <= limit:
            return at
    return _days(year - 1, month, day) * 86_400 + seconds


def _offset(zone: str) -> int:
    zone = zone.strip().replace(":", "")
    if len(zone) != 5:
        return 0  # the zone is Z, UTC or GMT
    seconds = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    return seconds if zone[0] == "+" else -seconds
