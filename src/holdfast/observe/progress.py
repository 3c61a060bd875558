"""Reading what a worker last said by `holdfast.progress(step)` (see `holdfast.worker`)."""

from __future__ import annotations

import os

from holdfast.files import open_file

_BYTES = 16


def read_progress(path: str | os.PathLike[str]) -> tuple[int, float] | None:
    """The last step and when it was told (seconds since the epoch, this machine's clock); None before the first word.

    Never raises. The writer does not lock: the words are read until two readings are equal, three times at most.
    """
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        words = os.pread(fd, _BYTES, 0)
        for _ in range(2):
            again = os.pread(fd, _BYTES, 0)
            if again == words:
                break
            words = again
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(words) < _BYTES:
        return None
    return int.from_bytes(words[:8], "little", signed=True), int.from_bytes(words[8:], "little") / 1e9
