"""Notifies a worker that it must end soon, so that it can save and exit by itself.

There are two ways, and neither hurts a program that uses none of them. A small file, named by HOLDFAST_DRAIN: a worker
that wants the notice creates it, and finds one line of JSON in it when the time has come. And SIGUSR2, whose default
action would end a process: it is sent only to a process that has a handler for it.
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
    """Give a worker its notice. True where it listens: the file existed, or the signal has a handler."""
    asked = file.exists()
    fresh = file.with_name(f".{file.name}.new")
    try:
        write_file(fresh, msgspec.json.encode(notice) + b"\n")
        fresh.replace(file)  # a reader sees all of it
    except OSError:
        asked = False  # a full disk: no worker can learn of it there
    if _NOTICE not in handlers(pid)[0]:
        return asked
    try:
        os.kill(pid, _NOTICE)
    except ProcessLookupError:
        return False
    return True


def shielded(file: Path) -> bool:
    """Whether the worker catches SIGTERM only until its notice comes (`holdfast.on_drain`): it saves nothing on
    SIGTERM."""
    return file.with_name(f"{file.name}.shielded").exists()


def announce_drain_end(file: Path) -> None:
    """Notify a worker that is shielded from SIGTERM that its time is over: the SIGTERM that follows ends it."""
    fresh = file.with_name(f".{file.name}.leave")
    try:
        write_file(fresh, b"")
        fresh.replace(file.with_name(f"{file.name}.leave"))
    except OSError:
        pass  # a full disk: SIGKILL follows
