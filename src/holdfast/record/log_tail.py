"""Finds the beginning of a log's last lines by reading backwards: a log may have gigabytes."""

from __future__ import annotations

import os
from typing import BinaryIO

BLOCK_BYTES = 1 << 20


def tail_start(file: BinaryIO, lines: int) -> int:
    """Return the byte offset at which the last `lines` lines of an open file begin."""
    end = file.seek(0, os.SEEK_END)
    at, wanted = end, lines
    while at > 0 and lines > 0:
        size = min(BLOCK_BYTES, at)
        at -= size
        file.seek(at)
        block = file.read(size)
        found = len(block)
        # The newline at the end of the file begins no further line.
        if at + size == end and block.endswith(b"\n"):
            found -= 1
        while (found := block.rfind(b"\n", 0, found)) >= 0:
            wanted -= 1
            if wanted == 0:
                return at + found + 1
    return end if lines <= 0 else 0
