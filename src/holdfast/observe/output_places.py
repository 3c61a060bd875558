"""The destinations of workers' output: two screens, and the writer of the log files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.observe.worker_stream import Sink, StreamLog


class OutputScreen(Protocol):
    """A terminal that never blocks: `holdfast.act.console.Console`."""

    name: str

    @property
    def wait_fd(self) -> int | None: ...

    @property
    def full(self) -> bool: ...

    @property
    def idle(self) -> bool: ...

    @property
    def dropped_bytes(self) -> int:
        """Return the number of bytes dropped since the start, because the reader had stopped reading."""
        ...

    def stream(self, prefix: bytes, path: str) -> Sink: ...

    def on_writable(self, now: float) -> None: ...

    def next_wake(self) -> float | None: ...

    def tick(self, now: float) -> None: ...

    def take_notes(self) -> list[str]: ...


class Logs(Protocol):
    """Writes the workers' log files."""

    @property
    def pid(self) -> int:
        """Return the pid of the process that writes the files."""
        ...

    def open(self, path: Path, source: str, *, shown: bool) -> StreamLog: ...

    def when_written(self, then: Callable[[float], None], now: float) -> None:
        """Call `then(now)` when all output so far is in the files."""
        ...


class OutputPlaces(msgspec.Struct, frozen=True):
    """The destinations of a node's output: the terminal and the log files."""

    #: The terminal, which shows the workers' output. Both screens may be the same object.
    stdout: OutputScreen
    stderr: OutputScreen
    #: Prints a message from holdfast.
    say: Callable[[str], None]
    #: The process that writes the log files; None: this node's process does.
    logs: Logs | None = None
