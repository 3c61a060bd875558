"""Finds where the last lines of a log begin, from its end: a log may have gigabytes."""

from __future__ import annotations

import os
from typing import BinaryIO

BLOCK_BYTES = 1 << 20


def tail_start(file: BinaryIO, lines: int) -> int:
    """Where the last `lines` lines of an open file begin, in bytes."""
    end = file.seek(0, os.SEEK_END)
    at, wanted = end, lines
    while at > 0 and lines > 0:
        size = min(BLOCK_BYTES, at)
        at -= size
        file.seek(at)
        block = file.read(size)
        found = len(block)
        # The end of the last line does not begin another one.
        if at + size == end and block.endswith(b"\n"):
            found -= 1
        while (found := block.rfind(b"\n", 0, found)) >= 0:
            wanted -= 1
            if wanted == 0:
                return at + found + 1
    return end if lines <= 0 else 0
