"""What a worker may say to holdfast: `progress(step)`; and what it may ask: `draining()`, `on_drain(callback)`.

The supervisor names a small file in HOLDFAST_PROGRESS; the last step and its time lie in it. A file and not a pipe or
a socket: it can never fill up, never blocks, keeps only the newest word, and may be written after a fork and from any
thread. A call of `progress` costs one 16-byte write. HOLDFAST_DRAIN names another file: a worker that wants to be told
when it is to save and leave creates it, and holdfast then writes the notice there. Nothing is imported here at the top
that Python has not loaded already.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NAME = "HOLDFAST_PROGRESS"
_DRAIN = "HOLDFAST_DRAIN"
_MOVED_TO = 0x80
_HIGHEST = (1 << 63) - 1

_opened: tuple[str, int] | None = None


def progress(step: int) -> None:
    """Tell holdfast that this rank has finished `step`. Never raises, and does nothing outside of holdfast.

    Call it once a step, or whenever something worth keeping was done (a checkpoint, an epoch). What it says decides
    whether an attempt made progress before it failed, and holds off `--hang-timeout`.
    """
    global _opened
    try:
        path = os.environ.get(_NAME)
        if not path:
            return
        # Two threads may both open the file here: one descriptor more, once, and either of them is right.
        if _opened is None or _opened[0] != path:
            _opened = (path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
        number = min(max(int(step), -_HIGHEST), _HIGHEST)
        os.pwrite(_opened[1], number.to_bytes(8, "little", signed=True) + time.time_ns().to_bytes(8, "little"), 0)
    except Exception:  # any trouble with the file or the step: training goes on
        # A script that closes every descriptor (a daemon does) took ours too: open it anew at the next call.
        _opened = None


def draining() -> dict[str, Any] | None:
    """What holdfast says where this worker is to save and leave; None while it is to go on, and outside of holdfast.

    Ask once a step: `if holdfast.draining(): save(); break`. The answer has `reason`, `seconds` (how long there was
    from the notice on) and `until` (seconds since the epoch). From the first call on holdfast waits for this worker
    when it stops the job for a fault; a worker that never asked is not waited for. Never raises.
    """
    try:
        path = _asked()
        if path is None or not os.stat(path).st_size:  # noqa: PTH116 - pathlib is not loaded in every worker
            return None
        return _notice(path)
    except Exception:  # any trouble with the file: training goes on
        return None


def on_drain(callback: Callable[..., object]) -> None:
    """Have `callback` called, in a thread of its own, when this worker is to save and leave.

    It gets the notice (see `draining`) if it takes an argument. Holdfast waits until the worker has ended, `until` at
    the longest: save and leave, or set a flag that the training loop looks at. `sys.exit()` in the callback ends the
    whole process. Does nothing outside of holdfast, and never raises.
    """
    try:
        import threading

        path = _asked()
        watch = _watch(path.rpartition("/")[0] or ".") if path is not None else -1
        if path is None or watch < 0:
            return
        thread = threading.Thread(target=_wait, args=(watch, path, callback), name="holdfast-drain", daemon=True)
        thread.start()
    except Exception:  # a job must not fail for want of a notice
        return


def _asked() -> str | None:
    """The file of the notice, which exists from now on: that is how a program says that it listens."""
    path = os.environ.get(_DRAIN)
    if path:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
    return path or None


def _notice(path: str) -> dict[str, Any] | None:
    import json

    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not loaded in every worker
        text = file.read()
    found = json.loads(text) if text else None
    return found if isinstance(found, dict) else None


def _watch(folder: str) -> int:
    """An inotify descriptor that is readable when a file has been moved into the folder; -1 where there is none."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    watch = int(libc.inotify_init1(os.O_CLOEXEC))
    if watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(folder), _MOVED_TO) < 0:
        os.close(watch)
        return -1
    return watch


def _wait(watch: int, path: str, callback: Callable[..., object]) -> None:
    while (notice := _notice(path)) is None:
        os.read(watch, 4096)
    import inspect

    try:
        inspect.signature(callback).bind(notice)
        wants = True
    except (TypeError, ValueError):
        wants = False
    try:
        callback(notice) if wants else callback()
    except SystemExit as end:
        # In a thread it would end that thread only; a user who writes it here means the worker.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except Exception:  # the user's own; the worker learns of it as of any exception in a thread
        import traceback

        traceback.print_exc()
