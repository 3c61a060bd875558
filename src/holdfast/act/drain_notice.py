"""Notifies a worker that it must end soon, so that it can save and exit by itself.

There are two ways, and neither harms a program that uses none of them. First, a file at the path in HOLDFAST_DRAIN: a
worker that wants the notice creates the file, and holdfast writes one line of JSON into it when the worker must end.
Second, SIGUSR2, whose default action would end a process: holdfast sends it only to a process that has a handler for
it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.act.linux import handlers
from holdfast.safe_files import write_file

_NOTICE = signal.SIGUSR2


def notify_draining(file: Path, pid: int, notice: Mapping[str, object]) -> bool:
    """Notify a worker. Return whether it listens: the file existed, or SIGUSR2 has a handler."""
    asked = file.exists()
    fresh = file.with_name(f".{file.name}.new")
    try:
        write_file(fresh, msgspec.json.encode(notice) + b"\n")
        fresh.replace(file)  # renamed into place, so that a reader sees the whole line
    except OSError:
        asked = False  # the disk is full: no worker can get the notice from the file
    if _NOTICE not in handlers(pid)[0]:
        return asked
    try:
        os.kill(pid, _NOTICE)
    except ProcessLookupError:
        return False
    return True


def shielded(file: Path) -> bool:
    """Whether the worker catches SIGTERM only to wait for its notice (`holdfast.on_drain`), and saves nothing on
    SIGTERM itself."""
    return file.with_name(f"{file.name}.shielded").exists()


def announce_drain_end(file: Path) -> None:
    """Make a worker that is shielded from SIGTERM end on the next SIGTERM, because its time is over."""
    fresh = file.with_name(f".{file.name}.leave")
    try:
        write_file(fresh, b"")
        fresh.replace(file.with_name(f"{file.name}.leave"))
    except OSError:
        pass  # the disk is full: SIGKILL ends the worker later
