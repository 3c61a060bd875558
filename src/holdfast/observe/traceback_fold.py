"""Merges ("folds") equal tracebacks of several workers on the terminal. The log files keep every byte. This module does
no input or output.

Two kinds of traceback become one line for all their ranks: one that another rank has printed already, and one about a
lost connection after another rank has failed. From the first line of a traceback on, a stream's lines wait for at most
`WAIT_S` seconds. Meanwhile other ranks print their tracebacks, and the exit that broke a connection becomes known. A
traceback unlike the earlier ones is shown when its worker has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.lazy_pattern import Lazy
from holdfast.observe.worker_stream import STACKS_BEGIN, TRACEBACK
from holdfast.safe_text import one_line

#: A traceback waits this many seconds for the tracebacks of other ranks.
WAIT_S = 1.0
#: Another rank's exit explains a lost connection within this many seconds. Later it does not, because the other ranks
#: may go on without that rank.
LOSS_S = 60.0
#: At most this many bytes of a stream wait. If it writes more, its lines are shown unchanged.
HELD_BYTES = 32 * 1024
#: At most this many different tracebacks of an attempt are remembered. `FOLLOWING`: the number of lines after each that
#: are compared.
KNOWN = 256
FOLLOWING = 16
#: A folded line has at most this many characters of an exception.
EXCEPTION_CHARS = 160

_TAG = Lazy(r"\[rank\d{1,9}\]: ?")
#: Matches the lines that Python prints between two tracebacks of a chain of exceptions.
_LINK = Lazy(
    r'\s*$|"{3}$|During handling of the above exception, another exception occurred:$'
    r"|The above exception was the direct cause of the following exception:$"
)
#: Matches text that differs in each process: memory addresses, ports, process ids.
_OF_A_PROCESS = Lazy(r"0x[0-9a-fA-F]+|(?<=\d)\]?:\d{4,5}\b|(?i:(?<=pid)[ =:]{1,2}\d+)")
#: Matches the frame characters that Python prints before the lines of an exception group.
_GROUP = Lazy(r"\s+(?:\| ?|\+-)")
_TYPE = Lazy(r"[A-Za-z_][\w.]*")


class HeldStream:
    """One output stream of a worker, and its waiting lines."""

    __slots__ = ("ended", "is_whole", "label", "lines", "rank", "since", "size", "waits")

    def __init__(self, rank: int, label: str = "", is_whole: Callable[[], bool] = lambda: True) -> None:
        """`label`: only streams with the same label may share a folded line. `is_whole()`: whether the log file has all
        bytes of the stream, so that the terminal may leave lines out.
        """
        self.rank = rank
        self.label = label
        self.is_whole = is_whole
        self.waits = False
        #: The waiting lines; the first begins a traceback.
        self.lines: list[bytes] = []
        self.size = 0
        #: When the first waiting line came.
        self.since = 0.0
        self.ended = False


class FoldedLine:
    """One line in place of the tracebacks of several streams."""

    __slots__ = ("streams", "text")

    def __init__(self, streams: Sequence[HeldStream], text: str) -> None:
        self.streams = streams
        self.text = text


#: The next output for the terminal: lines of one stream, or a folded line.
Shown = tuple[HeldStream, list[bytes]] | FoldedLine


class TracebackFold:
    """Decides which tracebacks of one node's workers are folded in the present attempt."""

    def __init__(self, lost_peer: Callable[[str], bool]) -> None:
        """`lost_peer(exception)`: whether the exception only says that the connection to another rank is lost."""
        self._lost_peer = lost_peer
        self._waiting: list[HeldStream] = []
        #: The frames of a traceback → the rank that printed it first, and the lines after it.
        self._known: dict[str, tuple[int, list[str]]] = {}
        #: The event that broke connections between ranks: (description, the rank that failed or None, time); None:
        #: there was none.
        self._loss: tuple[str, int | None, float] | None = None

    def begin(self) -> None:
        """Forget the tracebacks of the previous attempt."""
        self._known.clear()
        self._loss = None

    def lose(self, cause: str, rank: int | None, now: float) -> None:
        """Record an event that breaks connections between ranks, such as `the exit of rank 1`. The first of several
        counts.
        """
        if self._loss is None or now > self._loss[2] + LOSS_S:
            self._loss = (cause, rank, now)

    def take(self, stream: HeldStream, lines: list[bytes], now: float) -> list[Shown]:
        """Let the stream's next complete lines wait; the first waiting line begins a traceback. If too many bytes wait,
        return all lines.
        """
        if not stream.waits:
            stream.waits = True
            stream.since = now
            self._waiting.append(stream)
        stream.lines += lines
        stream.size += sum(map(len, lines))
        return [(stream, self._taken(stream))] if stream.size > HELD_BYTES else []

    def finish(self) -> list[Shown]:
        """Return all waiting lines, because no worker is left."""
        return self._show(self._waiting)

    def end(self, stream: HeldStream) -> list[Shown]:
        """Handle the end of a stream. Return its lines now if they are a new traceback."""
        stream.ended = True
        new = stream.waits and any(self._is_new(stream, each) for each in _tracebacks(stream))
        return self._show([stream]) if new else []

    def next_wake(self) -> float | None:
        """Return when `tick` is due; None if no line waits."""
        return self._waiting[0].since + WAIT_S if self._waiting else None

    def tick(self, now: float) -> list[Shown]:
        """Return the lines of each stream whose first line has waited for `WAIT_S`, and of all streams that need not
        wait any longer.
        """
        due = [stream for stream in self._waiting if now >= stream.since + WAIT_S]
        if not due:
            return []
        ready = [stream for stream in self._waiting if stream in due or not self._is_open(stream)]
        return self._show(ready)

    def _is_open(self, stream: HeldStream) -> bool:
        """Return whether the stream's lines must wait: for more lines of a traceback, or for another rank's exit that
        explains a lost connection.
        """
        return any(
            not each.complete or (self._is_loss(each) and not self._is_collateral(stream, each))
            for each in _tracebacks(stream)
        )

    def _is_new(self, stream: HeldStream, traceback: _Traceback) -> bool:
        if not traceback.complete:
            return not self._is_cut(stream)
        return not (self._is_loss(traceback) or self._is_known(stream, traceback))

    def _is_cut(self, stream: HeldStream) -> bool:
        """Return whether the stream ends in the middle of a traceback, because another rank's exit stopped its
        worker.
        """
        return stream.ended and self._follows(stream)

    @property
    def _cause(self) -> str:
        return self._loss[0] if self._loss is not None else ""

    def _follows(self, stream: HeldStream) -> bool:
        """Return whether another rank's exit may have caused the traceback in this stream."""
        if self._loss is None:
            return False
        _, rank, at = self._loss
        return rank != stream.rank and stream.since <= at + LOSS_S

    def _is_loss(self, traceback: _Traceback) -> bool:
        return traceback.complete and self._lost_peer(traceback.message)

    def _is_collateral(self, stream: HeldStream, traceback: _Traceback) -> bool:
        return self._follows(stream) and self._is_loss(traceback)

    def _is_known(self, stream: HeldStream, traceback: _Traceback) -> bool:
        known = self._known.get(traceback.frames)
        return known is not None and known[0] != stream.rank

    def _show(self, streams: Iterable[HeldStream]) -> list[Shown]:
        """Return these streams' lines to show: new tracebacks first, then folded lines, then the lines after the folded
        tracebacks.
        """
        shown: list[Shown] = []
        folded: dict[tuple[str, ...], tuple[list[HeldStream], str]] = {}
        rest: list[Shown] = []
        for stream in list(streams):
            place = shown
            for each in _tracebacks(stream):
                if (line := self._folded(stream, each)) is None:
                    place.append((stream, each.lines + each.after))
                    self._remember(stream, each)
                    continue
                place = rest
                kind, text, after = line
                members, _ = folded.setdefault((stream.label, *kind), ([], text))
                if stream not in members:
                    members.append(stream)
                if after:
                    rest.append((stream, after))
            self._taken(stream)
        return [*shown, *(FoldedLine(members, text) for members, text in folded.values()), *rest]

    def _taken(self, stream: HeldStream) -> list[bytes]:
        """Remove and return the stream's waiting lines."""
        self._waiting.remove(stream)
        stream.waits = False
        lines, stream.lines, stream.size = stream.lines, [], 0
        return lines

    def _folded(self, stream: HeldStream, traceback: _Traceback) -> tuple[tuple[str, ...], str, list[bytes]] | None:
        """Fold the traceback if possible. Return its kind (tracebacks of one kind share a line), the folded line, and
        the lines after the traceback that must still be shown; None: it cannot be folded.
        """
        if not stream.is_whole():
            return None
        if not traceback.complete:
            text = f"a traceback without its end (after {self._cause}; whole text in the logs)"
            return (("cut",), text, []) if self._is_cut(stream) else None
        exception = one_line(traceback.exception)
        if len(exception) > EXCEPTION_CHARS:
            exception = exception[: EXCEPTION_CHARS - 1] + "…"
        after = traceback.after
        if self._is_collateral(stream, traceback):
            text = f"{exception} (after {self._cause}; whole text in the logs)"
            return ("lost", traceback.type), text, [] if all(map(_is_blank, after)) else after
        if not self._is_known(stream, traceback):
            return None
        rank, following = self._known[traceback.frames]
        same = 0
        for line, before in zip(after, following, strict=False):
            if traceback.plain(line) != before:
                break
            same += 1
        kind = ("same", traceback.frames, traceback.plain(traceback.exception.encode()))
        text = f"{exception} (the same traceback as rank {rank}; whole text in the logs)"
        return kind, text, [] if all(map(_is_blank, after[same:])) else after[same:]

    def _remember(self, stream: HeldStream, traceback: _Traceback) -> None:
        if traceback.complete and len(self._known) < KNOWN:
            following = [traceback.plain(line) for line in traceback.after[:FOLLOWING]]
            self._known.setdefault(traceback.frames, (stream.rank, following))


class _Traceback:
    """A traceback with its chain of exceptions, and the lines after it up to the next traceback."""

    __slots__ = ("_own", "after", "complete", "exception", "frames", "lines", "message", "type")

    def __init__(self, rank: int, frames: list[bytes], message: list[bytes], after: list[bytes]) -> None:
        """`frames`: the lines before the exception. `message`: the exception's lines; empty until they have come.
        `after`: the lines after the traceback.

        The stacks of a crash are a `message` without `frames`.
        """
        self._own = Lazy(rf"(?i)((?:rank|worker|cuda|device)[ _:=#-]{{0,2}}){rank}\b")
        self.lines = [*frames, *message]
        self.after = after
        self.complete = bool(message)
        self.message = "\n".join(map(_text, message))
        self.exception = _text(message[0]).lstrip(" |") if message else ""
        match = _TYPE.match(self.exception)
        #: The name of the exception's class, without its module.
        self.type = match[0].rpartition(".")[2] if match is not None else ""
        #: The frames and the exception's class, without the text that differs in each rank. Equal tracebacks have equal
        #: values.
        self.frames = "\n".join([*map(self.plain, frames or message), self.type])

    def plain(self, line: bytes) -> str:
        """Return a line without the text that differs in each rank."""
        return _OF_A_PROCESS.sub("#", self._own.sub(r"\1#", _text(line)))


def _text(line: bytes) -> str:
    """Decode a line, and remove torch's prefix `[rank0]: `."""
    text = line.decode("utf-8", "replace").rstrip()
    return text[match.end() :] if (match := _TAG.match(text)) is not None else text


def _is_blank(line: bytes) -> bool:
    return not line.strip()


def _tracebacks(stream: HeldStream) -> Iterator[_Traceback]:
    """Split the stream's waiting lines into tracebacks, each with the lines after it."""
    lines = stream.lines
    begin = raised = end = 0

    def traceback(until: int) -> _Traceback:
        if not end:
            return _Traceback(stream.rank, lines[begin:until], [], [])
        return _Traceback(stream.rank, lines[begin:raised], lines[raised:end], lines[end:until])

    for index, line in enumerate(lines):
        text = _text(line)
        framed = b"Exception Group Traceback" in lines[begin] and _GROUP.match(text)
        if line.startswith(STACKS_BEGIN):  # the stacks of a crash: the process prints nothing more after them
            if index:
                yield traceback(index)
            crash = lines[index:]
            yield _Traceback(stream.rank, [], crash, []) if stream.ended else _Traceback(stream.rank, crash, [], [])
            return
        if TRACEBACK in line:
            if end and not all(_LINK.match(_text(between)) for between in lines[end:index]):
                yield traceback(index)
                begin = index
            end = 0  # go on with the frames of the next exception in the chain, or of a new traceback
        elif end:
            # A message may have several lines: torch puts its prefix before each, and Python frames each line of an
            # exception group.
            if end == index and (framed or _TAG.match(line.decode("utf-8", "replace"))):
                end = index + 1
        elif (inner := text[framed.end() :] if framed else text) and not inner[0].isspace():
            raised, end = index, index + 1
    yield traceback(len(lines))
