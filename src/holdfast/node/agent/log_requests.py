"""Reads a node's worker logs for a remote reader: a user, or the owner, which copies the logs of failed ranks.

An answer has at most two pieces, which fit into one frame. Then the reader requests the next piece. So the connection
never holds more data than the reader can accept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.decide.phases import Phase
from holdfast.model.log_time_format import record
from holdfast.observe.folder_watch import FolderWatch
from holdfast.record.rotated_logs import before_end, files_of, older, tail_mark, tail_start
from holdfast.record.timed_logs import has_times, later, read_on, since_mark
from holdfast.safe_files import opened
from holdfast.wire.node_messages import LogFrom, LogPiece, LogRead, ReadLog, RemoteLogFile

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.reactor import Reactor

PIECE_BYTES = 256 * 1024
LEAST_BYTES = 4 * 1024
#: A piece of a log has at most this many timestamps (48 KiB). A log with very short lines is sent in smaller pieces.
MOST_TIMES = 4096
MOST_WAITING = 64


class _Waiting(msgspec.Struct):
    question: ReadLog
    watch: FolderWatch | None = None


class LogReader:
    """Answers requests to read logs.

    `logs`: the directory that contains the attempts' log directories. `node`: this node's name. `answer` receives each
    result.
    """

    def __init__(self, reactor: Reactor, logs: Path, node: str, answer: Callable[[LogRead], object]) -> None:
        self._reactor = reactor
        self._logs = logs
        self._node = node
        self._answer = answer
        self._attempt = 0
        self._done = False
        self._waiting: dict[int, _Waiting] = {}

    def read(self, question: ReadLog) -> None:
        """Answer the request for a log now. If the log has no new output and the request may wait, answer when the log
        has grown.
        """
        self.forget(question.id)
        said = self._look(question)
        if said is None and len(self._waiting) >= MOST_WAITING:
            said = LogRead(id=question.id, trouble=f"{MOST_WAITING} others wait for logs of {self._node} already")
        if said is not None:
            self._answer(said)
            return
        waiting = self._waiting[question.id] = _Waiting(question)
        self._watch(waiting)

    def forget(self, number: int) -> None:
        """Stop waiting for new output for the request with this number."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._release(waiting)

    def moved(self, view: GangView) -> None:
        """Look for new output, because a change of the gang's phase may end an attempt or begin one."""
        self._attempt, self._done = view.attempt, view.phase is Phase.DONE
        for waiting in tuple(self._waiting.values()):
            self._look_again(waiting)

    def close(self) -> None:
        for number in tuple(self._waiting):
            self.forget(number)

    def _look_again(self, waiting: _Waiting) -> None:
        if (said := self._look(waiting.question)) is not None:
            self.forget(waiting.question.id)
            self._answer(said)
        elif waiting.watch is None:
            self._watch(waiting)

    def _watch(self, waiting: _Waiting) -> None:
        directory = self._directory(waiting.question)
        if directory is None:
            # There is no directory to watch yet. `moved` looks again at the next phase.
            return
        try:
            waiting.watch = FolderWatch(directory, growing=True)
        except OSError:
            return  # The kernel allows no more watches. `moved` finds new output at the next phase.
        self._reactor.watch(waiting.watch.fileno(), partial(self._grown, waiting))
        self._look_again(waiting)

    def _grown(self, waiting: _Waiting, fd: int, now: float) -> None:
        if waiting.watch is not None:
            waiting.watch.take()
            self._look_again(waiting)

    def _release(self, waiting: _Waiting) -> None:
        if waiting.watch is not None:
            self._reactor.forget(waiting.watch.fileno())
            waiting.watch.close()
            waiting.watch = None

    def _look(self, question: ReadLog) -> LogRead | None:
        """Return the answer to a request for a log; None if there is no output yet and the request may wait."""
        directory = self._directory(question)
        if directory is None:
            begun = question.attempt and question.attempt < self._attempt
            if question.wait and not begun and not self._done:
                return None
            which = f"attempt {question.attempt}" if question.attempt else "any attempt"
            return LogRead(id=question.id, trouble=f"{self._node} has no log of rank {question.rank} in {which}")
        attempt = int(directory.parent.name.removeprefix("attempt-"))
        over = self._done or attempt < self._attempt
        pieces = tuple(_pieces(directory, question.streams, over))
        if question.wait and not over and not any(piece.data for piece in pieces):
            return None
        role = directory.name.rpartition("-")[0]
        return LogRead(id=question.id, attempt=attempt, role=role, pieces=pieces, over=over, node=self._node)

    def _directory(self, question: ReadLog) -> Path | None:
        """Return the log directory of the rank's worker in the requested attempt, or else in this node's latest
        attempt.
        """
        attempts = [question.attempt] if question.attempt else sorted(self._attempts(), reverse=True)
        for attempt in attempts:
            for found in (self._logs / f"attempt-{attempt}").glob(f"*-{question.rank}"):
                return found
        return None

    def _attempts(self) -> Iterator[int]:
        for found in self._logs.glob("attempt-*"):
            number = found.name.removeprefix("attempt-")
            if number.isascii() and number.isdecimal():
                yield int(number)


def _pieces(directory: Path, wanted: tuple[LogFrom, ...], over: bool) -> Iterator[LogPiece]:
    for where in wanted[:2]:
        try:
            path = directory / f"{where.stream}.log"
            if where.timed:
                yield _timed(path, where, whole=where.whole and not over)
                continue
            with opened(path, link=False) as file:
                size = os.fstat(file.fileno()).st_size
                if where.at > size and (rest := _rest(older(path, 1), where)) is not None:
                    # First yield the rest of the older file, because the log was rotated after the reader's previous
                    # request.
                    yield rest
                    continue
                at = 0 if where.at > size else where.at if where.at >= 0 else max(0, size + where.at)
                if where.lines is not None:
                    at = tail_start(file, where.lines)
                file.seek(at)
                yield LogPiece(stream=where.stream, at=at, data=file.read(PIECE_BYTES), size=size)
        except OSError:
            yield LogPiece(stream=where.stream, at=0)  # yield an empty piece, because the log does not exist yet


def _rest(path: str, where: LogFrom) -> LogPiece | None:
    """Return the unread rest of a rotated log's older file, from the position `where`; None if there is none."""
    try:
        with opened(path, link=False) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(where.at)
            data = file.read(PIECE_BYTES)
    except OSError:
        return None
    return LogPiece(stream=where.stream, at=where.at, data=data, size=size) if data else None


def _timed(path: Path, where: LogFrom, *, whole: bool) -> LogPiece:
    """Read a piece of a log from the position `where`, with the times of its lines. `whole`: end the piece with a
    complete line. Raises OSError if there is no log.
    """
    mark = (where.file, where.at) if where.file else None
    whole_size = 0
    if where.at < 0:
        mark, whole_size = before_end(path, -where.at)
    if where.since is not None:
        mark = since_mark(path, where.since)
    if where.lines is not None:
        mark = later(path, mark, tail_mark(path, where.lines))
    if where.most == 0:
        found = tuple(RemoteLogFile(path=name, size=size) for name, size in files_of(path))
        file, at = mark or (0, 0)
        known = has_times(path)
        return LogPiece(
            stream=where.stream, file=file, at=at, size=sum(one.size for one in found), has_times=known, files=found
        )
    size = min(max(where.most or PIECE_BYTES, LEAST_BYTES), PIECE_BYTES)
    spans, (file, end) = read_on(path, mark, size, whole_lines=whole)
    data, times = bytearray(), bytearray()
    for span in spans[:MOST_TIMES]:
        # Add half a millisecond, because the reader rounds the time down and must get the same millisecond again.
        times += record(len(data), 0.0 if span.at is None else span.at + 0.0005)
        data += span.data
    begin = end - sum(len(span.data) for span in spans)
    return LogPiece(stream=where.stream, file=file, at=begin, data=bytes(data), size=whole_size, times=bytes(times))
