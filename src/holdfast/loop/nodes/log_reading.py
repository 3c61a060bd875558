"""Reads in the logs of a node's own workers for one that is elsewhere: a person, or the owner's job directory.

A piece is at most so large that two of them fit into a frame; who wants more asks on from where the last one ended, so
that no reader has more on its way than it can take.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.decide.phases import Phase
from holdfast.files import opened
from holdfast.observe.folder import FolderWatch
from holdfast.record.log_tail import tail_start
from holdfast.wire.messages import LogFrom, LogPiece, LogRead, ReadLog

if TYPE_CHECKING:
    from holdfast.decide.view import GangView
    from holdfast.reactor import Reactor

PIECE_BYTES = 256 * 1024
MOST_WAITING = 64


class _Waiting(msgspec.Struct):
    question: ReadLog
    watch: FolderWatch | None = None


class LogReader:
    """`logs`: where the attempts' directories lie. `answer` takes what was read."""

    def __init__(self, reactor: Reactor, logs: Path, node: str, answer: Callable[[LogRead], object]) -> None:
        self._reactor = reactor
        self._logs = logs
        self._node = node
        self._answer = answer
        self._attempt = 0
        self._done = False
        self._waiting: dict[int, _Waiting] = {}

    def read(self, question: ReadLog) -> None:
        """Answer now, or when there is something to read where the question may wait."""
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
        """Nothing waits for that answer any more."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._let_go(waiting)

    def moved(self, view: GangView) -> None:
        """The gang is in another phase: an attempt may be over, or another one may have begun."""
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
            return  # its worker has not been prepared: the gang moves when it is
        try:
            waiting.watch = FolderWatch(directory, growing=True)
        except OSError:
            return  # too many are watched already: what was written shows when the gang moves
        self._reactor.watch(waiting.watch.fileno(), partial(self._grown, waiting))
        self._look_again(waiting)

    def _grown(self, waiting: _Waiting, fd: int, now: float) -> None:
        if waiting.watch is not None:
            waiting.watch.take()
            self._look_again(waiting)

    def _let_go(self, waiting: _Waiting) -> None:
        if waiting.watch is not None:
            self._reactor.forget(waiting.watch.fileno())
            waiting.watch.close()
            waiting.watch = None

    def _look(self, question: ReadLog) -> LogRead | None:
        """The answer; None where there is nothing yet and the question may wait."""
        directory = self._directory(question)
        if directory is None:
            begun = question.attempt and question.attempt < self._attempt
            if question.wait and not begun and not self._done:
                return None
            which = f"attempt {question.attempt}" if question.attempt else "any attempt"
            return LogRead(id=question.id, trouble=f"{self._node} has no log of rank {question.rank} in {which}")
        attempt = int(directory.parent.name.removeprefix("attempt-"))
        pieces = tuple(_pieces(directory, question.streams))
        over = self._done or attempt < self._attempt
        if question.wait and not over and not any(piece.data for piece in pieces):
            return None
        role = directory.name.rpartition("-")[0]
        return LogRead(id=question.id, attempt=attempt, role=role, pieces=pieces, over=over)

    def _directory(self, question: ReadLog) -> Path | None:
        """Of this rank's worker, in the attempt that was asked for or the last one that it has here."""
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


def _pieces(directory: Path, wanted: tuple[LogFrom, ...]) -> Iterator[LogPiece]:
    for where in wanted[:2]:
        try:
            with opened(directory / f"{where.stream}.log") as file:
                size = os.fstat(file.fileno()).st_size
                at = where.at if where.at >= 0 else max(0, size + where.at)
                if where.lines is not None:
                    at = tail_start(file, where.lines)
                file.seek(at)
                yield LogPiece(stream=where.stream, at=at, data=file.read(PIECE_BYTES), size=size)
        except OSError:
            yield LogPiece(stream=where.stream, at=0)  # not written yet
