"""The pump: from the workers' pipes into their files and onto the terminal, driven by the reactor.

It reads and writes in blocks. `os.splice` into the file was measured: it is no faster than a read and a write on a
page-cached disk, and the end of a stream, which every report needs, would have to be read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.observe.log_file import LogFile, Rotation, amount
from holdfast.observe.worker_stream import (
    DEFAULT_PIPE_BYTES,
    Sink,
    StackCutoff,
    Stream,
    StreamLog,
    enlarge,
    keep_large_blocks,
)

if TYPE_CHECKING:
    from holdfast.reactor import Reactor

PIPE_BYTES = 1024 * 1024
#: Bytes for all pipes together: limits the reading when a whole gang ends, and keeps a user's kernel budget.
PIPES_BYTES = 16 * 1024 * 1024

#: Bytes of one pass of the supervisor's loop, shared by the pipes: a death is noticed within a few milliseconds.
PASS_BYTES = 1024 * 1024

#: Bytes that each pipe may give at least in such a pass.
SHARE_BYTES = 32 * 1024

#: Seconds that workers have waited in all for a slow terminal before a sentence reports it.
WAIT_S = 10.0

TEMPLATE_VARIABLE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


class OutputScreen(Protocol):
    """A terminal that takes what it can and never blocks: `holdfast.act.console.Console`."""

    name: str

    @property
    def wait_fd(self) -> int | None: ...

    @property
    def full(self) -> bool: ...

    @property
    def idle(self) -> bool: ...

    @property
    def dropped_bytes(self) -> int:
        """All that was ever left out since its reader had stopped reading."""
        ...

    def lane(self, prefix: bytes, path: str) -> Sink: ...

    def on_writable(self, now: float) -> None: ...

    def next_wake(self) -> float | None: ...

    def tick(self, now: float) -> None: ...

    def take_notes(self) -> list[str]: ...


class Logs(Protocol):
    """The writer of the workers' files."""

    @property
    def pid(self) -> int:
        """The process that writes them."""
        ...

    def open(self, path: Path, source: str, *, shown: bool) -> StreamLog: ...

    def when_written(self, then: Callable[[float], None], now: float) -> None:
        """Call `then(now)` when everything given so far is in the files."""
        ...


def line_prefix(
    role: str, rank: int, local_rank: int, env: Mapping[str, str], more: dict[str, str] | None = None
) -> str:
    """What stands before each line on the terminal: `[worker-0] `.

    torchrun writes `[default0]:`, role and *local* rank, which names two workers on two nodes alike; and torch itself
    puts `[rank0]: ` before its tracebacks, which would then stand there twice. `[worker-0] ` says role and global rank,
    reads the same in the file's directory (`worker-0/stderr.log`) and in the report ("worker-0 stderr"), and has the
    closing bracket and blank that eyes and `sed` cut at. A user who has set torchrun's own variable for it
    (TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, with ${role_name}, ${rank} and ${local_rank}) keeps what they have; here it
    may name the ${hostname} too, and all that `more` has.
    """
    if template := env.get(TEMPLATE_VARIABLE):
        import os
        from string import Template

        fields = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": os.uname().nodename}
        return Template(template).safe_substitute(fields | (more or {}))
    return f"[{role}-{rank}] "


class OutputPump:
    """Owns the workers' streams; shows them on two screens, which may be one and the same.

    The loop that owns `reactor` asks for `next_wake()` before each wait, and calls `tick(now)` when that moment has
    come. All `now` are seconds on one clock that does not jump. `say` gets one sentence at a time, for the user.
    """

    def __init__(
        self,
        reactor: Reactor,
        stdout: OutputScreen,
        stderr: OutputScreen,
        say: Callable[[str], None],
        workers: int = 1,
        logs: Logs | None = None,
        rotation: Rotation | None = None,
    ) -> None:
        """`logs`: the writer of the files; None: this process, which rotates them by `rotation`."""
        self._reactor = reactor
        self._screens: list[OutputScreen] = [stdout] if stdout is stderr else [stdout, stderr]
        self._stdout = stdout
        self._stderr = stderr
        self._taken: dict[OutputScreen, int] = {}
        self._unkept = 0
        self._say = say
        self._logs = logs
        self._rotation = rotation
        keep_large_blocks()
        self._pipe_bytes = max(DEFAULT_PIPE_BYTES, min(PIPE_BYTES, PIPES_BYTES // max(1, 2 * workers)))
        self._streams: dict[int, Stream] = {}
        self._screen_of: dict[int, OutputScreen] = {}
        self._ranks: dict[int, tuple[Stream, Stream]] = {}
        self._reading: set[int] = set()
        self._waiting: dict[OutputScreen, int] = {}
        self._held_back: dict[OutputScreen, float] = {}
        self._held_s: dict[OutputScreen, float] = {}
        self._complained: set[object] = set()
        self._not_whole: list[tuple[int, str, Path]] = []
        self._now = 0.0
        self.heard_at = 0.0
        """When any worker last wrote anything."""

    def add(
        self,
        rank: int,
        role: str,
        stdout_fd: int,
        stderr_fd: int,
        directory: Path,
        *,
        show_stdout: bool = True,
        show_stderr: bool = True,
        prefix: str | None = None,
        now: float = 0.0,
    ) -> None:
        """Take over the read ends of a worker's two pipes; the data of an earlier worker of this rank is dropped."""
        label = (f"[{role}-{rank}] " if prefix is None else prefix).encode()
        pair = []
        for fd, word, show, screen in (
            (stdout_fd, "stdout", show_stdout, self._stdout),
            (stderr_fd, "stderr", show_stderr, self._stderr),
        ):
            enlarge(fd, self._pipe_bytes)
            path = directory / f"{word}.log"
            source = f"{role}-{rank} {word}"
            stream = Stream(
                fd,
                source,
                self._log(path, source, show, now),
                screen.lane(label, str(path)) if show else None,
            )
            self._streams[fd] = stream
            if show:
                self._screen_of[fd] = screen
            if not (show and screen.full):
                self._read(fd)
            pair.append(stream)
        self._ranks[rank] = (pair[0], pair[1])

    def _log(self, path: Path, source: str, shown: bool, now: float) -> StreamLog:
        if self._logs is not None:
            return self._logs.open(path, source, shown=shown)
        clock, kept = self._reactor.now, self._rotation
        return LogFile(path, source, self._complain, shown=shown, now=now, clock=clock, rotation=kept)

    @property
    def paused(self) -> bool:
        """A slow terminal holds the workers' output back, so workers may be waiting inside a write."""
        return bool(self._held_back)

    @property
    def idle(self) -> bool:
        """No output is left that a terminal would still take. The job's process waits for it before it exits."""
        return all(screen.idle for screen in self._screens)

    def ready(self, fd: int, now: float) -> None:
        """An fd that this pump registered is readable, or a terminal takes bytes again."""
        self._now = now
        stream = self._streams.get(fd)
        if stream is None:
            for screen, wait_fd in list(self._waiting.items()):
                if wait_fd == fd:
                    screen.on_writable(now)
        elif fd in self._reading:
            self.heard_at = now
            stream.on_readable(now, max(SHARE_BYTES, PASS_BYTES // len(self._reading)))
            if stream.ended:
                self._ignore(fd)
        self._balance()

    def next_wake(self) -> float | None:
        """When `tick` is due; asked right before each wait, so it also puts the reactor's watches in order."""
        self._balance()
        wakes = [wake for screen in self._screens if (wake := screen.next_wake()) is not None]
        return min(wakes, default=None)

    def tick(self, now: float) -> None:
        """Show lines that stay unfinished; notice a terminal that takes no output."""
        self._now = now
        for screen in self._screens:
            screen.tick(now)
        self._balance()

    def finish(self, rank: int, now: float) -> None:
        """The worker is reaped: read what it left in its pipes, close them and its files. May be called again."""
        self._now = now
        for stream in self._ranks.get(rank, ()):
            fd = stream.fd
            if fd < 0:
                continue
            self._ignore(fd)
            stream.drain(now)
            del self._streams[fd]
            self._screen_of.pop(fd, None)
            stream.close(now)
            if lost := stream.file.lost_bytes:
                self._not_whole.append((lost, stream.file.source, stream.file.path))
                self._unkept += lost
        if self._not_whole and not self._streams:
            self._say(_missing(self._not_whole))
            self._not_whole = []
            self._complained.clear()
        self._balance()

    def close(self, now: float) -> None:
        """Finish all workers, and have the reactor wait for no fd of theirs. The screens are the caller's to close."""
        for rank in list(self._ranks):
            self.finish(rank, now)
        for fd in self._waiting.values():
            self._reactor.forget(fd)
        self._waiting.clear()

    def take_dropped_bytes(self) -> dict[str, int]:
        """Bytes that were dropped since the last call: by the screens, under their names, and by the files, as
        `log`."""
        found = {"log": self._unkept} if self._unkept else {}
        self._unkept = 0
        for name, screen in (("stdout", self._stdout), ("stderr", self._stderr)):
            if more := screen.dropped_bytes - self._taken.get(screen, 0):
                found[name] = more
                self._taken[screen] = screen.dropped_bytes
        return found

    def first_output_at(self, rank: int) -> float | None:
        """When the worker first wrote anything, on either stream; None if never."""
        times = [s.first_output_at for s in self._ranks.get(rank, ()) if s.first_output_at is not None]
        return min(times, default=None)

    def last_output_at(self, rank: int) -> float | None:
        """When the worker last wrote anything, on either stream; None if never."""
        times = [s.last_output_at for s in self._ranks.get(rank, ()) if s.last_output_at is not None]
        return max(times, default=None)

    def bytes_seen(self, rank: int) -> int:
        """Of both streams together."""
        return sum(stream.bytes_seen for stream in self._ranks.get(rank, ()))

    def tail(self, rank: int, limit_bytes: int = 8 * 1024) -> str:
        """The worker's last lines: the end of its stderr, or of its stdout where stderr is empty, decoded.

        Available after `finish` too, until the rank is added again.
        """
        if rank not in self._ranks:
            return ""
        stdout, stderr = self._ranks[rank]
        end = (stderr.tail() or stdout.tail())[-limit_bytes:]
        cut = 0
        while cut < min(3, len(end)) and end[cut] & 0xC0 == 0x80:
            cut += 1
        text = end[cut:].decode("utf-8", "replace")
        # A byte that is no UTF-8 becomes three, and the limit is one of bytes.
        return text if len(text.encode()) <= limit_bytes else text.encode()[-limit_bytes:].decode("utf-8", "ignore")

    def last_words(self, rank: int) -> tuple[str, str]:
        """`tail`, and the stream that it is of."""
        return self.tail(rank), self.tail_stream(rank)

    def hush(self, rank: int) -> None:
        """The worker is asked for its stacks: they go to its file, and not to the terminal."""
        for stream in self._ranks.get(rank, ())[1:]:
            if stream.sink is not None and not isinstance(stream.sink, StackCutoff):
                stream.sink = StackCutoff(stream.sink)

    def tail_stream(self, rank: int) -> str:
        """The stream that `tail` is of: `stderr` or `stdout`; empty where the worker wrote nothing."""
        if rank not in self._ranks:
            return ""
        stdout, stderr = self._ranks[rank]
        return "stderr" if stderr.tail() else "stdout" if stdout.tail() else ""

    def _read(self, fd: int) -> None:
        if fd not in self._reading:
            self._reading.add(fd)
            self._reactor.watch(fd, self.ready)

    def _ignore(self, fd: int) -> None:
        if fd in self._reading:
            self._reading.remove(fd)
            self._reactor.forget(fd)

    def _balance(self) -> None:
        """Update the reactor's watches to the screens' state, and pass on the screens' sentences."""
        for screen in self._screens:
            wait_fd = screen.wait_fd
            waiting = self._waiting.get(screen)
            if wait_fd != waiting:
                if waiting is not None:
                    self._reactor.forget(waiting)
                    del self._waiting[screen]
                if wait_fd is not None:
                    self._reactor.watch(wait_fd, self.ready, writable=True)
                    self._waiting[screen] = wait_fd
            if screen in self._held_back:
                self._count_wait(screen)
            if screen.full != (screen in self._held_back):
                if screen.full:
                    self._held_back[screen] = self._now
                    for fd, shown_on in self._screen_of.items():
                        if shown_on is screen:
                            self._ignore(fd)
                else:
                    del self._held_back[screen]
                    for fd, shown_on in self._screen_of.items():
                        if shown_on is screen and not self._streams[fd].ended:
                            self._read(fd)
        for screen in self._screens:
            for note in screen.take_notes():
                self._say(note)

    def _count_wait(self, screen: OutputScreen) -> None:
        before = self._held_s.get(screen, 0.0)
        after = self._held_s[screen] = before + self._now - self._held_back[screen]
        self._held_back[screen] = self._now
        if before < WAIT_S <= after:
            self._say(
                f"{screen.name} is read more slowly than the workers write: they have waited for it {after:.0f} s in "
                "all. Nothing is lost. With --redirects 3 they write to the log files only."
            )

    def _complain(self, text: str, about: object) -> None:
        """A full disk affects all workers: each kind of trouble is printed once, until a file can be written again."""
        if about == "recovered":
            self._complained = {kind for kind in self._complained if isinstance(kind, str)}
        elif about in self._complained:
            return
        self._complained.add(about)
        self._say(text)


def _missing(files: list[tuple[int, str, Path]]) -> str:
    """One sentence for all incomplete files."""
    lost, source, path = max(files, key=lambda entry: entry[0])
    if len(files) == 1:
        return f"{source}.log: {path} lacks {amount(lost)} of its output."
    total = sum(entry[0] for entry in files)
    return (
        f"{len(files)} log files are not whole: they lack {amount(total)} of the workers' output, most of it "
        f"({amount(lost)}) in {source}.log, {path}."
    )
