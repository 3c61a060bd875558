"""What a worker may say to holdfast: `progress(step)`, and nothing else. Costs a worker one 16-byte write a call.

The supervisor names a small file in HOLDFAST_PROGRESS; the last step and its time lie in it. A file and not a pipe or
a socket: it can never fill up, never blocks, keeps only the newest word, and may be written after a fork and from any
thread. Nothing is imported here that Python has not loaded already.
"""

from __future__ import annotations

import os
import time

_NAME = "HOLDFAST_PROGRESS"
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
            _opened = (path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        number = min(max(int(step), -_HIGHEST), _HIGHEST)
        os.pwrite(_opened[1], number.to_bytes(8, "little", signed=True) + time.time_ns().to_bytes(8, "little"), 0)
    except Exception:  # whatever is wrong with the file or the step, training goes on
        # A script that closes every descriptor (a daemon does) took ours too: open it anew at the next call.
        _opened = None
