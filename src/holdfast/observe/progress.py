"""Reading what a worker last said by `holdfast.progress(step)` (see `holdfast.worker`)."""

from __future__ import annotations

import os

from holdfast.files import open_file

_BYTES = 16
_WITH_FIRST = 24
"""Workers write the first step that they told behind the last one and its time."""


def read_progress(path: str | os.PathLike[str]) -> tuple[int, float] | None:
    """The last step and when it was told (seconds since the epoch, this machine's clock); None before the first word.

    Never raises. The writer does not lock: the words are read until two readings are equal, three times at most.
    """
    words = _words(path)
    if len(words) < _BYTES:
        return None
    return int.from_bytes(words[:8], "little", signed=True), int.from_bytes(words[8:_BYTES], "little") / 1e9


def read_first_step(path: str | os.PathLike[str]) -> int | None:
    """The first step that was told; None before the first word, and from workers of holdfast 0.1. Never raises."""
    words = _words(path)
    return int.from_bytes(words[_BYTES:_WITH_FIRST], "little", signed=True) if len(words) == _WITH_FIRST else None


def _words(path: str | os.PathLike[str]) -> bytes:
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        words = os.pread(fd, _WITH_FIRST, 0)
        for _ in range(2):
            again = os.pread(fd, _WITH_FIRST, 0)
            if again == words:
                break
            words = again
    except OSError:
        return b""
    finally:
        os.close(fd)
    return words
