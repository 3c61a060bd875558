"""Merges several logs by the times of their lines, with a filter of lines and a choice of fields.

Memory use is limited for any number and size of logs, because each log holds only one block.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.record.local_time import clock
from holdfast.record.rotated_logs import Mark, tail_mark
from holdfast.record.timed_logs import Span, later, read_on, since_mark
from holdfast.report.log_files import LogPart

ALL_BLOCKS_BYTES = 64 << 20
BLOCK_BYTES = 1 << 20
LEAST_BLOCK_BYTES = 8 << 10

Write = Callable[[bytes], object]


class Pattern(Noun, frozen=True, kw_only=True):
    """A compiled pattern that lines must contain."""

    #: Matches a single line. The type is Any because re2 has no public type for a compiled pattern.
    in_line: Any
    #: Searches a block of many lines. It finds at least the lines that `in_line` matches. None: impossible for this
    #: pattern.
    in_block: Any = None


class LogLineFilter(Noun, frozen=True, kw_only=True):
    """Selects lines of a log."""

    since: float | None = None
    #: Select only lines before this time, in seconds since the epoch; None: no limit.
    until: float | None = None
    #: The pattern that lines must contain; None: all lines.
    pattern: Pattern | None = None
    #: Number of lines to select at the end of each log; None: all lines.
    tail: int | None = None


def pattern_of(text: str) -> Pattern:
    """Compile a pattern. Raises `BadUsage` if the text is not a regular expression."""
    import re2  # imported here, because most commands that print logs do not search

    options = re2.Options()
    options.log_errors = False
    written = text.encode(errors="surrogateescape")
    try:
        line = re2.compile(written, options)
        # In a block, \A and \z match the ends of the block instead of the ends of a line.
        ends = b"\\A" in written or b"\\z" in written or b"(?-" in written
        return Pattern(in_line=line, in_block=None if ends else re2.compile(b"(?m:" + written + b")", options))
    except re2.error as error:
        said = error.args[0] if error.args else error
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadUsage(
            f"--grep {text}: {why}: expected a regular expression of RE2", hint="holdfast logs --grep 'loss .*nan'"
        ) from None


class LogSource(Protocol):
    """Reads a log, on this machine or on another node."""

    def begin(self, since: float | None, tail: int | None) -> Mark | None:
        """Return the position of the first selected line: one of the last `tail` lines, not before `since`.

        None: the log's first byte.
        """

    def read_on(self, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark | None]:
        """Read the log from position `since` on, as `log_times.read_on` does for a file."""


class FileReader:
    """Reads a log on this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def begin(self, since: float | None, tail: int | None) -> Mark | None:
        """Implement `LogSource.begin` for a file. Raise OSError if the log does not exist."""
        mark = since_mark(self._path, since) if since is not None else None
        return mark if tail is None else later(self._path, mark, tail_mark(self._path, tail))

    def read_on(self, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark | None]:
        """Implement `LogSource.read_on` for a file."""
        try:
            return read_on(self._path, since, size, whole_lines=whole_lines)
        except FileNotFoundError:
            return [], since  # the log is being rotated: it has been renamed, and the new file does not exist yet


class LogCursor:
    """Reads one log, and continues from where the last read ended."""

    def __init__(self, part: LogPart, wish: LogLineFilter, block_bytes: int, reader: LogSource | None = None) -> None:
        """Create the cursor at the first selected line.

        `part`: the log. `wish`: the filter. `block_bytes`: maximum bytes of one read. `reader`: reads the log; None: a
        log on this machine. Raise OSError if the log does not exist.
        """
        self.part = part
        self._reader = reader or FileReader(part.path)
        self._wish = wish
        self._block_bytes = block_bytes
        self._spans: deque[Span] = deque()
        self._mark = self._begin()
        self._last = 0.0
        self._over = False
        #: Whether the last line that was read still lacks its line end.
        self.goes_on = False
        self._skip = (
            self._before_the_tail() if wish.tail is not None and (wish.pattern or wish.until is not None) else 0
        )

    def _begin(self) -> Mark | None:
        wish = self._wish
        last = wish.tail if wish.pattern is None and wish.until is None else None
        return None if wish.since is None and last is None else self._reader.begin(wish.since, last)

    @property
    def mark(self) -> Mark | None:
        """The position in the log where the next read begins."""
        return self._mark

    def _before_the_tail(self) -> int:
        """Return the number of selected lines before the last `tail` selected lines.

        They are counted in a first pass over the log, which stores no line.
        """
        fit = 0
        first = LogCursor(
            self.part, LogLineFilter(since=self._wish.since, until=self._wish.until), self._block_bytes, self._reader
        )
        while (span := first.take(whole_lines=False)) is not None:
            fit += sum(1 for _ in fitting(span.data, self._wish.pattern))
        assert self._wish.tail is not None, "the caller's condition"
        return max(0, fit - self._wish.tail)

    def peek(self, *, whole_lines: bool) -> float | None:
        """Return the time of the next line; None: no line is available now. Lines without a time come first."""
        if not self._spans and not self._over:
            spans, self._mark = self._reader.read_on(self._mark, self._block_bytes, whole_lines=whole_lines)
            self._spans.extend(spans)
        if not self._spans:
            return None
        moment = self._spans[0].at
        if moment is not None:
            self._last = max(self._last, moment)
        if self._wish.until is not None and self._last >= self._wish.until:
            self._over = True
            self._spans.clear()
            return None
        return self._last

    def take(self, *, whole_lines: bool) -> Span | None:
        if self.peek(whole_lines=whole_lines) is None:
            return None
        span = self._spans.popleft()
        self.goes_on = not span.data.endswith(b"\n")
        return span

    def wanted(self, span: Span) -> Iterator[bytes]:
        """Yield the selected lines of the span. If no line needs to be examined, yield the span in one piece."""
        if self._wish.pattern is None and not self._skip:
            yield span.data
            return
        for line in fitting(span.data, self._wish.pattern):
            if self._skip:
                self._skip -= 1
            else:
                yield line


def fitting(data: bytes, pattern: Pattern | None) -> Iterator[bytes]:
    """Yield the lines that contain the pattern, with their line ends."""
    at = 0
    while at < len(data):
        if pattern is not None and pattern.in_block is not None:
            # A match in a line is also a match in the block. So the text before the block's first match needs no
            # search.
            if (found := pattern.in_block.search(data, at)) is None or found.start() >= len(data):
                return
            at = data.rfind(b"\n", at, found.start()) + 1 or at
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end]
        if pattern is None or pattern.in_line.search(line.removesuffix(b"\n")):
            yield line
        at = end


class Printer:
    """Writes lines, each with the requested fields before it, or each line as a JSON object."""

    def __init__(
        self, write: Write, *, prefixed: bool, timestamps: bool = False, as_json: bool = False, attempts: bool = False
    ) -> None:
        """Create a printer.

        `write`: receives the output. `prefixed`: write worker and stream before each line. `timestamps`: write the time
        before each line. `as_json`: write one JSON object per line. `attempts`: add the attempt to the prefix.
        """
        self._write = write
        self._prefixed = prefixed
        self._timestamps = timestamps
        self._as_json = as_json
        self._attempts = attempts
        #: The log whose last written line had no line end.
        self._open: LogCursor | None = None
        self.wrote = False

    def put(self, source: LogCursor, span: Span) -> None:
        for data in source.wanted(span):
            self.wrote = True
            if self._as_json:
                for line in fitting(data, None):
                    self._write(_as_json(source.part, span.at, line))
                continue
            begins = self._open is not source
            if begins:
                self.end()
            lead = self._lead(source.part, span.at)
            if lead:
                whole = data.endswith(b"\n")
                body = (data[:-1] if whole else data).replace(b"\n", b"\n" + lead)
                data = (lead if begins else b"") + body + (b"\n" if whole else b"")
            self._write(data)
            self._open = None if data.endswith(b"\n") else source

    def end(self) -> None:
        """If the last line has a prefix and no line end, write the line end, so that the next line begins a new one."""
        if self._open is not None and (self._prefixed or self._timestamps):
            self._write(b"\n")
        self._open = None

    def _lead(self, part: LogPart, at: float | None) -> bytes:
        moment = f"{stamp(at)} ".encode() if self._timestamps else b""
        if not self._prefixed:
            return moment
        return moment + (b"[attempt %d " % part.attempt + part.prefix[1:] if self._attempts else part.prefix)


def stamp(at: float | None) -> str:
    """Format a time as `2026-11-22 14:20:01.250 +01:00`. None becomes a hyphen."""
    if at is None:
        return "-"
    text = clock(at)
    return f"{text[:19]}.{int(at * 1000 + 0.5) % 1000:03d}{text[19:]}"


def _as_json(part: LogPart, at: float | None, line: bytes) -> bytes:
    whole = {
        "schema": "holdfast.log_line/1",
        "at": at,
        "attempt": part.attempt,
        "role": part.role,
        "rank": part.rank,
        "stream": part.stream,
        "line": line.removesuffix(b"\n").decode(errors="replace"),
        "cut": not line.endswith(b"\n"),
    }
    return msgspec.json.encode(whole) + b"\n"


def pod_line(pod: str, at: float | None, role: str, rank: int | None, text: bytes) -> bytes:
    """Return a line of a pod's log as a JSON object.

    `at`: the line's time, in seconds since the epoch. `rank`: None for a line of holdfast itself.
    """
    whole = {
        "schema": "holdfast.pod_line/1",
        "at": at,
        "pod": pod,
        "role": role or None,
        "rank": rank,
        "line": text.decode(errors="replace"),
    }
    return msgspec.json.encode(whole) + b"\n"


def block_bytes(logs: int) -> int:
    """Return the number of bytes that each of `logs` logs may hold in memory."""
    return max(LEAST_BLOCK_BYTES, min(BLOCK_BYTES, ALL_BLOCKS_BYTES // max(1, logs)))


def merge(sources: Sequence[LogCursor], put: Callable[[LogCursor, Span], None], *, whole_lines: bool = False) -> None:
    """Pass all available lines to `put`, in the order of their times.

    Lines of equal time are in the order of the sources. `whole_lines`: leave an unfinished last line for the next call.
    """
    heap = [
        (at, number)
        for number, source in enumerate(sources)
        if (at := source.peek(whole_lines=whole_lines)) is not None
    ]
    heapq.heapify(heap)
    while heap:
        number = heap[0][1]
        source = sources[number]
        other = min(heap[1:3], default=None)
        while (span := source.take(whole_lines=whole_lines)) is not None:
            put(source, span)
            at = source.peek(whole_lines=whole_lines)
            if at is None:
                heapq.heappop(heap)
                break
            # If a line arrives in several reads, lines of other logs must not come in between.
            if other is not None and (at, number) > other and not source.goes_on:
                heapq.heapreplace(heap, (at, number))
                break
