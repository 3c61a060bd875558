"""`holdfast logs` for ranks on other nodes.

The job's owner requests the lines from the nodes; this module merges them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli.job_access.remote_owner import RemoteRefusal
from holdfast.cli.job_logs.local_logs import LocalLogFile, LogOptions, files_here, left_out, print_files, printer_for
from holdfast.cli.output.printing import say
from holdfast.model.log_time_format import records
from holdfast.owner.nodes.operator_client import (
    Answered,
    LogFrom,
    LogLine,
    LogPiece,
    LogRead,
    LogStream,
    OperatorClient,
    RanksLine,
)
from holdfast.record.rotated_logs import Mark
from holdfast.record.timed_logs import Span, has_times
from holdfast.report.log_files import STREAMS, LogPart
from holdfast.report.merged_logs import LogCursor, block_bytes, merge

if TYPE_CHECKING:
    from holdfast.record.job_views import JobView

#: Maximum number of messages that are printed about unreadable logs.
MOST_SAID = 8


class RemoteLog:
    """A log of a rank on another node. The class implements `LogSource`.

    `far`: the connection to the owner. `part`: the log's attempt, rank and stream.
    """

    def __init__(self, far: FarLogs, part: LogPart) -> None:
        self.part = part
        self.stream = LogStream(part.stream)
        self.has_times = False
        self.files: tuple[LocalLogFile, ...] = ()
        #: True if the log is followed. Then a read returns only pieces that the node has sent already (`arrived`).
        self.followed = False
        self.arrived: deque[LogPiece] = deque()
        self._far = far

    def begin(self, since: float | None, tail: int | None) -> Mark | None:
        """Implement `LogSource.begin` with a request to the rank's node. Raise HoldfastError if the request fails."""
        piece = self._read(LogFrom(stream=self.stream, timed=True, since=since, lines=tail, most=0))
        return (piece.file, piece.at) if piece is not None and (piece.file or piece.at) else None

    def read_on(self, since: Mark | None, size: int, *, whole_lines: bool) -> tuple[list[Span], Mark | None]:
        """Implement `LogSource.read_on` with a request to the rank's node. Raise HoldfastError if the request fails."""
        if self.followed:
            piece = self.arrived.popleft() if self.arrived else None
        else:
            try:
                piece = self._read(on_from(self.stream, since, size, whole=whole_lines))
            except RemoteRefusal:
                if not self._far.following:
                    raise
                piece = None  # None if the node does not answer now; a followed log waits for the node
        return ([], since) if piece is None else (_spans(piece), _behind(piece, since))

    def _read(self, where: LogFrom) -> LogPiece | None:
        said = self._far.ask(LogLine(rank=self.part.rank, attempt=self.part.attempt, streams=(where,)))
        return next(iter(said.pieces), None)


def on_from(stream: LogStream, mark: Mark | None, most: int, *, whole: bool) -> LogFrom:
    """Return the request to a node for the bytes of a log from position `mark` on. `most`: maximum number of bytes.
    `whole`: end with a complete line.
    """
    file, at = mark or (0, 0)
    return LogFrom(stream=stream, timed=True, file=file, at=at, most=most, whole=whole)


def _behind(piece: LogPiece | None, since: Mark | None) -> Mark | None:
    """Return the position in the log at which this piece ends; `since` if there is no piece."""
    if piece is None or not (piece.file or piece.data):
        return since  # the log does not exist yet
    return piece.file, piece.at + len(piece.data)


def _spans(piece: LogPiece) -> list[Span]:
    if not piece.data:
        return []
    begun = records(piece.times) or [(0, 0.0)]  # an earlier version of holdfast does not send times
    ends = [*(at for at, _ in begun[1:]), len(piece.data)]
    return [Span(at=at or None, data=piece.data[begin:end]) for (begin, at), end in zip(begun, ends, strict=True)]


class FarLogs:
    """Reads the logs of a job over nodes through its owner.

    `owner`: the connection to the owner. `view`: the job. `wish`: the options. `following`: whether the logs are
    followed.
    """

    def __init__(self, owner: OperatorClient, view: JobView, wish: LogOptions, *, following: bool = False) -> None:
        self.owner = owner
        self.view = view
        self.wish = wish
        self.following = following
        self._said: set[str] = set()
        self._reached = False

    def ask(self, line: LogLine) -> LogRead:
        """Send the request `line` for a rank's logs to the owner, which passes it to the rank's node. Return the
        answer. Raise HoldfastError if the request fails.
        """
        # If the owner has answered before, try again, because an owner that was killed is restarted in a moment.
        answer = self.owner.ask(line, again=self._reached)
        self._reached = True
        if answer.log is None or not answer.ok:
            raise self.refusal(answer)
        return answer.log

    def ranks(self, attempt: int, *, wait: bool = False) -> Answered:
        """Return the ranks of an attempt with their nodes.

        Attempt 0: the last attempt. Raise HoldfastError if the request fails.
        """
        answer = self.owner.ask(RanksLine(attempt=attempt, wait=wait), waits=wait, again=self._reached)
        self._reached = True
        if not answer.ok and "no question" in answer.message:
            raise RemoteRefusal(
                f"job {self.view.id}: its owner runs an earlier version of holdfast, which answers only with --rank"
            )
        if not answer.ok:
            raise self.refusal(answer)
        if answer.ranks_in_all > len(answer.ranks):
            self.tell(
                f"attempt {answer.attempt} has {answer.ranks_in_all} ranks: the logs of the first "
                f"{len(answer.ranks)} are shown; type --rank for another one"
            )
        return answer

    def refusal(self, answer: Answered) -> RemoteRefusal:
        return RemoteRefusal(f"job {self.view.id}: {answer.message}")

    def logs(self, attempt: int, ranks: Sequence[int]) -> list[RemoteLog]:
        """Return the logs of these ranks.

        Raise HoldfastError if the user typed one rank and its log cannot be read.
        """
        found: list[RemoteLog] = []
        for rank in ranks:
            streams = tuple(LogFrom(stream=LogStream(name), timed=True, most=0) for name in self.wish.streams)
            try:
                said = self.ask(LogLine(rank=rank, attempt=attempt, streams=streams))
            except RemoteRefusal as error:
                if self.wish.rank is not None:
                    raise
                self.tell(error.message)
                continue
            found += [self._log(said, rank, piece) for piece in said.pieces]
        return found

    def log(self, said: LogRead, rank: int, stream: LogStream) -> RemoteLog:
        """Return the log of this rank and stream. `said`: the answer of the node that has the log."""
        return RemoteLog(self, LogPart(attempt=said.attempt, role=said.role, rank=rank, stream=stream.value, path=""))

    def _log(self, said: LogRead, rank: int, piece: LogPiece) -> RemoteLog:
        log = self.log(said, rank, piece.stream)
        log.has_times = piece.has_times
        node = said.node or "?"
        log.files = tuple(
            LocalLogFile(part=log.part, path=each.path, size=each.size, node=node) for each in piece.files
        )
        if not piece.files and piece.size:
            # An earlier version of holdfast only sends the size.
            log.files = (LocalLogFile(part=log.part, path="", size=piece.size, node=node),)
        return log

    def tell(self, text: str) -> None:
        """Print a message, but print each text only once, and at most `MOST_SAID` messages."""
        if text not in self._said and len(self._said) < MOST_SAID:
            self._said.add(text)
            say(text)

    def show(self, here: Sequence[LogPart], far: Sequence[RemoteLog], *, paths: bool) -> None:
        """Print all lines that the logs have now. Raise HoldfastError if a request fails.

        `here`: the logs on this machine. `far`: the logs on other nodes. `paths`: print the logs' paths instead.
        """
        wish = self.wish
        if paths:
            files = [*files_here(here), *(file for log in far for file in log.files)]
            if any(not file.path for file in files):
                self.tell("a node runs an earlier version of holdfast, which names no paths: its logs are left out")
                files = [file for file in files if file.path]
            print_files(self.view.id, sorted(files, key=lambda file: _order(file.part)), as_json=wish.as_json)
            return
        both = [*((part, None, [*files_here([part])]) for part in here), *((log.part, log, log.files) for log in far)]
        both.sort(key=lambda each: _order(each[0]))
        written = [each for each in both if any(file.size for file in each[2])]
        without = [each for each in written if not (each[1].has_times if each[1] else has_times(each[0].path))]
        if left_out(self.view, len(without), len(written), wish, several=len(both) > 1):
            both = [each for each in both if each not in without]
        printer = printer_for([part for part, _, _ in both], wish, prefixed=len(both) > 1)
        size = block_bytes(len(both))
        merge([LogCursor(part, wish.lines, size, log) for part, log, _ in both], printer.put)
        printer.end()
        sys.stdout.buffer.flush()
        if not printer.wrote and wish.lines.tail != 0:
            asked = wish.in_time or wish.lines.pattern is not None
            say(f"job {self.view.id}: {'no line of its logs fits' if asked else 'nothing was written to these logs'}")


def _order(part: LogPart) -> tuple[int, int, str, int]:
    return part.attempt, part.rank, part.role, STREAMS.index(part.stream)
