"""Reads and formats durations and sizes as users type them: `90`, `5m`, `1d12h`; `1024`, `500M`, `16GiB`."""

from __future__ import annotations

import math

#: The forms of durations and sizes that users may type, as text for messages.
DURATION = "seconds, or a time such as 5m, 2h or 1d12h"
SIZE = "bytes, or a size such as 500M, 16GiB or 1.5T"

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
#: Other spellings of the units, in the singular form → the unit. A plural with `s` is accepted too.
_NAMES = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hr": "h", "hour": "h", "day": "d", "week": "w"}
_POWERS = "KMGTP"


def seconds(raw: object) -> float | None:
    """Read a duration: a number of seconds, or numbers with units, the greater unit first; None for any other value."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    try:
        value = float(raw)
    except ValueError:
        return _with_units(str(raw).strip().lower())
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _with_units(text: str) -> float | None:
    sign = -1 if text.startswith("-") else 1
    rest = text.removeprefix("-")
    total, before_s = 0.0, math.inf
    while rest:
        number = _leading(rest, "0123456789.")
        rest = rest[len(number) :].lstrip()
        name = _leading(rest, "abcdefghijklmnopqrstuvwxyz")
        rest = rest[len(name) :].lstrip()
        unit_s = _UNITS_S.get(name) or _UNITS_S.get(_NAMES.get(name.removesuffix("s"), ""))
        if unit_s is None or unit_s >= before_s or number.count(".") > 1 or number in ("", "."):
            return None
        total, before_s = total + float(number) * unit_s, unit_s
    return sign * total if before_s < math.inf and math.isfinite(total) else None


def _leading(text: str, letters: str) -> str:
    return text[: len(text) - len(text.lstrip(letters))]


def shown(duration_s: float) -> str:
    """Return a duration in the form that `seconds` reads: `30s`, `10m`, `4h`, `1d12h`."""
    rest, parts = duration_s, []
    for unit in ("w", "d", "h", "m"):
        count, rest = divmod(rest, _UNITS_S[unit]) if unit != "w" or rest % _UNITS_S["w"] == 0 else (0.0, rest)
        parts += [f"{count:g}{unit}"] if count else []
    return "".join(parts) + (f"{rest:g}s" if rest or not parts else "")


def size_bytes(raw: object) -> int | None:
    """Read a size: a number of bytes, or a number with a unit that is a power of 1024; None for any other value."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return None
    if isinstance(raw, int):
        return raw
    text = raw.strip().upper().removesuffix("B").removesuffix("I")
    power = _POWERS.find(text[-1:]) + 1 if text else 0
    number = text[:-1].rstrip() if power else text
    try:
        return int(float(number) * 1024**power)
    except (ValueError, OverflowError):
        return None
