"""What of a test lives on: its processes have a token in their environment, also in another session."""

from __future__ import annotations

import psutil


def living(token: str) -> list[str]:
    """Processes with this token that live, zombies left out: number and command."""
    found = []
    for process in psutil.process_iter():
        try:
            if token in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
