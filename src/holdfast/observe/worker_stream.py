"""One of a worker's two output streams. It copies a pipe to the log file and the terminal."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

#: Bytes of one read. In `bench/log_throughput.py`, 64 KiB took a fifth more CPU, and larger blocks gained nothing.
BLOCK_BYTES = 256 * 1024

DEFAULT_PIPE_BYTES = 64 * 1024

TAIL_BYTES = 16 * 1024


class StreamLog(Protocol):
    """The log of a stream: `holdfast.observe.log_file.LogFile`, or a proxy for a writer in another process."""

    path: Path
    source: str
    lost_bytes: int

    def write(self, block: bytes, now: float) -> None: ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Shows a stream's bytes on a terminal: `holdfast.act.console_streams.PrefixedStream`."""

    def write(self, block: bytes, now: float) -> None: ...

    def close(self, now: float) -> None: ...


#: The beginning of faulthandler's output. faulthandler writes it with its own write call.
STACKS_BEGIN = b"Fatal Python error: "


class Stream:
    """Reads blocks, not lines, from a non-blocking pipe, and keeps the last bytes of the stream."""

    __slots__ = ("_tail", "bytes_seen", "ended", "fd", "file", "first_output_at", "last_output_at", "sink", "source")

    def __init__(self, fd: int, source: str, file: StreamLog, sink: Sink | None) -> None:
        """Take over `fd`, the read end of a pipe. `source`: worker and stream, for messages. `file`: the log file.
        `sink`: shows the stream on the terminal; None: it is not shown.
        """
        os.set_blocking(fd, False)
        self.fd = fd
        self.source = source
        self.file = file
        self.sink = sink
        #: Whether the pipe's last writer has closed it, and all bytes are read.
        self.ended = False
        self.bytes_seen = 0
        self.first_output_at: float | None = None
        self.last_output_at: float | None = None
        self._tail = b""

    def on_readable(self, now: float, limit_bytes: int) -> None:
        """Read the available bytes up to a limit, because workers share the supervisor's time. `limit_bytes`: the
        limit.
        """
        taken = 0
        block = b""
        while taken < limit_bytes:
            try:
                asked = min(BLOCK_BYTES, limit_bytes - taken)
                block = os.read(self.fd, asked)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                self.ended = True  # a pipe that cannot be read counts as ended
                break
            if not block:
                self.ended = True
                break
            taken += len(block)
            self.file.write(block, now)
            if self.sink is not None:
                self.sink.write(block, now)
            self._tail = block[-TAIL_BYTES:] if len(block) >= TAIL_BYTES else (self._tail + block)[-TAIL_BYTES:]
            if len(block) < asked // 2:
                break  # stop: the pipe is empty, or the reactor will soon report it again
        if taken:
            self.bytes_seen += taken
            self.last_output_at = now
            if self.first_output_at is None:
                self.first_output_at = now

    def drain(self, now: float) -> None:
        """Read all bytes that a reaped worker left in the pipe, without blocking.

        Read at most the pipe's capacity, because a background child may go on writing.
        """
        if self.fd < 0 or self.ended:
            return
        left = pipe_size(self.fd)
        while left > 0 and not self.ended:
            before = self.bytes_seen
            self.on_readable(now, left)
            if self.bytes_seen == before:
                break
            left -= self.bytes_seen - before

    def close(self, now: float) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.file.close()
            if self.sink is not None:
                self.sink.close(now)

    def tail(self) -> bytes:
        """Return the last 16 KiB of the stream, as raw bytes."""
        return self._tail


#: The text with which Python begins a traceback.
TRACEBACK = b"Traceback (most recent call last):"


class FoldingSink:
    r"""Passes output on to the terminal.

    From the first traceback or `\r` on, it folds tracebacks and progress bars. The folding code is imported only then,
    because most workers print neither.
    """

    def __init__(self, terminal: Sink, folded: Callable[[Sink], Sink]) -> None:
        """`terminal`: the worker's stream on the terminal.

        `folded(terminal)`: returns the object that folds the output and writes it to `terminal`.
        """
        self._sink = terminal
        self._folded: Callable[[Sink], Sink] | None = folded

    def write(self, block: bytes, now: float) -> None:
        if self._folded is not None and (TRACEBACK in block or STACKS_BEGIN in block or b"\r" in block):
            self._sink = self._folded(self._sink)
            self._folded = None
        self._sink.write(block, now)

    def close(self, now: float) -> None:
        self._sink.close(now)


class StackCutoff:
    """Passes output on to the terminal until the stacks begin that holdfast has requested. It drops the rest, because
    the log file has the stacks.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._over = False

    def write(self, block: bytes, now: float) -> None:
        if not self._over:
            shown, begun, _ = block.partition(STACKS_BEGIN)
            self._over = bool(begun)
            if shown:
                self._sink.write(shown, now)

    def close(self, now: float) -> None:
        self._sink.close(now)


def keep_large_blocks() -> None:
    """Let malloc take read blocks from the heap from now on.

    glibc maps each block larger than 128 KiB and unmaps it when it is freed, which costs a page fault for every 4 KiB
    of output. Its threshold rises to the size of a freed block (mallopt(3), M_MMAP_THRESHOLD). So this function
    allocates and frees one large block.
    """
    _ = bytes(4 * BLOCK_BYTES)


def pipe_size(fd: int) -> int:
    """Return the pipe's capacity in bytes."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except OSError:
        return 2 * DEFAULT_PIPE_BYTES  # the descriptor is a terminal, whose capacity is at most this


def enlarge(fd: int, size: int) -> int:
    """Enlarge a pipe to `size` bytes, or to half of that, and so on, because an unprivileged user has a limit for all
    pipes together.

    Return the resulting size in bytes.
    """
    have = pipe_size(fd)
    while size > have:
        try:
            return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            size //= 2
    return have
