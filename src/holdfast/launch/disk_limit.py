"""The interface of a limit on the use of a file system."""

from __future__ import annotations

from typing import Protocol


class Limit(Protocol):
    """How much of a file system may be used: exactly one of the fields is set, as percent, bytes or inodes."""

    @property
    def percent(self) -> float | None: ...

    @property
    def size_bytes(self) -> int | None: ...

    @property
    def inodes(self) -> int | None: ...
