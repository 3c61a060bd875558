"""How much of a file system the jobs of a machine may use."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """How much of a file system may be used: one of these fields is set."""

    @property
    def percent(self) -> float | None: ...

    @property
    def size_bytes(self) -> int | None: ...

    @property
    def inodes(self) -> int | None: ...
