"""Formats times with their zone, durations and ranks as text, for stored reports and for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: A function from a time (seconds since the epoch) to local time minus UTC in seconds, at that time.
Zone = Callable[[float], float]

#: The times at the beginning of year 1 and at the end of year 9999, in seconds since the epoch.
_FIRST_S, _LAST_S = -62_135_596_800.0, 253_402_300_799.0
#: The units of durations: (from this many seconds, larger unit in seconds, its name, smaller unit in seconds, its
#: name).
_UNITS = ((172_800, 86_400, "d", 3_600, "h"), (3_600, 3_600, "h", 60, "min"), (60, 60, "min", 1, "s"))
_MOST_RUNS = 12


def utc(_: float) -> float:
    """Return 0, the offset of UTC, for times whose local zone is unknown, such as those in the journal."""
    return 0.0


def clock(at: float, zone: Zone = utc) -> str:
    """Return a time as `2026-11-22 14:20:01 +01:00` or `… UTC`; the bare number if it is outside the years 1 to
    9999. `at`: seconds since the epoch.
    """
    if not _FIRST_S <= at <= _LAST_S:
        return f"{at:g} s"
    offset_s = round(zone(at))
    local_s = int(at // 1) + offset_s
    if not _FIRST_S <= local_s <= _LAST_S:
        offset_s, local_s = 0, int(at // 1)
    days, second = divmod(local_s, 86_400)
    year, month, day = _date(days)
    time = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d} {time} {_zone(offset_s)}"


def linked(chain: Sequence[str]) -> str:
    """Join linked exceptions into one clause: `A: a, because B: b while handling C: c`."""
    told = chain[0]
    for text in chain[1:]:
        told = f"{told.rstrip('.')}{' ' if text.startswith('while ') else ', '}{text}"
    return told


def duration(seconds: float) -> str:
    """Return a duration as `40 ms`, `0.4 s`, `12 s`, `3 min 20 s`, `24 h`, `5 h 2 min`, `3 d 4 h`.

    A huge or infinite number is returned as plain seconds.
    """
    if not seconds < 1e15:
        return f"{seconds:g} s"
    if seconds < 0.0995:
        return f"{max(seconds, 0.0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for least_s, unit_s, unit, part_s, part in _UNITS:
        if whole >= least_s:
            more = whole % unit_s // part_s
            return f"{whole // unit_s} {unit} {more} {part}" if more else f"{whole // unit_s} {unit}"
    return f"{whole} s"


def ranks(numbers: Sequence[int]) -> str:
    """Return ranks as `ranks 0, 2 and 3` or `ranks 0 to 7 and 12`. For many scattered ranks, return their number, the
    lowest and the highest.
    """
    ordered = sorted(set(numbers))
    if not ordered:
        return "no rank"
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts: list[str] = []
    for first, last in runs:
        parts += [f"{first} to {last}"] if last > first + 1 else [str(rank) for rank in range(first, last + 1)]
    if len(parts) > _MOST_RUNS:
        return f"{len(ordered)} ranks (lowest {ordered[0]}, highest {ordered[-1]})"
    return f"ranks {', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else f"ranks {parts[0]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 worker`, `0 workers`. `plural`: the noun's plural, if it is not formed with an
    `s`.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def everyone(number: int, noun: str) -> str:
    """Return a group of things in words: `the worker`, `both workers`, `all 4 workers`."""
    return f"the {noun}" if number == 1 else f"both {noun}s" if number == 2 else f"all {number} {noun}s"


def share(some: int, every: int, noun: str) -> str:
    """Return a part of a group in words: `2 of 4 ranks`, or `both ranks` if it is the whole group."""
    return everyone(every, noun) if some == every else f"{some} of {every} {noun}s"


def with_address(node: str, address: str) -> str:
    """Return a node as `gpu-07 (10.1.2.7)`. Return only the name if it contains the address or no address is known."""
    return f"{node} ({address})" if address and address not in node else node


def _zone(offset_s: int) -> str:
    if not offset_s:
        return "UTC"
    hours, minutes = divmod(round(abs(offset_s) / 60), 60)
    return f"{'-' if offset_s < 0 else '+'}{hours:02d}:{minutes:02d}"


def _date(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day counted from 1970-01-01.

    It replaces `datetime`, whose import would delay each start by 2 ms. Years count from the first of March, so that a
    leap day is the last day of its year. The calendar repeats after 400 years.
    """
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return 400 * era + year_of_era + (month <= 2), month, day


def natural(name: str) -> tuple[object, ...]:
    """Return a sort key that compares numbers in names as numbers: gpu2 before gpu10."""
    parts: list[object] = []
    text = ""
    for char in name:
        if char.isdigit() == (text[-1:].isdigit()) and text:
            text += char
        else:
            if text:
                parts.append(_part(text))
            text = char
    parts.append(_part(text))
    return tuple(parts)


def _part(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isascii() and text.isdigit() else (1, 0, text)
