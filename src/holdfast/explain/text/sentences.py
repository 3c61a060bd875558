"""Fills in templates of sentences, and formats numbers with their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.lazy_pattern import Lazy
from holdfast.model import human_format
from holdfast.model.evidence import MemoryKill
from holdfast.model.human_format import Zone, duration, ranks, utc
from holdfast.untrusted import LATEST_S

if TYPE_CHECKING:
    import re

__all__ = ["clock", "fill_template", "kill_words", "one_line", "ranks", "seconds", "shortened", "size_in_words"]

_FIELD = Lazy(r"\{(\w+)(?:\?([^{}]*))?\}")


def fill_template(template: str, fields: Mapping[str, str]) -> str | None:
    """Fill in the template's fields; return None if a field is unknown and the template has no default for it."""
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


#: Times below this number of seconds count from the machine's boot, and are not dates.
_EARLIEST_S = 1_000_000.0


def clock(at: float | None, zone: Zone = utc) -> str:
    """Format a time with `human_format.clock`; empty if the time is unknown or counts from the machine's boot, as the
    kernel's times do."""
    if at is None or not _EARLIEST_S <= at <= LATEST_S:
        return ""
    return human_format.clock(at, zone)


def size_in_words(count: float) -> str:
    """Format a number of bytes: `20.0 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


seconds = duration


def shortened(text: str, limit: int) -> str:
    """Cut the middle out of a text that has more than `limit` characters: the important parts are at the ends."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head].rstrip()} … {text[-(limit - head - 3) :].lstrip()}"


def one_line(text: str, limit: int = 300) -> str:
    """Return the text on one line, shortened to `limit` characters."""
    return shortened(" ".join(text.split()), limit)


def kill_words(kill: MemoryKill) -> str:
    """Return a clause about the memory limit that caused the kill, with limit, peak and size."""
    around = kill.limited_by or "the container that holdfast runs in"
    scope = {
        "worker": "killed at its own memory limit",
        "container": f"killed at the memory limit of {around}",
    }.get(kill.scope, "killed by the kernel because the host's memory ran out")
    parts = [scope]
    if kill.limit_bytes is not None:
        parts.append(f"limit {size_in_words(kill.limit_bytes)}")
    if kill.peak_bytes is not None:
        parts.append(f"peak {size_in_words(kill.peak_bytes)}")
    if kill.rss_bytes is not None:
        parts.append(f"the process itself held {size_in_words(kill.rss_bytes)}")
    return ", ".join(parts)
