"""The worker's side of holdfast: it reports `progress(step)`, and uses `draining()` or `on_drain(callback)`.

The supervisor names a small file in HOLDFAST_PROGRESS, which contains the last step and its time. A file is better than
a pipe or a socket: it never fills up, never blocks, keeps only the newest value, and any thread may write to it, even
after a fork. A call of `progress` is one write of 24 or 32 bytes: the step, its time, the first step of this rank, and
the last saved step if there is one.

HOLDFAST_DRAIN names another file. A worker creates this file to request a notice before it must save and exit, and
holdfast then writes the notice into the file. At its top, this module imports only modules that Python has already
loaded.
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

#: Suffix of a file beside the notice file. A worker writes this file if it handles SIGTERM and does not end by it.
_SHIELDED = ".shielded"
#: Suffix of a file beside the notice file. Holdfast writes this file when the worker's time to exit is over.
_LEAVE = ".leave"
#: How long after SIGTERM the process ends if no notice follows, in seconds. A stop by the platform would bring a
#: notice.
_NOTICE_WAIT_S = 10.0

#: The opened file of `progress`: its path, its descriptor, and the bytes of the first step and of the last saved step.
_opened: tuple[str, int, bytes] | None = None
#: The SIGTERM handler that this module has installed.
_ours: Callable[[int, object], None] | None = None


def progress(step: int, saved: bool = False) -> None:
    """Report to holdfast that this rank has finished `step`. Never raises, and does nothing outside holdfast.

    Call it once per step, or whenever work worth keeping was done (a checkpoint, an epoch). The reports decide whether
    an attempt made progress before it failed, and reset `--hang-timeout`. `saved`: whether a checkpoint of this step is
    written, from which a restart continues. If the job fails, steps after the last saved step count as lost.
    """
    global _opened
    try:
        path = os.environ.get(_NAME)
        if not path:
            return
        # Two threads may both open the file. That costs one more descriptor, once, and both descriptors work.
        number = min(max(int(step), -_HIGHEST), _HIGHEST).to_bytes(8, "little", signed=True)
        begins = False
        if _opened is None or _opened[0] != path:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            # This rank may have reported a step before, in a child process or before it closed the file.
            told = os.pread(fd, 32, 0)
            begins = not told
            _opened = (path, fd, told[16:] if len(told) >= 24 else number)
        if saved:
            _opened = (*_opened[:2], _opened[2][:8] + number)
        now = time.time_ns().to_bytes(8, "little")
        os.pwrite(_opened[1], number + now + _opened[2], 0)
        if begins:
            _note_first(path, now)
    except Exception:  # trouble with the file must not stop the training
        # A script that closes every descriptor (a daemon) has closed this one too, so the next call opens the file
        # again.
        _opened = None


def _note_first(path: str, now: bytes) -> None:
    """Write the time of the first report, from which the rate of steps is measured."""
    fd = os.open(path + ".began", os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    os.write(fd, now)
    os.close(fd)


def draining() -> dict[str, Any] | None:
    """Return holdfast's notice if this worker must save and exit; None otherwise, and outside holdfast.

    Call it once per step: `if holdfast.draining(): save(); break`. The notice has `reason`, `seconds` (the time from
    the notice to the end) and `until` (seconds since the epoch). After the first call, holdfast waits for this worker
    when it stops the job for a fault; it does not wait for a worker that never called. Never raises.
    """
    try:
        path = _asked()
        if path is None or not os.stat(path).st_size:  # noqa: PTH116 - pathlib is not loaded in every worker
            return None
        return _notice(path)
    except Exception:  # trouble with the file must not stop the training
        return None


def on_drain(callback: Callable[..., object]) -> None:
    """Call `callback` in a separate thread when this worker must save and exit.

    If `callback` accepts an argument, it gets the notice (see `draining`). Holdfast waits until the worker has ended,
    but not longer than `until`. So the callback should save and exit, or set a flag for the training loop. `sys.exit()`
    in the callback ends the whole process. Does nothing outside holdfast, and never raises.

    Slurm and other platforms send SIGTERM to every process of a job before holdfast can announce how much time is left.
    So a call in the main thread installs a handler for SIGTERM, if the program has none. SIGTERM then ends the process
    only when holdfast requests it, or if no notice follows within 10 s. A handler that is installed later replaces it.
    """
    try:
        import threading

        path = _asked()
        watch = _watch(path.rpartition("/")[0] or ".") if path is not None else -1
        if path is None or watch < 0:
            return
        thread = threading.Thread(target=_wait, args=(watch, path, callback), name="holdfast-drain", daemon=True)
        thread.start()
        if threading.current_thread() is threading.main_thread():
            _shield(path)
    except Exception:  # a job must not fail because it cannot get a notice
        return


def _asked() -> str | None:
    """Create the notice file and return its path. The file tells holdfast that this worker requests a notice."""
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
    """Return an inotify descriptor that becomes readable when a file is moved into the folder; -1 if inotify is not
    available."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    watch = int(libc.inotify_init1(os.O_CLOEXEC))
    if watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(folder), _MOVED_TO) < 0:
        os.close(watch)
        return -1
    return watch


def _shield(path: str) -> None:
    """Install a handler, so that SIGTERM no longer ends this process at once.

    A file next to the notice file informs holdfast of the handler.
    """
    global _ours
    import signal
    import threading

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def wait_for_notice(number: int, frame: object) -> None:
        if _notice(path) is None:
            timer = threading.Timer(_NOTICE_WAIT_S, give_up)
            timer.daemon = True
            timer.start()

    def give_up() -> None:
        if _notice(path) is None:
            _die()

    masks = threading.local()

    def before_fork() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def in_child() -> None:
        # Pools and data loaders end their child processes with SIGTERM. So in a child, SIGTERM must have its usual
        # effect.
        if signal.getsignal(signal.SIGTERM) is _ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    _ours = wait_for_notice
    signal.signal(signal.SIGTERM, wait_for_notice)
    # Block SIGTERM from before the fork until parent and child have run their handlers. Otherwise Python would lose a
    # signal in between.
    os.register_at_fork(before=before_fork, after_in_parent=in_parent, after_in_child=in_child)
    os.close(os.open(path + _SHIELDED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _die() -> None:
    """Die of SIGTERM, unless the program has installed another handler. This works even if the main thread is busy."""
    import ctypes
    import signal

    if signal.getsignal(signal.SIGTERM) is _ours:
        # `signal.signal` works only in the main thread.
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)


def _wait(watch: int, path: str, callback: Callable[..., object]) -> None:
    """Wait in this thread, until the process ends, for the notice file and for the file that announces that the time is
    over."""
    import threading

    told = False
    while True:
        if not told and (notice := _notice(path)) is not None:
            told = True
            threading.Thread(target=_call, args=(callback, notice), name="holdfast-drain-call", daemon=True).start()
        if os.path.exists(path + _LEAVE):  # noqa: PTH110 - pathlib is not loaded in every worker
            _die()
            return
        os.read(watch, 4096)


def _call(callback: Callable[..., object], notice: dict[str, Any]) -> None:
    import inspect

    try:
        inspect.signature(callback).bind(notice)
        wants = True
    except (TypeError, ValueError):
        wants = False
    try:
        callback(notice) if wants else callback()
    except SystemExit as end:
        # SystemExit would end only this thread, but the user's callback is meant to end the worker.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except Exception:  # print an error of the user's callback as Python prints any exception in a thread
        import traceback

        traceback.print_exc()
