"""Reads a part of a rank's log for a page: the lines around one line, the last lines, or the matches of a search.

A log may have gigabytes and any bytes. So it is read in blocks up to a limit, and long lines are cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.noun_base import Noun
from holdfast.record.rotated_logs import BLOCK_BYTES, Mark, pieces
from holdfast.record.timed_logs import timed_pieces

#: Maximum number of bytes that a page searches in one log.
MOST_SCANNED = 1 << 30
MOST_LINES = 300
#: Maximum number of characters shown of one line. The download has the whole line.
MOST_LINE = 400
MOST_FOUND = 200
_AROUND = MOST_LINES // 2


class ExcerptLine(Noun, frozen=True, kw_only=True):
    """One line of a log."""

    #: The line's number, from 1.
    number: int
    text: str
    deciding: bool = False
    #: When holdfast read the line from the worker, in seconds since the epoch; None: not recorded.
    at: float | None = None


class TimedLine(Noun, frozen=True, kw_only=True):
    """One line of one stream, for a list of the lines of all streams."""

    stream: str
    line: ExcerptLine


class Excerpt(Noun, frozen=True, kw_only=True):
    """Some lines of one stream."""

    stream: str
    lines: tuple[ExcerptLine, ...] = ()
    #: The number of lines of the log that were read, shown or not.
    total: int = 0
    bytes: int = 0
    #: Whether the log was read to its end.
    whole: bool = True
    #: The number of log lines that match the search; None: there was no search.
    found: int | None = None
    #: The number of the line that decided the report; 0: the line is not in this log.
    deciding: int = 0


def excerpt(path: Path, stream: str, *, around: int = 0, deciding: int = 0, wanted: str = "") -> Excerpt:
    """Return the lines that contain `wanted`; without `wanted`, the lines around line `around`; without both, the last
    lines.

    `stream`: the name of the log's stream, for the result. `deciding`: the number of the line that decided the report,
    to be marked.
    """
    reader = _PieceLines(path)
    kept: deque[tuple[Mark, ExcerptLine]] = deque(maxlen=None if wanted or around else MOST_LINES)
    found = 0
    sought = wanted.lower().encode(errors="replace")
    first, last = max(around - _AROUND, 1), max(around - _AROUND, 1) + MOST_LINES
    number = 0
    for number, (mark, raw) in enumerate(reader.lines(), 1):
        if wanted:
            if sought not in raw.lower():
                continue
            found += 1
            if found > MOST_FOUND:
                continue
        elif around and not first <= number < last:
            continue
        kept.append((mark, ExcerptLine(number=number, text=shown(raw), deciding=number == deciding)))
    times = _times(path, (mark for mark, _ in kept))
    return Excerpt(
        stream=stream,
        lines=tuple(replace(line, at=at) for (_, line), at in zip(kept, times, strict=True)),
        total=number,
        bytes=reader.read,
        whole=reader.whole,
        found=found if wanted else None,
        deciding=deciding,
    )


def by_time(excerpts: Iterable[Excerpt]) -> tuple[TimedLine, ...]:
    """Merge the lines of all streams by time, for the time span that every excerpt covers.

    Empty if a line has no time, as in a log whose times were not recorded.
    """
    shown_ones = [each for each in excerpts if each.lines]
    lines = [[(line.at, each.stream, line) for line in each.lines if line.at is not None] for each in shown_ones]
    if not lines or any(len(some) < len(each.lines) for some, each in zip(lines, shown_ones, strict=True)):
        return ()
    pairs = list(zip(lines, shown_ones, strict=True))
    begin = max((some[0][0] for some, each in pairs if each.lines[0].number > 1), default=0.0)
    end = min((some[-1][0] for some, each in pairs if each.lines[-1].number < each.total), default=float("inf"))
    ordered = merge(*lines, key=lambda one: one[0])
    return tuple(TimedLine(stream=stream, line=line) for at, stream, line in ordered if begin <= at <= end)


class _PieceLines:
    """Reads all lines of a log from its rotated pieces, oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read = 0
        self.whole = True

    def lines(self) -> Iterator[tuple[Mark, bytes]]:
        """Yield each line with the position of its first byte."""
        rest, began = b"", (0, 0)
        with pieces(self._path) as found:
            for inode, file in found:
                byte = 0
                while block := file.read(BLOCK_BYTES):
                    self.read += len(block)
                    *whole, last = block.split(b"\n")
                    for part in whole:
                        yield (began, rest + part) if rest else ((inode, byte), part)
                        rest = b""
                        byte += len(part) + 1
                    if last:
                        began = began if rest else (inode, byte)
                        # Cut a line that is longer than a block, because a page never shows that much.
                        rest = (rest + last)[:BLOCK_BYTES]
                        byte += len(last)
                    if self.read >= MOST_SCANNED:
                        self.whole = False
                        return
        if rest:
            yield began, rest


def _times(path: Path, marks: Iterable[Mark]) -> list[float | None]:
    """Return the times at which the bytes at these positions were read from the worker."""
    with timed_pieces(path) as found:
        known = {inode: times for inode, _, times in found}
        return [known[inode].around(byte)[0] if inode in known else None for inode, byte in marks]


def blocks(path: Path) -> Iterator[bytes]:
    """Yield a whole log in blocks, for a download."""
    with pieces(path) as found:
        for _, file in found:
            while block := file.read(BLOCK_BYTES):
                yield block


def shown(raw: bytes) -> str:
    """Return one line for a page: cut at the limit, with a mark for each invalid byte."""
    # A progress bar overwrites its line with carriage returns. Show only its last state.
    text = raw[: 4 * MOST_LINE * 16].decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    more = len(text) - MOST_LINE
    return text if more <= 0 else f"{text[:MOST_LINE]} … {more} characters more"
