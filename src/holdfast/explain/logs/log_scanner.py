"""Scans a log of any size in blocks; keeps its tail, and excerpts around catalogue matches before the tail.

The input is blocks of whole lines. The size of the tail and the number of excerpts ("cuttings") are limited. A match
after which the program showed progress is called settled, because the program survived it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.catalogue.exit_rows import Where
from holdfast.explain.logs.row_matcher import Matcher

#: Size of a block in bytes. A processor's cache has room for a block and the data derived from it.
BLOCK_BYTES = 256 << 10
BEFORE_BYTES = 8 << 10
AFTER_BYTES = 4 << 10
MOST_OPEN = 24
MOST_SETTLED = 8
#: Maximum number of excerpts from one block for the same catalogue pattern.
MOST_OF_ONE = 4


class Cutting(msgspec.Struct):
    """An excerpt of the log: its offset in bytes, the number of its first line, and its bytes."""

    start: int
    line: int
    data: bytes


class Scanner:
    """Scans one log. Call `feed` for each block, then `finish`."""

    def __init__(self, matcher: Matcher, tail_bytes: int) -> None:
        self._matcher = matcher
        self._tail_bytes = tail_bytes
        #: The last blocks as (offset, number of the first line, block). Together they have at least `tail_bytes`, if
        #: the log is that long.
        self._tail: deque[tuple[int, int, bytes]] = deque()
        self._held = 0
        self._offset = 0
        self._line = 1
        self._open: list[Cutting] = []
        self._settled: deque[Cutting] = deque(maxlen=MOST_SETTLED)
        self._growing: Cutting | None = None
        self._outside: list[Cutting] = []

    def feed(self, block: bytes) -> None:
        """Add the next block, which should end with a whole line."""
        if not block:
            return
        self._tail.append((self._offset, self._line, block))
        self._held += len(block)
        self._offset += len(block)
        self._line += block.count(b"\n")
        while len(self._tail) > 1 and self._held - len(self._tail[0][2]) >= self._tail_bytes:
            self._leave(*self._tail.popleft())

    def finish(self) -> tuple[bytes, int, int, list[Cutting], int]:
        """Return the tail, its offset, the number of its first line, all excerpts, and the number of settled excerpts.

        Settled excerpts come first; after them the program showed progress.
        """
        offset, line = (self._tail[0][0], self._tail[0][1]) if self._tail else (self._offset, self._line)
        tail = b"".join(block for _, _, block in self._tail)
        if self._growing is not None:
            self._grow(self._growing, tail[:AFTER_BYTES])
        if self._open and self._matcher.progress(tail) >= 0:
            self._settle()
        kept = [*self._settled, *self._outside]
        kept.sort(key=lambda cutting: cutting.start)
        return tail, offset, line, [*kept, *self._open], len(kept)

    def _leave(self, offset: int, line: int, block: bytes) -> None:
        """Scan a block that is no longer part of the tail, and keep excerpts around its catalogue matches."""
        self._held -= len(block)
        if self._growing is not None:
            self._grow(self._growing, block[:AFTER_BYTES])
            self._growing = None
        if self._open and self._matcher.progress(block) >= 0:
            self._settle()
        places = self._matcher.places(block, MOST_OF_ONE)
        if not places:
            return
        last_progress = self._matcher.last_progress(block)
        for place, wording in places[: 4 * MOST_OPEN]:
            cutting = self._cut(block, offset, line, place)
            if cutting is None:
                continue
            if wording.where in (Where.KERNEL, Where.SCHEDULER):
                if len(self._outside) < MOST_OPEN:
                    self._outside.append(cutting)
            elif place < last_progress:
                self._settled.append(cutting)
            elif len(self._open) < MOST_OPEN:
                self._open.append(cutting)
            if cutting.start + len(cutting.data) >= offset + len(block):
                self._growing = cutting

    def _cut(self, block: bytes, offset: int, line: int, place: int) -> Cutting | None:
        """Cut out the whole lines around an offset of the block; None if the previous excerpt already contains them."""
        for last in (self._open[-1:], list(self._settled)[-1:], self._outside[-1:]):
            if last and last[0].start <= offset + place < last[0].start + len(last[0].data):
                return None
        start = block.rfind(b"\n", 0, max(0, place - BEFORE_BYTES)) + 1
        end = block.find(b"\n", min(len(block), place + AFTER_BYTES))
        end = len(block) if end < 0 or end - place > 2 * AFTER_BYTES else end + 1
        end = min(end, place + 2 * AFTER_BYTES)
        return Cutting(offset + start, line + block.count(b"\n", 0, start), block[start:end])

    @staticmethod
    def _grow(cutting: Cutting, more: bytes) -> None:
        end = more.rfind(b"\n") + 1
        cutting.data += more[:end] if end else more

    def _settle(self) -> None:
        self._settled.extend(self._open)
        self._open.clear()
