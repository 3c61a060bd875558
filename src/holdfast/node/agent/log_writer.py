"""Writes a node's worker logs in a separate process, so that a slow disk never delays an agent's heartbeats.

A stalled disk (often a network file system) blocks each process that writes to it. So a child of the agent writes the
logs, and gets the output through a socket. While the socket is full, the agent keeps the output in memory. It drops
output beyond a limit, and a line in the file gives the number of dropped bytes.

The agent sends frames (`_HEAD`, then the bytes). The child sends `SYNC` frames and messages for the user. Both ends are
the same holdfast release, and no other program reads or writes this socket.
"""

from __future__ import annotations

import _socket  # used instead of `socket`, which creates enums of a hundred constants and so loads slowly
import enum
import signal
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

from holdfast.act.guard import PASSED_ON
from holdfast.act.isolated_fork import forked
from holdfast.act.linux import name_process
from holdfast.clock import Clock
from holdfast.observe.log_file import LogFile, Rotation, amount
from holdfast.reactor import Reactor

#: The agent keeps at most this many bytes of output in memory while the disk is slow.
MOST_WAITING_BYTES = 32 << 20
WORTH_SAYING_BYTES = 1 << 20
_HEAD = struct.Struct("=BIQd")
_BLOCK = 256 * 1024


class _Kind(enum.IntEnum):
    #: Open a log. The frame's data: the path, the source, and whether the log is shown, each on a line.
    OPEN = enum.auto()
    #: Write output. The frame's data is the output, and its head has the time at which it was read.
    WRITE = enum.auto()
    CLOSE = enum.auto()
    SYNC = enum.auto()
    SAY = enum.auto()


class LogProcess:
    """Starts the process that writes the logs, and sends the output to it. `say` prints a message."""

    def __init__(self, reactor: Reactor, say: Callable[[str], None], rotation: Rotation | None = None) -> None:
        """Fork the writer process. Raises OSError if that fails.

        `rotation`: when to rotate a log; None never rotates.
        """
        self._reactor = reactor
        self._say = say
        mine, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._child = forked(lambda: _write_all(theirs, rotation), keep=[theirs.fileno()])
        theirs.close()
        mine.setblocking(False)
        self._socket = mine
        self._watch = reactor.watch(mine.fileno(), self._ready)
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._slow = False
        self._heard = bytearray()
        self._opened = 0
        self._synced: deque[Callable[[float], None]] = deque()
        self._over = self._closing = False

    @property
    def fd(self) -> int:
        """Return the descriptor of the agent's end of the socket."""
        return self._watch.fd

    @property
    def pid(self) -> int:
        """Return the pid of the writer process. The writer must outlive every process whose output it writes."""
        return self._child.pid

    def open(self, path: Path, source: str, *, shown: bool) -> FarLog:
        """Open a log in the writer process. `source`: the log's worker and stream, by name. `shown`: whether a terminal
        shows the stream too.
        """
        self._opened += 1
        self._put(_Kind.OPEN, self._opened, "\n".join((str(path), source, str(int(shown)))).encode())
        return FarLog(self, self._opened, path, source)

    def write(self, number: int, block: bytes, read_at: float) -> bool:
        """Queue a block of output. Return False if the block is dropped, because the queue is full or the writer has
        exited. `number`: the log's number in the writer process. `read_at`: when the block was read, in seconds since
        the epoch.
        """
        if self._over or self._waiting_bytes + len(block) > MOST_WAITING_BYTES:
            return False
        self._put(_Kind.WRITE, number, block, read_at)
        if self._waiting_bytes > WORTH_SAYING_BYTES and not self._slow:
            self._slow = True
            self._say(
                f"the disk of the logs is slow: {amount(self._waiting_bytes)} of output wait in memory, where at most "
                f"{amount(MOST_WAITING_BYTES)} are kept. A --log-dir on a local disk would help."
            )
        return True

    def close_log(self, number: int) -> None:
        self._put(_Kind.CLOSE, number)

    def when_written(self, then: Callable[[float], None], now: float) -> None:
        """Call `then(now)` once all output so far is in the files, or at once if the writer has exited."""
        if self._over:
            then(now)
            return
        self._synced.append(then)
        self._put(_Kind.SYNC, 0)

    def close(self, within_s: float) -> None:
        """Wait at most `within_s` seconds until the writer has written all output."""
        self._closing = True
        until, shut = self._reactor.now() + within_s, False
        self._reactor.at(until, lambda now: None)
        while not self._over and self._reactor.now() < until:
            if not self._waiting and not shut:
                shut = True
                self._socket.shutdown(_socket.SHUT_WR)
            self._reactor.wait()
        if not self._over:
            self._end()

    def _put(self, kind: _Kind, number: int, data: bytes = b"", read_at: float = 0.0) -> None:
        if self._over:
            return
        for piece in (_HEAD.pack(kind, number, len(data), read_at), data):
            if piece:
                self._waiting.append(memoryview(piece))
                self._waiting_bytes += len(piece)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                sent = self._socket.send(self._waiting[0])
                self._waiting_bytes -= sent
                if sent == len(self._waiting[0]):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = self._waiting[0][sent:]
        except BlockingIOError:
            self._watch.write_too(True)
            return
        except OSError:
            return  # Ignore the error: the writer process has exited, and `_ready` reads the end of its stream.
        self._watch.write_too(False)
        self._slow = False

    def _ready(self, fd: int, now: float) -> None:
        self._flush()
        try:
            data = self._socket.recv(_BLOCK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            if not self._closing:
                self._say("what writes the workers' logs was killed: their output is shown, and not kept any longer")
            self._end()
            while self._synced:
                self._synced.popleft()(now)
            return
        self._heard += data
        for kind, _, text, _ in _frames(self._heard):
            if kind == _Kind.SYNC:
                self._synced.popleft()(now)
            else:
                self._say(text.decode("utf-8", "replace"))

    def _end(self) -> None:
        self._over = True
        self._watch.close()
        self._socket.close()
        self._waiting.clear()
        self._child.end()


class FarLog:
    """A log file that the writer process writes. It has the interface of `holdfast.observe.log_file.LogFile`.

    `number`: the log's number in the writer process. `source`: the log's worker and stream, by name.
    """

    def __init__(self, process: LogProcess, number: int, path: Path, source: str) -> None:
        self.path = path
        self.source = source
        self.lost_bytes = 0
        self._process = process
        self._number = number
        self._gap_bytes = 0

    def write(self, block: bytes, now: float) -> None:
        if self._gap_bytes:
            gap = f"\n[holdfast: {amount(self._gap_bytes)} of output missing here]\n".encode()
            if self._process.write(self._number, gap + block, now):
                self._gap_bytes = 0
                return
        elif self._process.write(self._number, block, now):
            return
        self._gap_bytes += len(block)
        self.lost_bytes += len(block)

    def close(self) -> None:
        self._process.close_log(self._number)


def _frames(held: bytearray) -> list[tuple[int, int, bytes, float]]:
    """Remove the complete frames from the received bytes (`held`), and return them."""
    found = []
    while len(held) >= _HEAD.size:
        kind, number, length, read_at = _HEAD.unpack_from(held)
        end = _HEAD.size + length
        if len(held) < end:
            break
        found.append((kind, number, bytes(held[_HEAD.size : end]), read_at))
        del held[:end]
    return found


def _write_all(socket: _socket.socket, rotation: Rotation | None) -> None:
    """Run the writer process: write all output until the agent has exited."""
    name_process("holdfast-logs")
    # Slurm without cgroups signals every process of a step. The writer blocks these signals, so that it outlives the
    # agent.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    clock = Clock()
    logs: dict[int, LogFile] = {}
    held = bytearray()

    def reply(kind: _Kind, text: str = "") -> None:
        data = text.encode()
        try:
            socket.sendall(_HEAD.pack(kind, 0, len(data), 0.0) + data)
        except OSError:
            pass  # the agent has exited: go on and write the rest of its output

    complained: set[object] = set()

    def complain(text: str, about: object) -> None:
        if about == "recovered":
            complained.clear()
        elif about in complained:
            return
        complained.add(about)
        reply(_Kind.SAY, text)

    while data := socket.recv(_BLOCK):
        held += data
        for kind, number, block, read_at in _frames(held):
            match kind:
                case _Kind.OPEN:
                    path, source, shown = block.decode().rsplit("\n", 2)
                    logs[number] = LogFile(
                        Path(path),
                        source,
                        complain,
                        shown=shown == "1",
                        now=clock.now(),
                        clock=clock.now,
                        rotation=rotation,
                    )
                case _Kind.WRITE:
                    logs[number].write(block, clock.now(), read_at)
                case _Kind.CLOSE:
                    logs.pop(number).close()
                case _Kind.SYNC:
                    reply(_Kind.SYNC)
                case _:
                    raise AssertionError(kind)
