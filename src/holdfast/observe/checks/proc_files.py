"""Small readers of /proc and /sys that several checks share. An unreadable file counts as missing, never as an
error."""

from __future__ import annotations

import os
import select
from functools import cache
from pathlib import Path

from holdfast.model.shown_command import shown


def text(path: str | Path) -> str:
    """A small file's content without surrounding space; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number(path: str | Path) -> int | None:
    """A file with one whole number; None where it is missing or has another content (`max`)."""
    try:
        return int(text(path))
    except ValueError:
        return None


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all that is wanted


def stat(pid: int) -> list[str]:
    """/proc/PID/stat from the state on: `[state, ppid, pgrp, session, …]`; empty where the process has ended."""
    return text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def command(pid: int) -> str:
    """A process in one line of at most 80 characters: its command line, quoted, else its name."""
    try:
        line = shown(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        line = ""
    return line or text(f"/proc/{pid}/comm") or "?"


def age_s(pid: int) -> float | None:
    """How long a process has been running, in seconds; None where it has ended."""
    fields, up = stat(pid), text("/proc/uptime").split()
    try:
        return max(0.0, float(up[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return None


def variable(pid: int, name: str) -> str:
    """A variable of a process at its start; empty where it has none, or belongs to another user."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    begin = f"{name}=".encode()
    return next((word[len(begin) :].decode(errors="replace") for word in words if word.startswith(begin)), "")


def ancestors() -> set[int]:
    """This process and all its ancestors: the supervisor is among them."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        fields = stat(pid)
        pid = int(fields[1]) if fields else 0
    return found


def pause(seconds: float) -> None:
    """Let a measuring window pass. The check has its own process, so nothing else waits."""
    select.poll().poll(seconds * 1000)


def cgroup_files(controller: str, name: str) -> list[Path]:
    """`name` in this process's cgroup and every one above it, for v2 and for v1's `controller`, where mounted."""
    found: list[Path] = []
    mounts = _cgroup_mounts()
    for line in text("/proc/self/cgroup").splitlines():
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
    """Type, options, root and mount point of every cgroup mount. They do not change while a check runs."""
    found = []
    for line in text("/proc/self/mountinfo").splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, fields[-1].split(","), fields[3], fields[4]))
    return found
