"""Readers of /proc and /sys files that several checks share. An unreadable file counts as missing and raises
nothing.
"""

from __future__ import annotations

import os
import select
from functools import cache
from pathlib import Path

from holdfast.model.shown_command import shown
from holdfast.safe_files import small_text


def number(path: str | Path) -> int | None:
    """Return the whole number in a file; None if the file is missing or contains something else (`max`)."""
    try:
        return int(small_text(path))
    except ValueError:
        return None


def pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - only the names are needed


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, beginning with the process state: `[state, ppid, pgrp, session, …]`; empty
    if the process has exited."""
    return small_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def command(pid: int) -> str:
    """Return a process's quoted command line in at most 80 characters, or its name without one."""
    try:
        line = shown(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        line = ""
    return line or small_text(f"/proc/{pid}/comm") or "?"


def age_s(pid: int) -> float | None:
    """Return the seconds since the process started, or None if it has exited."""
    fields, up = stat(pid), small_text("/proc/uptime").split()
    try:
        return max(0.0, float(up[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return None


def variable(pid: int, name: str) -> str:
    """Return a variable of a process's initial environment; "" if the variable is unset, or another user owns the
    process."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{name}=".encode()
    return next((word[len(begin) :].decode(errors="replace") for word in words if word.startswith(begin)), "")


def ancestors() -> set[int]:
    """Return the pids of this process and all its ancestors, such as the supervisor."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = stat(pid)
        pid = int(fields[1]) if fields else 0
    return found


def pause(seconds: float) -> None:
    """Sleep during a measurement. The check has its own process, so that delays nothing else."""
    select.poll().poll(seconds * 1000)


def cgroup_files(controller: str, name: str) -> list[Path]:
    """Return the existing files `name` in this process's cgroup and its ancestors. `controller`: for v1."""
    found: list[Path] = []
    mounts = _cgroup_mounts()
    for line in small_text("/proc/self/cgroup").splitlines():
        _, controllers, place = line.split(":", 2)
        for kind, options, base, point in mounts:
            is_v2 = controllers == "" and kind == "cgroup2"
            is_v1 = kind == "cgroup" and controller in controllers.split(",") and controller in options
            if not is_v2 and not is_v1:
                continue
            root = Path(point)
            relative = os.path.relpath(place, base) if place.startswith(base) else "."
            folder = root / relative
            while folder != root.parent:
                if (folder / name).is_file():
                    found.append(folder / name)
                folder = folder.parent
    return found


@cache
def _cgroup_mounts() -> list[tuple[str, list[str], str, str]]:
    """Return (type, options, root, mount point) of every cgroup mount. The result is cached, since mounts do not change
    during a check."""
    found = []
    for line in small_text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, fields[-1].split(","), fields[3], fields[4]))
    return found
