"""The kinds of a setting's value, and their readers from text and YAML. For invalid input a reader returns None."""

from __future__ import annotations

import enum
from typing import assert_never

from holdfast.model import amounts
from holdfast.model.noun_base import Noun

Value = str | bool | int | float | tuple[str, ...] | None


class ValueKind(enum.Enum):
    """The kind of a value. Error messages print the enum's value as the expected form."""

    TEXT = "text"
    FLAG = "true or false"
    COUNT = "a whole number, 0 or more"
    TIMES = "off, or a whole number, 2 or more"
    SECONDS = amounts.DURATION
    SIZE = amounts.SIZE
    LIMIT = "a share such as 90%, a size such as 500G, or a number such as `5000000 inodes`"
    NAMES = "names separated by commas, or a list of names"
    FILES = "a path, or a list of paths"
    FILE = "a path"


class DiskLimit(Noun, frozen=True, kw_only=True):
    """How much of a disk may be used. Exactly one of the three fields is set."""

    percent: float | None = None
    size_bytes: int | None = None
    inodes: int | None = None


def read_value(kind: ValueKind, raw: object) -> Value:
    """Convert a text or a YAML value to this kind. Return None if it is not valid for the kind."""
    match kind:
        case ValueKind.FLAG:
            return _flag(raw)
        case ValueKind.COUNT:
            return _count(raw)
        case ValueKind.TIMES:
            return times(raw)
        case ValueKind.SECONDS:
            return amounts.seconds(raw)
        case ValueKind.SIZE:
            limit = disk_limit(raw)
            return str(raw).strip() if limit is not None and limit.size_bytes is not None else None
        case ValueKind.LIMIT:
            return str(raw).strip() if disk_limit(raw) is not None else None
        case ValueKind.NAMES:
            return _names(raw)
        case ValueKind.FILES:
            return _files(raw)
        case ValueKind.TEXT | ValueKind.FILE:
            plain = isinstance(raw, str | int) and not isinstance(raw, bool)
            return (str(raw) or None) if plain else None
        case _:
            assert_never(kind)


_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _flag(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else _FLAGS.get(str(raw).strip().lower())


def _count(raw: object) -> int | None:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return None
    try:
        return int(raw)
    except ValueError:
        return None


def times(raw: object) -> int | None:
    """Read a count of 2 or more, or 0 for `off` (false in YAML). Return None for any other value."""
    if raw is False or str(raw).strip().lower() in ("off", "0", "no", "false"):
        return 0
    number = _count(raw)
    return number if number is not None and number >= 2 else None


def disk_limit(raw: object) -> DiskLimit | None:
    """Read `90%`, `500G` or `5000000 inodes`. Return None for any other value."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return None
    text = str(raw).strip().upper()
    if text.endswith("%"):
        share = _share(text.removesuffix("%"))
        return DiskLimit(percent=share) if 0 < share <= 100 else None
    if text.endswith("INODES"):
        inodes = _count(text.removesuffix("INODES"))
        return DiskLimit(inodes=inodes) if inodes is not None and inodes > 0 else None
    size_bytes = amounts.size_bytes(text)
    return DiskLimit(size_bytes=size_bytes) if size_bytes is not None and size_bytes > 0 else None


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _names(raw: object) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        names = tuple(part.strip() for part in raw.split(",") if part.strip())
        return names or None
    if isinstance(raw, list | tuple) and all(isinstance(item, str) and item for item in raw):
        return tuple(raw)
    return None


def _files(raw: object) -> tuple[str, ...] | None:
    """Read a list of paths, or a text with `:` between paths as in PATH. Return None for any other value."""
    if isinstance(raw, str):
        return tuple(part for part in raw.split(":") if part) or None
    if isinstance(raw, list | tuple) and all(isinstance(item, str) and item for item in raw):
        return tuple(raw)
    return None
