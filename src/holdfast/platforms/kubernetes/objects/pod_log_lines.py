"""Parse a pod's log that the API server sends with `timestamps=true`: time, space, line."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Pod

#: Longer lines are split.
MOST_LINE_BYTES = 1 << 20


def container_of(found: Pod) -> str:
    """Return the name of the container whose log counts as the pod's log."""
    return object_names.TASK if found.labels.get(object_names.PART) == object_names.AGENT else object_names.OWNER


def query_of(found: Pod, *, since: float | None, lines: int | None) -> Mapping[str, str]:
    """Return the query for a pod's log.

    `since`: seconds since the epoch, rounded down. `lines`: number of last lines.
    """
    query = {"container": container_of(found), "timestamps": "true"}
    if since is not None:
        query["sinceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.floor(max(since, 0.0))))
    if lines is not None:
        query["tailLines"] = str(lines)
    return query


def lines_in(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Join blocks and yield whole lines with their line ends; the last line may lack one."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > MOST_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest


def timed(line: bytes) -> tuple[int | None, bytes]:
    """Split off the time, in nanoseconds since the epoch; None: the line has none."""
    moment, space, text = line.partition(b" ")
    at = _nanoseconds(moment.rstrip(b"\n").decode("ascii", "replace"))
    return (at, text) if at is not None and (space or moment.endswith(b"\n")) else (None, line)


@lru_cache(maxsize=64)
def _seconds(text: str) -> int:
    """Parse to whole seconds. Cached, because many lines share a second. Raises ValueError."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _nanoseconds(text: str) -> int | None:
    """Parse an RFC 3339 time such as `2026-11-22T21:30:00.123456789Z` or `…+01:00` to nanoseconds since the epoch."""
    try:
        whole = _seconds(text[:19])
        rest = text[19:]
        digits = rest[1:].partition("Z")[0].partition("+")[0].partition("-")[0] if rest.startswith(".") else ""
        zone = rest[len(digits) + bool(digits) :]
        if zone not in ("Z", ""):
            hours, _, minutes = zone[1:].partition(":")
            whole -= {"+": 1, "-": -1}[zone[0]] * (int(hours) * 3600 + int(minutes) * 60)
        return whole * 1_000_000_000 + int(digits[:9].ljust(9, "0") or 0)
    except (ValueError, KeyError):
        return None
