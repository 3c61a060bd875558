"""Reads the resource limits of a worker that has exited, before the worker is reaped."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from holdfast.model.exit_report import LimitKind, ProcessLimit

#: Name in /proc/PID/limits → kind of limit in the report, and number of the resource.
_KINDS = {
    "Max cpu time": (LimitKind.CPU, resource.RLIMIT_CPU),
    "Max file size": (LimitKind.FILE, resource.RLIMIT_FSIZE),
    "Max address space": (LimitKind.ADDRESS_SPACE, resource.RLIMIT_AS),
    "Max data size": (LimitKind.DATA, resource.RLIMIT_DATA),
}


def limits_of(pid: int) -> tuple[ProcessLimit, ...]:
    """Return the limits of this process; empty if it has no limit of these kinds, or may not be read."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    return tuple(_limits(text))


def _limits(text: str) -> Iterator[ProcessLimit]:
    for line in text.splitlines():
        name = line[:26].strip()
        words = line[26:].split()
        if name not in _KINDS or len(words) < 2 or not words[0].isdigit():
            continue
        kind, number = _KINDS[name]
        soft, hard = int(words[0]), int(words[1]) if words[1].isdigit() else None
        own = [None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(number)]
        inherited = own[0] is not None and own[1] == hard and soft >= own[0]
        if inherited and kind is LimitKind.CPU:
            # Show the original limit, because the kernel raises this one by a second at each SIGXCPU.
            soft = own[0] or soft
        yield ProcessLimit(kind=kind, soft=soft, hard=hard, inherited=inherited)
