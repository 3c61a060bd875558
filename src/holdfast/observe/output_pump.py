"""The output pump: it copies the workers' pipes to their log files and the terminal, driven by the reactor.

It reads and writes in blocks. `os.splice` into the file was not faster in a measurement, and the end of each stream,
which every report needs, would have to be read back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.observe.log_file import LogFile, Rotation, amount
from holdfast.observe.worker_stream import (
    DEFAULT_PIPE_BYTES,
    TAIL_BYTES,
    FoldingSink,
    Sink,
    StackCutoff,
    Stream,
    StreamLog,
    enlarge,
    keep_large_blocks,
)

if TYPE_CHECKING:
    from holdfast.observe.folded_output import FoldedOutput
    from holdfast.observe.output_places import OutputPlaces, OutputScreen
    from holdfast.reactor import Reactor

PIPE_BYTES = 1024 * 1024
#: The most bytes of all pipes together. With this limit, the reading at a gang's end is quick, and the kernel's limit
#: for a user is respected.
PIPES_BYTES = 16 * 1024 * 1024

#: One pass of the loop reads at most this many bytes from all pipes, so that it notices an exit within milliseconds.
PASS_BYTES = 1024 * 1024

#: One pass may read at least this many bytes from each pipe.
SHARE_BYTES = 32 * 1024

#: If workers wait longer than this many seconds in total for a slow terminal, holdfast reports that.
WAIT_S = 10.0

TEMPLATE_VARIABLE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


def line_prefix(
    role: str, rank: int, local_rank: int, env: Mapping[str, str], more: dict[str, str] | None = None
) -> str:
    """Return the prefix of each line on the terminal: `[worker-0] `.

    torchrun's prefix `[default0]:` has the role and the *local* rank, which is the same for workers on different nodes.
    torch puts `[rank0]: ` before its tracebacks, so such a prefix would appear twice. `[worker-0] ` has the role and
    the global rank, like the file's directory (`worker-0/stderr.log`) and the report ("worker-0 stderr"), and is easy
    to remove with `sed`. If the user sets torchrun's variable (TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, with
    ${role_name}, ${rank} and ${local_rank}), that template is used; in holdfast it may also contain ${hostname} and the
    names in `more`.
    """
    if template := env.get(TEMPLATE_VARIABLE):
        from string import Template

        fields = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": os.uname().nodename}
        return Template(template).safe_substitute(fields | (more or {}))
    return f"[{role}-{rank}] "


class OutputPump:
    """The workers' output streams, shown on two terminal streams (screens), which may be the same object.

    The loop with `reactor` calls `next_wake()` before each wait, and `tick(now)` at that time. Every `now` is in
    seconds on one monotonic clock.
    """

    def __init__(
        self,
        reactor: Reactor,
        places: OutputPlaces,
        workers: int = 1,
        rotation: Rotation | None = None,
        lost_peer: Callable[[str], bool] | None = None,
    ) -> None:
        """Create the pump.

        `workers`: the number of workers, for the sizes of pipes. `rotation`: how this process rotates the files that it
        writes. `lost_peer(exception)`: whether an exception only says that the connection to another rank is lost;
        None: the terminal shows every line unchanged.
        """
        self._reactor = reactor
        self._stdout, self._stderr = places.stdout, places.stderr
        self._screens = [self._stdout] if self._stdout is self._stderr else [self._stdout, self._stderr]
        self._taken: dict[OutputScreen, int] = {}
        self._unkept = 0
        self._say, self._logs = places.say, places.logs
        self._rotation = rotation
        self._lost_peer = lost_peer
        #: Shows streams with tracebacks or progress bars on the terminal; None until a worker has printed one.
        self._folded: FoldedOutput | None = None
        #: The events that broke connections between ranks in this attempt: (description, rank that exited or None,
        #: time).
        self._losses: list[tuple[str, int | None, float]] = []
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
        #: The time of the latest output of any worker.
        self.heard_at = 0.0

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
        """Take over the read ends of a worker's two pipes. Drop the kept output of an earlier worker of this rank.

        `directory`: for the log files. `show_stdout`, `show_stderr`: whether the terminal shows the stream. `prefix`:
        the text before each shown line; None: `[role-rank] `.
        """
        label = (f"[{role}-{rank}] " if prefix is None else prefix).encode()
        if not self._streams:
            self._losses.clear()
            if self._folded is not None:
                self._folded.begin(now)
        pair = []
        for fd, word, show, screen in (
            (stdout_fd, "stdout", show_stdout, self._stdout),
            (stderr_fd, "stderr", show_stderr, self._stderr),
        ):
            enlarge(fd, self._pipe_bytes)
            path = directory / f"{word}.log"
            source = f"{role}-{rank} {word}"
            log = self._log(path, source, show, now)
            stream = Stream(fd, source, log, self._sink(screen, label, rank, log) if show else None)
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

    def _sink(self, screen: OutputScreen, label: bytes, rank: int, log: StreamLog) -> Sink:
        path = str(log.path)
        terminal = screen.stream(label, path)
        if not label or (lost_peer := self._lost_peer) is None:
            return terminal

        def folded(terminal: Sink) -> Sink:
            if self._folded is None:
                from holdfast.observe.folded_output import FoldedOutput

                self._folded = FoldedOutput(lost_peer)
                for loss in self._losses:
                    self._folded.lose(*loss)
            return self._folded.sink(
                terminal, lambda prefix: screen.stream(prefix, path), label, rank, lambda: not log.lost_bytes
            )

        return FoldingSink(terminal, folded)

    def lose(self, cause: str, rank: int | None, now: float) -> None:
        """Record an event that breaks connections between ranks.

        `cause`: its description, such as `the exit of rank 1`. `rank`: the rank that has exited; None for another
        cause, such as a stop.
        """
        self._losses.append((cause, rank, now))
        if self._folded is not None:
            self._folded.lose(cause, rank, now)

    @property
    def paused(self) -> bool:
        """Return whether a slow terminal delays the workers' output. Workers may then block in a write."""
        return bool(self._held_back)

    @property
    def idle(self) -> bool:
        """Return whether no output waits for a terminal. The job's process exits only then."""
        return all(screen.idle for screen in self._screens)

    def ready(self, fd: int, now: float) -> None:
        """Handle a ready fd of this pump: a pipe is readable, or a terminal is writable again."""
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
        """Return when `tick` is due, and update the reactor's watches. The loop calls this just before each wait."""
        self._balance()
        wakes = [wake for screen in self._screens if (wake := screen.next_wake()) is not None]
        if self._folded is not None and (wake := self._folded.next_wake()) is not None:
            wakes.append(wake)
        return min(wakes, default=None)

    def tick(self, now: float) -> None:
        """Show unfinished lines that have waited long enough, and notice a terminal that accepts no output."""
        self._now = now
        if self._folded is not None:
            self._folded.tick(now)
        for screen in self._screens:
            screen.tick(now)
        self._balance()

    def drain(self, rank: int, now: float) -> None:
        """Read the bytes that are still in the pipes of a reaped worker."""
        for stream in self._ranks.get(rank, ()):
            stream.drain(now)

    def close_ended(self, rank: int, now: float) -> None:
        """Close the streams of a reaped worker that no other process has open. The worker's child processes may still
        write to the others.
        """
        self._close(now, [stream for stream in self._ranks.get(rank, ()) if stream.ended])

    def finish(self, rank: int, now: float) -> None:
        """Read the rest of a worker's pipes, and close them and the log files, even if a process has them open.
        Repeated calls do no harm.
        """
        self._close(now, self._ranks.get(rank, ()))
        if self._folded is not None and not self._streams:
            self._folded.finish(now)

    def _close(self, now: float, streams: Iterable[Stream]) -> None:
        self._now = now
        for stream in streams:
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
        """Finish all workers, and remove their fds from the reactor. The caller closes the terminal streams."""
        for rank in list(self._ranks):
            self.finish(rank, now)
        for fd in self._waiting.values():
            self._reactor.forget(fd)
        self._waiting.clear()

    def take_dropped_bytes(self) -> dict[str, int]:
        """Return how many bytes the terminal (`stdout`, `stderr`) and the log files (`log`) have dropped since the last
        call.
        """
        found = {"log": self._unkept} if self._unkept else {}
        self._unkept = 0
        for name, screen in (("stdout", self._stdout), ("stderr", self._stderr)):
            if more := screen.dropped_bytes - self._taken.get(screen, 0):
                found[name] = more
                self._taken[screen] = screen.dropped_bytes
        return found

    def first_output_at(self, rank: int) -> float | None:
        """Return when the worker first wrote output on either stream; None if never."""
        times = [s.first_output_at for s in self._ranks.get(rank, ()) if s.first_output_at is not None]
        return min(times, default=None)

    def last_output_at(self, rank: int) -> float | None:
        """Return when the worker last wrote output on either stream; None if never."""
        times = [s.last_output_at for s in self._ranks.get(rank, ()) if s.last_output_at is not None]
        return max(times, default=None)

    def ends(self, rank: int) -> tuple[bytes, ...]:
        """Return the last bytes of the worker's streams."""
        return tuple(stream.tail() for stream in self._ranks.get(rank, ()))

    def bytes_seen(self, rank: int) -> int:
        """Return the number of bytes that the worker has written to both streams."""
        return sum(stream.bytes_seen for stream in self._ranks.get(rank, ()))

    def tail(self, rank: int, limit_bytes: int = 8 * 1024) -> str:
        """Return the end of the worker's stderr, decoded; if stderr is empty, of its stdout.

        The end begins with a whole line, unless it is a single line. It is available after `finish` too, until the rank
        is added again. `limit_bytes`: the most bytes to return.
        """
        if rank not in self._ranks:
            return ""
        stdout, stderr = self._ranks[rank]
        kept = stderr.tail() or stdout.tail()
        end = kept[-limit_bytes:]
        if len(kept) >= min(limit_bytes + 1, TAIL_BYTES) and (cut := end.find(b"\n", 0, -1)) >= 0:
            # Begin with a whole line. In a cut-off line such as `sshpass -p SECRET`, masking may miss the secret.
            end = end[cut + 1 :]
        cut = 0
        while cut < min(3, len(end)) and end[cut] & 0xC0 == 0x80:
            cut += 1
        text = end[cut:].decode("utf-8", "replace")
        # The limit is in bytes, and an invalid byte becomes three bytes of UTF-8. So cut the text again.
        return text if len(text.encode()) <= limit_bytes else text.encode()[-limit_bytes:].decode("utf-8", "ignore")

    def last_words(self, rank: int) -> tuple[str, str]:
        """Return the end of the worker's output like `tail`, and the name of its stream."""
        return self.tail(rank), self.tail_stream(rank)

    def hush(self, rank: int) -> None:
        """Do not show the stacks of this worker on the terminal, because holdfast requests them.

        The log file still gets them.
        """
        for stream in self._ranks.get(rank, ())[1:]:
            if stream.sink is not None and not isinstance(stream.sink, StackCutoff):
                stream.sink = StackCutoff(stream.sink)

    def tail_stream(self, rank: int) -> str:
        """Return the stream that `tail` reads, `stderr` or `stdout`, or "" if the worker wrote nothing."""
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
        """Stop reading the workers whose terminal stream is full, and go on when it has room again.

        Print the terminal's messages.
        """
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
        """Print a problem with log files once per kind, because a full disk affects all workers.

        After a successful write the problem may be printed again.
        """
        if about == "recovered":
            self._complained = {kind for kind in self._complained if isinstance(kind, str)}
        elif about in self._complained:
            return
        self._complained.add(about)
        self._say(text)


def _missing(files: list[tuple[int, str, Path]]) -> str:
    """Return one sentence about all log files that are incomplete."""
    lost, source, path = max(files, key=lambda entry: entry[0])
    if len(files) == 1:
        return f"{source}.log: {path} lacks {amount(lost)} of its output."
    total = sum(entry[0] for entry in files)
    return (
        f"{len(files)} log files are not whole: they lack {amount(total)} of the workers' output, most of it "
        f"({amount(lost)}) in {source}.log, {path}."
    )
