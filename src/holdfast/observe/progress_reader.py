"""Reads a worker's last report of progress by `holdfast.progress(step)` (see `holdfast.worker`)."""

from __future__ import annotations

import os

from holdfast.safe_files import open_file

#: The suffix of the file with the time of the worker's first report, beside the progress file (see `holdfast.worker`).
BEGAN = ".began"
_BYTES = 16
#: A progress file of this many bytes also has the first step, after the last step and its time.
_WITH_FIRST = 24
#: A progress file of this many bytes also has the last saved step, after the first step.
_WITH_SAVED = 32


def read_progress(path: str | os.PathLike[str]) -> tuple[int, float] | None:
    """Return the last step and its time (seconds since the epoch, this machine's clock); None before the first step.
    Never raises.

    The writer does not lock, so the file is read until two readings are equal, at most three times.
    """
    words = _words(path)
    if len(words) < _BYTES:
        return None
    return int.from_bytes(words[:8], "little", signed=True), int.from_bytes(words[8:_BYTES], "little") / 1e9


def read_marks(path: str | os.PathLike[str]) -> tuple[int | None, int | None]:
    """Return the first step and the last saved step; each is None if it was not reported. Never raises."""
    words = _words(path)
    first = words[_BYTES:_WITH_FIRST] if len(words) >= _WITH_FIRST else None
    saved = words[_WITH_FIRST:_WITH_SAVED] if len(words) == _WITH_SAVED else None
    return _number(first), _number(saved)


def read_began(path: str | os.PathLike[str]) -> float | None:
    """Return the time of the first report, in seconds since the epoch; None if it is not known. Never raises."""
    words = _words(os.fspath(path) + BEGAN)
    return int.from_bytes(words[:8], "little") / 1e9 if len(words) >= 8 else None


def _number(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "little", signed=True)


def _words(path: str | os.PathLike[str]) -> bytes:
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        words = os.pread(fd, _WITH_SAVED, 0)
        for _ in range(2):
            again = os.pread(fd, _WITH_SAVED, 0)
            if again == words:
                break
            words = again
    except OSError:
        return b""
    finally:
        os.close(fd)
    return words
