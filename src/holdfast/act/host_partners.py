"""Interfaces of the two objects that a `LocalHost` gets from its caller: one stores output, one makes
control groups."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holdfast.model.job_spec import Seat


class Output(Protocol):
    """Reads and stores the workers' output."""

    def add(self, seat: Seat, stdout_fd: int, stderr_fd: int, directory: Path) -> None: ...

    def finish(self, rank: int, now: float) -> None: ...

    def tail(self, rank: int, limit_bytes: int) -> str: ...

    def tail_stream(self, rank: int) -> str: ...

    def hush(self, rank: int) -> None: ...


class Groups(Protocol):
    """Makes control groups for an attempt's workers, if the machine allows any."""

    def join(self, seat: Seat, memory_bytes: int | None, attempt: int = 1) -> tuple[Path, ...]: ...
