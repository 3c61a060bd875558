"""What the platform of one machine gets from the loop: the place for output, and the source of control groups."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holdfast.model.job_spec import Seat


class Output(Protocol):
    """The place for workers' output."""

    def add(self, seat: Seat, stdout_fd: int, stderr_fd: int, directory: Path) -> None: ...

    def finish(self, rank: int, now: float) -> None: ...

    def tail(self, rank: int, limit_bytes: int) -> str: ...

    def tail_stream(self, rank: int) -> str: ...

    def hush(self, rank: int) -> None: ...


class Groups(Protocol):
    """Control groups of an attempt's workers, where the machine allows any."""

    def join(self, seat: Seat, memory_bytes: int | None, attempt: int = 1) -> tuple[Path, ...]: ...
