"""The terminal that workers and holdfast share. Its buffer is bounded, no write blocks, and lines of two writers never
mix.

The console buffers output that it cannot write at once. If the buffer is full and the reader still reads, however
slowly, the console is `full`, and its writers pause: `holdfast run … | slow-reader` loses no line. If the buffer is
full and the reader has read nothing for `STALL_S` seconds, the console drops further output and counts it, because
training must not wait for a display. When the reader reads again, the console reports the dropped bytes and the log
files that contain them.
"""

from __future__ import annotations

import select
from collections import deque
from itertools import islice

from holdfast.act.console_streams import ConsoleStream, PrefixedStream, RawStream
from holdfast.act.nonblocking_writer import Buffer, Outlet, OutletKind
from holdfast.safe_text import harmless, styled

LIMIT_BYTES = 4 * 1024 * 1024
#: Bytes beyond `LIMIT_BYTES` that are reserved for holdfast's own lines, in case workers' lines have filled the buffer.
SAY_LIMIT_BYTES = 256 * 1024

STALL_S = 5.0
#: Seconds until an unfinished line, such as a prompt or a progress bar, is shown without a newline.
HOLD_S = 0.2

CHUNK_BYTES = 64 * 1024


class Console:
    """One terminal, pipe, file or socket. Workers write to it through the streams from `stream`, holdfast through
    `say`.

    Every `now` is in seconds on one monotonic clock.
    """

    def __init__(
        self,
        outlet: Outlet,
        name: str = "stdout",
        *,
        limit_bytes: int = LIMIT_BYTES,
        stall_s: float = STALL_S,
        hold_s: float = HOLD_S,
    ) -> None:
        """Create a console that writes to `outlet`.

        `name`: the console's name in messages. `limit_bytes`: the buffer's size. `stall_s`: seconds without any reading
        until output is dropped. `hold_s`: seconds until an unfinished line is shown.
        """
        self.name = name
        #: The stream whose unfinished line is on the screen.
        self.owner: ConsoleStream | None = None
        #: Log file → the number of its bytes that were dropped since the reader stopped reading.
        self.left_out: dict[str, int] = {}
        #: The number of bytes dropped since the start, because the reader had stopped reading.
        self.dropped_bytes = 0
        self._outlet = outlet
        self._limit_bytes = limit_bytes
        self._stall_s = stall_s
        self._hold_s = hold_s
        self._queue: deque[bytearray] = deque()
        self._offset = 0
        self._size = 0
        self._choked = False
        self._silent = False
        self._blocked_since: float | None = None
        #: The error of the last failed write; "" if the pipe was only full, or if the reader has closed it.
        self._refused = ""
        self._held: dict[ConsoleStream, float] = {}
        self._notes: list[str] = []
        self._now = 0.0

    @property
    def closed(self) -> bool:
        """Return whether the reader has closed the console. All further output is then dropped."""
        return self._outlet.kind is OutletKind.CLOSED

    @property
    def full(self) -> bool:
        """Return whether the buffer is full while the reader still reads. Writers should then pause."""
        return self._choked and not self._silent

    @property
    def stalled(self) -> bool:
        """Return whether the reader has stopped reading. Output is then dropped and counted."""
        return self._choked and self._silent

    @property
    def idle(self) -> bool:
        """Return whether no output is waiting, or no reader is left."""
        return not self._size or self._silent or bool(self._refused) or self.closed

    @property
    def unshown_bytes(self) -> int:
        """Return the number of bytes not shown: the waiting ones, and those dropped since the reader stopped
        reading.
        """
        return self._size + sum(self.left_out.values())

    @property
    def wait_fd(self) -> int | None:
        """Return the fd to poll for writability; None if no output waits, or if the fd cannot be polled."""
        return self._outlet.fd if self._size and self._outlet.waits and not self._refused else None

    def stream(self, prefix: bytes, path: str) -> ConsoleStream:
        """Return a new stream that writes `prefix` before each line. `path`: the log file with all output of the
        stream.

        A stream without a prefix must be the console's only stream. Its output is shown without delay.
        """
        return PrefixedStream(self, prefix, path) if prefix else RawStream(self, path)

    def say(self, text: str, now: float | None = None) -> None:
        """Write whole lines of holdfast, made safe for a terminal. They have room even if workers' lines fill the
        buffer.
        """
        if self.closed or not text:
            return
        self._now = now = self._now if now is None else now
        line = styled(text).encode("utf-8", "replace")
        if not line.endswith(b"\n"):
            line += b"\n"
        if self._size + len(line) > self._limit_bytes + SAY_LIMIT_BYTES:
            return  # drop the line: the reader has left four megabytes unread, and the journal has every event
        self._send([b"\n", line] if self.owner is not None else [line], now)
        self.owner = None

    def put(
        self, writer: ConsoleStream, pieces: list[Buffer], source_bytes: int, now: float, *, unfinished: bool
    ) -> None:
        """Write the next bytes (`pieces`) of a stream (`writer`). `source_bytes`: the number of bytes from the worker,
        without prefixes. `unfinished`: the last line has no newline yet.
        """
        if self.closed:
            return
        self._now = now
        if self._choked and self._silent:
            if not self.left_out:
                self._notes.append(self._complaint())
            self.left_out[writer.path] = self.left_out.get(writer.path, 0) + source_bytes
            self.dropped_bytes += source_bytes
            return
        self.owner = writer if unfinished else None
        self._send(pieces, now)

    def hold(self, writer: ConsoleStream, now: float) -> None:
        """Record that the stream `writer` has an unfinished line. `tick` shows the line if it does not end within
        `HOLD_S`.
        """
        self._held.setdefault(writer, now)

    def unhold(self, writer: ConsoleStream) -> None:
        """Record that the stream `writer` has no unfinished line any more, because the line has ended or is shown."""
        self._held.pop(writer, None)

    def next_wake(self) -> float | None:
        """Return when `tick` is due, in seconds on the caller's clock; None if nothing is due."""
        wakes = []
        if self._held and not self.full:
            wakes.append(next(iter(self._held.values())) + self._hold_s)
        if self._blocked_since is not None and (self._refused or not self._silent):
            wakes.append(self._blocked_since + self._stall_s)
        return min(wakes, default=None)

    def tick(self, now: float) -> None:
        """Show unfinished lines that are due, and notice a reader that has stopped reading."""
        self._now = now
        # Compute the sum as in `next_wake`. A rounding difference would make the loop wake for ever. Do not show
        # unfinished lines while writers pause, because the end of the line may still be in the worker's pipe.
        while (
            not self.full
            and self._held
            and (first := next(iter(self._held)))
            and now >= self._held[first] + self._hold_s
        ):
            del self._held[first]
            first.release(now)
        if self._blocked_since is None or now < self._blocked_since + self._stall_s:
            return
        self._silent = True
        if self._refused:
            self._blocked_since = now
            self._flush(now)

    def on_writable(self, now: float) -> None:
        """Write buffered output, because the fd is writable again."""
        self._now = now
        self._flush(now)

    def take_notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        if not self._notes:
            return self._notes
        notes, self._notes = self._notes, []
        return notes

    def drain(self, stall_s: float = STALL_S) -> None:
        """Wait until all output is written, or until the reader has read nothing for `stall_s` seconds. Call this only
        at the very end.
        """
        if not self._outlet.waits:
            return
        poll = select.poll()
        poll.register(self._outlet.fd, select.POLLOUT)
        while self._size and not self.closed:
            if not poll.poll(stall_s * 1000):
                return
            before = self._size
            self._flush(self._now)
            if self._size == before and self._refused:
                return

    def missing(self) -> str:
        """Return a sentence about output that was never shown; empty if all was shown. Call this after `drain`."""
        if not self.unshown_bytes:
            return ""
        why = f"cannot be written ({self._refused})" if self._refused else "takes nothing"
        return f"{self.name} {why}: {self.unshown_bytes} bytes at the end never came out there"

    def close(self) -> None:
        """Close the console's own fd. The fd that the caller passed stays open."""
        self._held.clear()
        self._forget()
        self._outlet.close()

    def _send(self, pieces: list[Buffer], now: float) -> None:
        done = 0
        if not self._queue:
            try:
                done = self._outlet.write(pieces)
            except BlockingIOError:
                pass  # no byte can be written now, so the code below queues the bytes
            except OSError as error:
                self._fail(error, now)
                if self.closed:
                    return
        total = 0
        for piece in pieces:
            size = len(piece)
            if done >= size:
                done -= size
                continue
            rest = memoryview(piece)[done:] if done else piece
            done = 0
            total += len(rest)
            self._append(rest)
        if total:
            self._size += total
            if self._blocked_since is None:
                self._blocked_since = now
            if self._size >= self._limit_bytes:
                self._choked = True
            if not self._outlet.waits and not self._refused:
                self._flush(now)  # write again: the file was written only in part, and the next write raises the cause

    def _complaint(self) -> str:
        why = f"cannot be written ({self._refused})" if self._refused else f"has taken nothing for {self._stall_s:g} s"
        return (
            f"{self.name} {why}: the workers go on, and their output is left out there until it takes some. "
            "The log files have all of it."
        )

    def _append(self, piece: Buffer) -> None:
        """Queue a piece. Merge it with the last piece if both are small, because many small objects need more memory
        than their bytes.
        """
        last = self._queue[-1] if self._queue else None
        if isinstance(last, bytearray) and len(last) + len(piece) <= CHUNK_BYTES:
            last += piece
        else:
            self._queue.append(bytearray(piece))

    def _flush(self, now: float) -> None:
        while self._queue:
            head = memoryview(self._queue[0])[self._offset :]
            try:
                done = self._outlet.write([head, *islice(self._queue, 1, 32)])
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error, now)
                return
            finally:
                head.release()
            self._advance(done)
            self._accepted(now)

    def _advance(self, done: int) -> None:
        self._size -= done
        while self._queue and done >= (left := len(self._queue[0]) - self._offset):
            done -= left
            self._queue.popleft()
            self._offset = 0
        self._offset += done

    def _accepted(self, now: float) -> None:
        self._refused = ""
        self._silent = False
        if self.left_out:
            self._tell_left_out()
        self._blocked_since = now if self._size else None
        if self._choked and self._size <= self._limit_bytes // 2:
            self._choked = False
            self._held = dict.fromkeys(self._held, now)

    def _tell_left_out(self) -> None:
        total = sum(self.left_out.values())
        files = sorted(self.left_out)
        where = harmless(", ".join(files[:3])) + (
            f" and {len(files) - 3} more files beside them" if len(files) > 3 else ""
        )
        self.left_out = {}
        line = (
            f"holdfast: {total / 1e6:.1f} MB of the workers' output is left out here; it is whole in {where}\n".encode()
        )
        if self.owner is not None:
            line = b"\n" + line
            self.owner = None
        self._append(line)
        self._size += len(line)

    def _fail(self, error: OSError, now: float) -> None:
        if self._outlet.is_gone(error):
            why = (error.strerror or str(error)).lower()
            self._notes.append(
                f"{self.name} is closed ({why}): the workers go on, and their output is in the log files only."
            )
            self._held.clear()
            self._forget()
            self._outlet.give_up()
        elif not self._refused:
            self._refused = (error.strerror or str(error)).lower()
            self._blocked_since = now

    def _forget(self) -> None:
        self._queue.clear()
        self._size = self._offset = 0
        self._choked = self._silent = False
        self._blocked_since = None
        self._refused = ""
        self.owner = None


def open_consoles(stdout_fd: int = 1, stderr_fd: int = 2) -> tuple[Console, Console]:
    """Return the consoles of holdfast's stdout and stderr. If both are the same file, return one console twice, because
    two consoles would mix their lines.
    """
    out, err = Outlet(stdout_fd), Outlet(stderr_fd)
    if out.identity is not None and out.identity == err.identity and OutletKind.CLOSED not in (out.kind, err.kind):
        err.close()
        console = Console(out, "the terminal" if out.is_terminal else "stdout")
        return console, console
    return (
        Console(out, "the terminal (stdout)" if out.is_terminal else "stdout"),
        Console(err, "the terminal (stderr)" if err.is_terminal else "stderr"),
    )
