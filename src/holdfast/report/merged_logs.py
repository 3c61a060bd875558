"""Several logs as one, in the order of their lines' times, with a choice of lines and fields.

The memory is bounded, however large and many the logs are: each holds one block.
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
    """The pattern that lines must contain."""

    #: Compiled by re2, which has no type of its own for it.
    in_line: Any
    #: The same for a block of many lines: it finds at least as much. None where there is no such pattern.
    in_block: Any = None


class LogLineFilter(Noun, frozen=True, kw_only=True):
    """Which lines are wanted."""

    since: float | None = None
    #: Seconds since the epoch; a line of that moment itself is excluded.
    until: float | None = None
    #: None: all.
    pattern: Pattern | None = None
    #: The number of last lines of each log.
    tail: int | None = None


def pattern_of(text: str) -> Pattern:
    """Raises `BadUsage` where it is no regular expression."""
    import re2  # most commands that print logs search for nothing

    options = re2.Options()
    options.log_errors = False
    written = text.encode(errors="surrogateescape")
    try:
        line = re2.compile(written, options)
        # The ends of the text are those of a block there, and not of a line.
        ends = b"\\A" in written or b"\\z" in written or b"(?-" in written
        return Pattern(in_line=line, in_block=None if ends else re2.compile(b"(?m:" + written + b")", options))
    except re2.error as error:
        said = error.args[0] if error.args else error
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadUsage(
            f"--grep {text}: {why}: expected a regular expression of RE2", hint="holdfast logs --grep 'loss .*nan'"
        ) from None


class LogSource(Protocol):
    """How a log is read, here or on another node."""

    def begin(self, since: float | None, tail: int | None) -> Mark | None:
        """Where the lines from that moment on begin, and of them the last ones; None: at the log's first byte."""

    def read_on(self, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark | None]:
        """As `log_times.read_on`."""


class FileReader:
    """A log on this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def begin(self, since: float | None, tail: int | None) -> Mark | None:
        """As `LogSource.begin`. Raises OSError where the log is not there."""
        mark = since_mark(self._path, since) if since is not None else None
        return mark if tail is None else later(self._path, mark, tail_mark(self._path, tail))

    def read_on(self, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark | None]:
        """As `LogSource.read_on`."""
        try:
            return read_on(self._path, since, size, whole_lines=whole_lines)
        except FileNotFoundError:
            return [], since  # it has just been given another name, and its successor is not there yet


class LogCursor:
    """One log, read on from where the last reading ended."""

    def __init__(self, part: LogPart, wish: LogLineFilter, block_bytes: int, reader: LogSource | None = None) -> None:
        """`reader`: None for a log on this machine. Raises OSError where it does not exist."""
        self.part = part
        self._reader = reader or FileReader(part.path)
        self._wish = wish
        self._block_bytes = block_bytes
        self._spans: deque[Span] = deque()
        self._mark = self._begin()
        self._last = 0.0
        self._over = False
        self.goes_on = False
        """Whether the last line so far had no line end."""
        self._skip = (
            self._before_the_tail() if wish.tail is not None and (wish.pattern or wish.until is not None) else 0
        )

    def _begin(self) -> Mark | None:
        wish = self._wish
        last = wish.tail if wish.pattern is None and wish.until is None else None
        return None if wish.since is None and last is None else self._reader.begin(wish.since, last)

    @property
    def mark(self) -> Mark | None:
        """Where the next reading begins."""
        return self._mark

    def _before_the_tail(self) -> int:
        """The number of lines before the last ones that are wanted: counted in a separate reading, without keeping
        them."""
        fit = 0
        first = LogCursor(
            self.part, LogLineFilter(since=self._wish.since, until=self._wish.until), self._block_bytes, self._reader
        )
        while (span := first.take(whole_lines=False)) is not None:
            fit += sum(1 for _ in fitting(span.data, self._wish.pattern))
        assert self._wish.tail is not None, "the caller's condition"
        return max(0, fit - self._wish.tail)

    def peek(self, *, whole_lines: bool) -> float | None:
        """The time of the next line; None: there is none for now. Lines without a time come first."""
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
        """The wanted lines of the span, joined where no line has to be examined."""
        if self._wish.pattern is None and not self._skip:
            yield span.data
            return
        for line in fitting(span.data, self._wish.pattern):
            if self._skip:
                self._skip -= 1
            else:
                yield line


def fitting(data: bytes, pattern: Pattern | None) -> Iterator[bytes]:
    """The lines that contain the pattern, with their ends."""
    at = 0
    while at < len(data):
        if pattern is not None and pattern.in_block is not None:
            # What is found in a line is found in the block, no later: what lies before needs no second look.
            if (found := pattern.in_block.search(data, at)) is None or found.start() >= len(data):
                return
            at = data.rfind(b"\n", at, found.start()) + 1 or at
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end]
        if pattern is None or pattern.in_line.search(line.removesuffix(b"\n")):
            yield line
        at = end


class Printer:
    """Writes lines, each with the requested fields before it, or as one JSON object."""

    def __init__(
        self, write: Write, *, prefixed: bool, timestamps: bool = False, as_json: bool = False, attempts: bool = False
    ) -> None:
        """`prefixed`: worker and stream before the line; `attempts`: the attempt too."""
        self._write = write
        self._prefixed = prefixed
        self._timestamps = timestamps
        self._as_json = as_json
        self._attempts = attempts
        self._open: LogCursor | None = None
        """The last written text is a line of this log without its end."""
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
        """Begin the next line at the beginning of an output line."""
        if self._open is not None and (self._prefixed or self._timestamps):
            self._write(b"\n")
        self._open = None

    def _lead(self, part: LogPart, at: float | None) -> bytes:
        moment = f"{stamp(at)} ".encode() if self._timestamps else b""
        if not self._prefixed:
            return moment
        return moment + (b"[attempt %d " % part.attempt + part.prefix[1:] if self._attempts else part.prefix)


def stamp(at: float | None) -> str:
    """`2026-11-22 14:20:01.250 +01:00`; a hyphen where there is no time."""
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
    """A line of a pod's log as a JSON object. `rank`: None for a line of holdfast itself."""
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
    """Bytes that each of so many logs may hold."""
    return max(LEAST_BLOCK_BYTES, min(BLOCK_BYTES, ALL_BLOCKS_BYTES // max(1, logs)))


def merge(sources: Sequence[LogCursor], put: Callable[[LogCursor, Span], None], *, whole_lines: bool = False) -> None:
    """Pass all present lines to `put`, by time; lines of equal time in the order of the sources."""
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
            # A line that comes in parts is not broken by another one.
            if other is not None and (at, number) > other and not source.goes_on:
                heapq.heapreplace(heap, (at, number))
                break
