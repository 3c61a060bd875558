"""Copies the ends of failed ranks' logs from their nodes into the job's directory. Each node sends one piece at a
time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.log_time_format import head, record, records, times_name
from holdfast.wire.node_messages import LogFrom, LogRead, LogStream, ReadLog

if TYPE_CHECKING:
    from holdfast.model.events import EvidenceCollected

#: Bytes to copy from each of a rank's two logs, at most.
TAIL_BYTES = 1 << 20
#: The logs of at most this many ranks of an attempt are copied: the culprits first, then the ranks that died first.
#: More could fill the owner's disk.
MOST_RANKS = 64

#: Pieces to copy for one rank, at most. Without a limit the copying might never end, because a leftover process of the
#: rank may go on writing.
MOST_PIECES = 16

#: A function that sends a numbered `ReadLog` request to a node. It returns the number; None if the node is not
#: connected.
Ask = Callable[[str, Callable[[int], ReadLog]], "int | None"]


class _Failed(msgspec.Struct):
    """A failed rank whose logs are being copied."""

    node: str
    role: str
    rank: int
    ended_at: float


class _Tail(msgspec.Struct):
    node: str
    attempt: int
    rank: int
    #: The directory for the rank's logs in the job's directory.
    directory: Path
    #: Stream → the next position to read. A stream that is read to its end is removed.
    at: dict[LogStream, LogFrom]
    number: int = 0
    #: The number of pieces copied so far.
    pieces: int = 0


class FailedLogTails:
    """Copies the ends of failed ranks' logs. `logs`: the parent of the attempts' directories on the owner's machine.

    A rank that already has a directory there is skipped.
    """

    def __init__(self, logs: Path, ask: Ask) -> None:
        self._logs = logs
        self._ask = ask
        self._queues: dict[str, deque[_Tail]] = {}
        self._attempt = 0
        #: The failed ranks of the attempt whose logs are being copied.
        self._failed: list[_Failed] = []

    @property
    def busy(self) -> bool:
        return any(self._queues.values())

    def note(self, node: str, event: EvidenceCollected) -> None:
        """Remember the failed ranks on this node, from the evidence of an ended attempt."""
        if event.attempt != self._attempt:
            self._attempt, self._failed = event.attempt, []
        for worker in event.evidence.workers:
            ended = worker.exit
            if ended is not None and not ended.ok and not ended.after_stop:
                self._failed.append(_Failed(node, worker.role, worker.rank, ended.ended_at or 0.0))

    def fetch(self, attempt: int, culprits: Collection[int]) -> None:
        """Copy the logs of the failed ranks, the culprits' first. Call this after the attempt is explained."""
        failed = sorted(self._failed, key=lambda one: (one.rank not in culprits, one.ended_at, one.rank))
        idle = [node for node in {one.node for one in failed} if not self._queues.get(node)]
        for one in failed[:MOST_RANKS] if attempt == self._attempt else ():
            directory = self._logs / f"attempt-{attempt}" / f"{one.role}-{one.rank}"
            # If the directory exists, the node shares its home directory with the owner, and has written the logs
            # there.
            if not directory.exists():
                start = {stream: LogFrom(stream=stream, at=-TAIL_BYTES, timed=True) for stream in LogStream}
                tail = _Tail(one.node, attempt, one.rank, directory, start)
                self._queues.setdefault(one.node, deque()).append(tail)
        self._failed = []
        for node in idle:
            self._next(node)

    def read(self, node: str, said: LogRead) -> bool:
        """Handle a node's answer. Return False if it answers a request that this object has not sent."""
        queue = self._queues.get(node)
        if not queue or queue[0].number != said.id:
            return False
        tail = queue[0]
        try:
            self._keep(tail, said)
        except OSError:
            tail.at.clear()  # stop copying these logs, for example because the disk is full; the node still has them
        if not tail.at:
            queue.popleft()
        self._next(node)
        return True

    def node_left(self, node: str) -> None:
        self._queues.pop(node, None)

    def _next(self, node: str) -> None:
        queue = self._queues.get(node)
        if not queue:
            return
        tail = queue[0]
        streams = tuple(tail.at.values())
        number = self._ask(
            node, lambda number: ReadLog(id=number, rank=tail.rank, attempt=tail.attempt, streams=streams)
        )
        if number is None:
            self.node_left(node)
        else:
            tail.number = number

    def _keep(self, tail: _Tail, said: LogRead) -> None:
        if said.trouble or not said.pieces:
            tail.at.clear()
            return
        tail.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        tail.pieces += 1
        for unanswered in tail.at.keys() - {piece.stream for piece in said.pieces}:
            del tail.at[unanswered]
        for piece in said.pieces:
            log = tail.directory / f".{piece.stream}.log"
            first = tail.at[piece.stream].at < 0
            cut = _cut(TAIL_BYTES, piece.size, tail.node) if first and piece.size > TAIL_BYTES else b""
            with log.open("wb" if first else "ab") as file:
                begin = file.tell()
                file.write(cut + piece.data)
                number = os.fstat(file.fileno()).st_ino
            times = log.with_name(times_name(log.name))
            with times.open("wb" if first else "ab") as file:
                # If the log's beginning was left out, the file begins with a line that says so. That line gets the time
                # of the first copied line.
                begun = [(begin + (at and at + len(cut)), moment) for at, moment in records(piece.times)]
                # Times are stored in whole milliseconds, rounded down. Half a millisecond is added, so that rounding
                # gives the same number again.
                kept = [record(at, moment + 0.0005) for at, moment in begun if moment]
                file.write((head(number) if first else b"") + b"".join(kept))
            after = piece.at + len(piece.data)
            if piece.data and (piece.file or after < piece.size) and tail.pieces < MOST_PIECES:
                tail.at[piece.stream] = LogFrom(stream=piece.stream, at=after, file=piece.file, timed=True)
            else:
                del tail.at[piece.stream]
                for temporary in (times, log):
                    temporary.rename(temporary.with_name(temporary.name.removeprefix(".")))


def _cut(kept: int, size: int, node: str) -> bytes:
    return f"[holdfast: the last {kept} of {size} bytes; the whole log is on {node}]\n".encode()
