"""The ends of failed ranks' logs, fetched from their nodes into the job's directory, one piece of a node at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.wire.messages import LogFrom, LogRead, LogStream, ReadLog

if TYPE_CHECKING:
    from holdfast.model.events import EvidenceCollected

TAIL_BYTES = 1 << 20
"""Of each of a rank's two logs."""
MOST_RANKS = 64
"""Of one attempt and node: those that died first."""

Ask = Callable[[str, Callable[[int], ReadLog]], "int | None"]
"""Sends a node a question that gets a number; None where the node is not connected."""


class _Tail(msgspec.Struct):
    node: str
    attempt: int
    rank: int
    directory: Path
    """The rank's, in the job's directory."""
    at: dict[LogStream, int]
    """Where each stream that is still to be read goes on."""
    number: int = 0


class Tails:
    """`logs`: where the attempts' directories lie beside the owner. A rank whose directory is there is left alone."""

    def __init__(self, logs: Path, ask: Ask) -> None:
        self._logs = logs
        self._ask = ask
        self._queues: dict[str, deque[_Tail]] = {}

    @property
    def busy(self) -> bool:
        return any(self._queues.values())

    def fetch(self, node: str, event: EvidenceCollected) -> None:
        """The attempt has ended on this node."""
        failed = [worker for worker in event.evidence.workers if worker.exit is not None and worker.node == node]
        failed = [worker for worker in failed if worker.exit and not worker.exit.ok and not worker.exit.after_stop]
        failed.sort(key=lambda worker: worker.exit.order if worker.exit is not None else 0)
        queue = self._queues.setdefault(node, deque())
        idle = not queue
        for worker in failed[:MOST_RANKS]:
            directory = self._logs / f"attempt-{event.attempt}" / f"{worker.role}-{worker.rank}"
            # Nodes that share a home have written it there themselves.
            if not directory.exists():
                start = dict.fromkeys(LogStream, -TAIL_BYTES)
                queue.append(_Tail(node, event.attempt, worker.rank, directory, start))
        if idle:
            self._next(node)

    def read(self, node: str, said: LogRead) -> bool:
        """Whether this answers a question of ours."""
        queue = self._queues.get(node)
        if not queue or queue[0].number != said.id:
            return False
        tail = queue[0]
        try:
            self._keep(tail, said)
        except OSError:
            tail.at.clear()  # a full disk, say: the whole log is on its node
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
        streams = tuple(LogFrom(stream=stream, at=at) for stream, at in tail.at.items())
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
        for piece in said.pieces:
            draft = tail.directory / f".{piece.stream}.log"
            first = tail.at.get(piece.stream, 0) < 0
            with draft.open("wb" if first else "ab") as file:
                if first and piece.at:
                    file.write(_cut(piece.size - piece.at, piece.size, tail.node))
                file.write(piece.data)
            after = piece.at + len(piece.data)
            if piece.data and after < piece.size:
                tail.at[piece.stream] = after
            else:
                tail.at.pop(piece.stream, None)
                draft.rename(tail.directory / f"{piece.stream}.log")


def _cut(kept: int, size: int, node: str) -> bytes:
    return f"[holdfast: the last {kept} of {size} bytes; the whole log is on {node}]\n".encode()
