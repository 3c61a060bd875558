"""Sentences for tired people: templates filled with what the evidence knows, and numbers with their units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.plain import utc
from holdfast.untrusted import LATEST_S

_FIELD = re.compile(r"\{(\w+)(?:\?([^{}]*))?\}")


def fill(template: str, fields: Mapping[str, str]) -> str | None:
    """The template with its fields; None where one is unknown and the template gives no words for that."""
    missing = False

    def one(match: re.Match[str]) -> str:
        nonlocal missing
        if value := fields.get(match[1]):
            return value
        if match[2] is None:
            missing = True
            return ""
        return match[2]

    text = _FIELD.sub(one, template).strip()
    return None if missing else text


_EARLIEST_S = 1_000_000.0
"""A number of seconds below this counts from a boot: it is no date."""


def clock(at: float | None) -> str:
    """`21:51:19` (UTC) of a moment; empty where it is unknown or no date (a kernel's seconds since boot)."""
    if at is None or not _EARLIEST_S <= at <= LATEST_S:
        return ""
    return utc(at, "%H:%M:%S")


def size(count: float) -> str:
    """`20.0 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds(count: float) -> str:
    """`42 s`, `12 min`, `3.5 h`."""
    if count < 120:
        return f"{count:.0f} s" if count >= 10 else f"{count:.1f} s"
    return f"{count / 60:.0f} min" if count < 7200 else f"{count / 3600:.1f} h"


def ranks(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 2 and 3`, `ranks 0 to 7`."""
    ordered = sorted(set(numbers))
    if not ordered:
        return "no rank"
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]} to {ordered[-1]}"
    if len(ordered) > 12:
        return f"{len(ordered)} ranks (lowest {ordered[0]}, highest {ordered[-1]})"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def cut(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning and the end, as a message's point stands in either."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head].rstrip()} … {text[-(limit - head - 3) :].lstrip()}"


def one_line(text: str, limit: int = 300) -> str:
    """The text on one line, cut."""
    return cut(" ".join(text.split()), limit)
