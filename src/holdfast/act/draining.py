"""Tells a worker that its time is about to end, so that it may save and leave by itself; and ends it.

Two ways to tell, and none that could hurt a program that knows nothing of them. A small file, named by HOLDFAST_DRAIN:
whoever wants to know creates it, and finds one line of JSON in it when the time has come. And SIGUSR2, whose default
action would end a process: it is sent only to one that has a handler for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.act.linux import handlers

_NOTICE = signal.SIGUSR2


def tell(file: Path, pid: int, notice: Mapping[str, object]) -> bool:
    """Give a worker its notice. True where it listens: the file was there, or the signal has a handler."""
    asked = file.exists()
    fresh = file.with_name(f".{file.name}.new")
    try:
        fresh.write_bytes(msgspec.json.encode(notice) + b"\n")
        fresh.replace(file)  # whoever reads it reads all of it
    except OSError:
        asked = False  # a full disk: nobody can learn of it there
    if _NOTICE not in handlers(pid)[0]:
        return asked
    try:
        os.kill(pid, _NOTICE)
    except ProcessLookupError:
        return False
    return True


def end(pids: Iterable[int], *, hard: bool, mute: Collection[int] = ()) -> None:
    """SIGKILL, or SIGTERM; those of `mute` that it would kill at once are made to write their stacks first."""
    for pid in pids:
        if pid in mute:
            from holdfast.act.last_words import ask  # only a hang needs it

            if ask(pid):
                continue
        try:
            os.kill(pid, signal.SIGKILL if hard else signal.SIGTERM)
            if not hard:
                # A stopped process takes its SIGTERM only when it goes on.
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # gone between look and signal
