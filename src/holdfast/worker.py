"""What a worker may say to holdfast: `progress(step)`; and what it may ask: `draining()`, `on_drain(callback)`.

The supervisor names a small file in HOLDFAST_PROGRESS; the last step and its time lie in it. A file and not a pipe or
a socket: it can never fill up, never blocks, keeps only the newest word, and may be written after a fork and from any
thread. A call of `progress` costs one 24-byte write: the step, its time, and the first step that this rank told.
HOLDFAST_DRAIN names another file: a worker that wants to be told when it is to save and leave creates it, and holdfast
then writes the notice there. Nothing is imported here at the top that Python has not loaded already.
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

#: Beside the file of the notice: SIGTERM is caught, and ends nothing by itself.
_SHIELDED = ".shielded"
#: Beside the file of the notice, from holdfast: the time is over.
_LEAVE = ".leave"
#: SIGTERM that no notice follows ends the process after so long: then it was no platform's.
_UNTOLD_S = 10.0

#: The file of `progress`, its descriptor, and the first step and the last saved one, as they stand in the file.
_opened: tuple[str, int, bytes] | None = None
#: Our handler for SIGTERM.
_ours: Callable[[int, object], None] | None = None


def progress(step: int, saved: bool = False) -> None:
    """Tell holdfast that this rank has finished `step`. Never raises, and does nothing outside of holdfast.

    Call it once a step, or whenever something worth keeping was done (a checkpoint, an epoch). What it says decides
    whether an attempt made progress before it failed, and holds off `--hang-timeout`. `saved`: a checkpoint of this
    step is written, from which a restart goes on; what a failed job did after it counts as lost.
    """
    global _opened
    try:
        path = os.environ.get(_NAME)
        if not path:
            return
        # Two threads may both open the file here: one descriptor more, once, and either of them is right.
        number = min(max(int(step), -_HIGHEST), _HIGHEST).to_bytes(8, "little", signed=True)
        if _opened is None or _opened[0] != path:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            # A process of this rank may have told a step before (a child, or this one before it closed the file).
            told = os.pread(fd, 32, 0)
            _opened = (path, fd, told[16:] if len(told) >= 24 else number)
        if saved:
            _opened = (*_opened[:2], _opened[2][:8] + number)
        os.pwrite(_opened[1], number + time.time_ns().to_bytes(8, "little") + _opened[2], 0)
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

    Slurm and others send SIGTERM to every process of a job before holdfast can say how much time is left. So, called in
    the main thread of a program without a handler for SIGTERM, this installs one: SIGTERM then ends the process only
    when holdfast says so, or where no notice follows within 10 s. A handler that is installed later takes its place.
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


def _shield(path: str) -> None:
    """From now on SIGTERM does not end this process at once. A file beside the notice's says so."""
    global _ours
    import signal
    import threading

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def wait_for_notice(number: int, frame: object) -> None:
        if _notice(path) is None:
            timer = threading.Timer(_UNTOLD_S, give_up)
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
        # Pools and loaders end their processes with SIGTERM: there it does what it did before.
        if signal.getsignal(signal.SIGTERM) is _ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    _ours = wait_for_notice
    signal.signal(signal.SIGTERM, wait_for_notice)
    # A signal that comes between the fork and that moment waits for it: Python would forget it.
    os.register_at_fork(before=before_fork, after_in_parent=in_parent, after_in_child=in_child)
    os.close(os.open(path + _SHIELDED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _die() -> None:
    """Of SIGTERM, if no handler of the program's own has taken our place; also where the main thread is busy."""
    import ctypes
    import signal

    if signal.getsignal(signal.SIGTERM) is _ours:
        # `signal.signal` works in the main thread only.
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(int(signal.SIGTERM), None)
        os.kill(os.getpid(), signal.SIGTERM)


def _wait(watch: int, path: str, callback: Callable[..., object]) -> None:
    """Until this process ends: for the notice, and for the word that its time is over."""
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
        # In a thread it would end that thread only; a user who writes it here means the worker.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except Exception:  # the user's own; the worker learns of it as of any exception in a thread
        import traceback

        traceback.print_exc()
