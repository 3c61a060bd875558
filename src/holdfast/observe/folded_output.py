"""Shows workers' output on the terminal with less repetition.

It merges equal tracebacks of several ranks (folding), and leaves out most states of progress bars. `traceback_fold` and
`progress_bar` have the rules; this module splits the output into lines and prints them.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.human_format import ranks
from holdfast.observe.progress_bar import ProgressBar
from holdfast.observe.traceback_fold import HELD_BYTES, FoldedLine, HeldStream, Shown, TracebackFold
from holdfast.observe.worker_stream import STACKS_BEGIN, TRACEBACK, Sink


class FoldedOutput:
    """Shows the output of this node's workers that have printed a traceback or a progress bar."""

    def __init__(self, lost_peer: Callable[[str], bool]) -> None:
        """`lost_peer(exception)`: whether the exception only says that the connection to another rank is lost."""
        self._fold = TracebackFold(lost_peer)
        self._sinks: dict[HeldStream, FoldedSink] = {}
        #: Records the exit of a rank, or a stop; other ranks then lose their connections to it.
        self.lose = self._fold.lose

    def begin(self, now: float) -> None:
        """Begin a new attempt: show the waiting lines of the previous attempt, and forget its tracebacks.

        Close all streams of the previous attempt first.
        """
        self.finish(now)
        self._fold.begin()
        self._sinks.clear()

    def sink(
        self,
        terminal: Sink,
        terminal_of: Callable[[bytes], Sink],
        prefix: bytes,
        rank: int,
        is_whole: Callable[[], bool],
    ) -> FoldedSink:
        """Return the object (sink) that the pump writes one stream's output to, and that folds it.

        `terminal`: the terminal stream with `prefix` before each line. `terminal_of(prefix)`: returns a terminal stream
        with another prefix. `rank`: the stream's rank. `is_whole()`: whether the log file has all bytes of the stream,
        so that the terminal may leave lines out.
        """
        head, _, end = prefix.decode("utf-8", "replace").rpartition(str(rank))
        stream = HeldStream(rank, head if end == "] " else "", is_whole)
        self._sinks[stream] = sink = FoldedSink(stream, self._fold, self._show, terminal, terminal_of, prefix)
        return sink

    def next_wake(self) -> float | None:
        """Return when `tick` is due; None if no line waits."""
        wakes = (self._fold.next_wake(), *(sink.bar.next_wake() for sink in self._sinks.values()))
        return min((wake for wake in wakes if wake is not None), default=None)

    def tick(self, now: float) -> None:
        """Show the lines and progress bars that have waited long enough."""
        self._show(self._fold.tick(now), now)
        for sink in self._sinks.values():
            sink.tick(now)

    def finish(self, now: float) -> None:
        """Show all waiting lines, because the last stream is closed."""
        self._show(self._fold.finish(), now)

    def _show(self, shown: list[Shown], now: float) -> None:
        for each in shown:
            if isinstance(each, FoldedLine):
                numbers = [stream.rank for stream in each.streams]
                self._sinks[each.streams[0]].print_folded(numbers, each.text, now)
            else:
                stream, lines = each
                self._sinks[stream].print_lines(lines, now)
        for sink in self._sinks.values():
            sink.settle(now)


class FoldedSink:
    """Shows one output stream of a worker. It folds tracebacks and thins out progress bars."""

    __slots__ = ("_fold", "_open", "_prefix", "_rest", "_show", "_stream", "_terminal", "_terminal_of", "bar")

    def __init__(
        self,
        stream: HeldStream,
        fold: TracebackFold,
        show: Callable[[list[Shown], float], None],
        terminal: Sink,
        terminal_of: Callable[[bytes], Sink],
        prefix: bytes,
    ) -> None:
        """`show(items, now)`: prints items on the terminal. `terminal_of(prefix)`: returns a terminal stream with
        another prefix. `prefix`: the text before each line.
        """
        self.bar = ProgressBar()
        self._stream = stream
        self._fold = fold
        self._show = show
        self._terminal = terminal
        self._terminal_of = terminal_of
        self._prefix = prefix
        #: The stream's unfinished last line, while earlier lines wait.
        self._rest = b""
        self._open = True

    def write(self, block: bytes, now: float) -> None:
        """Show the next bytes of the stream, or keep them for later."""
        self._take(self.bar.take(block, now), now)

    def tick(self, now: float) -> None:
        """Show the waiting state of the stream's progress bar, if it is due."""
        if (due := self.bar.next_wake()) is not None and now >= due:
            self._take(self.bar.release(now), now)

    def close(self, now: float) -> None:
        """Show the rest of the stream's output, because the stream has ended. Lines that wait for other ranks come
        later.
        """
        self._take(self.bar.release(now), now)
        if self._rest:
            rest, self._rest = self._rest, b""
            self._show(self._fold.take(self._stream, [rest], now), now)
        self._show(self._fold.end(self._stream), now)

    def settle(self, now: float) -> None:
        """Show the unfinished line if no earlier line waits. If the stream has ended, close its terminal stream too."""
        if self._stream.waits or not self._open:
            return
        if self._rest:
            rest, self._rest = self._rest, b""
            self._terminal.write(rest, now)
        if self._stream.ended:
            self._open = False
            self._terminal.close(now)

    def print_lines(self, lines: list[bytes], now: float) -> None:
        self._terminal.write(b"".join(lines), now)

    def print_folded(self, numbers: list[int], text: str, now: float) -> None:
        """Print one line for several ranks: `[worker-0, 2, 3] ConnectionResetError: …`."""
        who = ranks(numbers)
        if label := self._stream.label:
            short = who.removeprefix("ranks ").removeprefix("rank ").replace(" and ", ", ")
            prefix, line = f"{label}{short}] ".encode(), text
        else:
            prefix, line = self._prefix, f"{who}: {text}"
        terminal = self._terminal_of(prefix)
        terminal.write(f"{line}\n".encode(), now)
        terminal.close(now)

    def _take(self, block: bytes, now: float) -> None:
        if not self._stream.waits:
            start = _first_header(block)
            if start < 0:
                self._terminal.write(block, now)
                return
            self._terminal.write(block[:start], now)
            block = block[start:]
        *lines, self._rest = (self._rest + block).split(b"\n")
        lines = [line + b"\n" for line in lines]
        if len(self._rest) > HELD_BYTES:
            lines.append(self._rest)
            self._rest = b""
        if lines or not self._stream.waits:
            self._show(self._fold.take(self._stream, lines, now), now)


def _first_header(block: bytes) -> int:
    """Return the offset of the first line in the block that begins a traceback or a crash's stacks; -1: there is
    none.
    """
    found = [_line_of(block, TRACEBACK, _may_precede), _line_of(block, STACKS_BEGIN, lambda before: not before)]
    return min((start for start in found if start >= 0), default=-1)


def _line_of(block: bytes, header: bytes, may_precede: Callable[[bytes], bool]) -> int:
    """Return the offset of the first line with `header` and only words that `may_precede` accepts before it; -1: there
    is none.
    """
    at = -1
    while (at := block.find(header, at + 1)) >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        if may_precede(block[start:at]):
            return start
    return -1


def _may_precede(words: bytes) -> bool:
    tag = words[:5] == b"[rank" and words[-3:] == b"]: "
    return tag or words.strip(b" +|") in (b"", b"Exception Group")
