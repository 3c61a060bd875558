"""A rank's log as a page can hold it: the lines around one, the last lines, or those that a search finds.

A log may have gigabytes and any bytes: it is read in blocks, so far at most, and each line is shown to a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from holdfast.model.base import Noun
from holdfast.record.log_pieces import pieces
from holdfast.record.log_tail import BLOCK_BYTES

MOST_SCANNED = 1 << 30
"""Bytes of one log that a page looks through."""
MOST_LINES = 300
MOST_LINE = 400
"""Characters of one line; the download has it whole."""
MOST_FOUND = 200
_AROUND = MOST_LINES // 2


class Line(Noun, frozen=True, kw_only=True):
    """One line of a log."""

    number: int
    """From 1."""
    text: str
    deciding: bool = False


class Excerpt(Noun, frozen=True, kw_only=True):
    """Some lines of one stream."""

    stream: str
    lines: tuple[Line, ...] = ()
    total: int = 0
    """Lines that the log has, as far as it was read."""
    bytes: int = 0
    whole: bool = True
    """The log was read to its end."""
    found: int | None = None
    """So many lines have what was searched for; None: nothing was."""
    deciding: int = 0
    """The number of the line that decided; 0: it stands not in this log."""


def excerpt(path: Path, stream: str, *, around: int = 0, deciding: int = 0, wanted: str = "") -> Excerpt:
    """The lines with `wanted` in them; else those around line `around`; else the last ones."""
    reader = _Lines(path)
    kept: deque[Line] = deque(maxlen=None if wanted or around else MOST_LINES)
    found = 0
    sought = wanted.lower().encode(errors="replace")
    first, last = max(around - _AROUND, 1), max(around - _AROUND, 1) + MOST_LINES
    number = 0
    for number, raw in enumerate(reader.lines(), 1):
        if wanted:
            if sought not in raw.lower():
                continue
            found += 1
            if found > MOST_FOUND:
                continue
        elif around and not first <= number < last:
            continue
        kept.append(Line(number=number, text=shown(raw), deciding=number == deciding))
    return Excerpt(
        stream=stream,
        lines=tuple(kept),
        total=number,
        bytes=reader.read,
        whole=reader.whole,
        found=found if wanted else None,
        deciding=deciding,
    )


class _Lines:
    """All lines of a log over its pieces, the oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read = 0
        self.whole = True

    def lines(self) -> Iterator[bytes]:
        rest = b""
        with pieces(self._path) as found:
            for _, file in found:
                while block := file.read(BLOCK_BYTES):
                    self.read += len(block)
                    *whole, rest = (rest + block).split(b"\n")
                    yield from whole
                    if len(rest) > BLOCK_BYTES:  # a line without an end is cut as soon as it is too long to be shown
                        rest = rest[:BLOCK_BYTES]
                    if self.read >= MOST_SCANNED:
                        self.whole = False
                        return
        if rest:
            yield rest


def blocks(path: Path) -> Iterator[bytes]:
    """A whole log in blocks, for a download."""
    with pieces(path) as found:
        for _, file in found:
            while block := file.read(BLOCK_BYTES):
                yield block


def shown(raw: bytes) -> str:
    """One line as a page shows it: to a bound, and with bytes that are no text marked."""
    # What a progress bar has painted over is not shown: the last state of the line is.
    text = raw[: 4 * MOST_LINE * 16].decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    more = len(text) - MOST_LINE
    return text if more <= 0 else f"{text[:MOST_LINE]} … {more} characters more"
