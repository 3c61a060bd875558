"""The interface of all sources: a version, a size, and the bytes from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.model.base import Noun

BLOCK = 1 << 20
MOST_ENTRIES = 1_000_000
"""Files of one tree."""


class Entry(Noun, frozen=True, kw_only=True):
    """One file of a tree, or the one file."""

    path: str
    """Relative to the tree, with `/`; empty: the prerequisite itself is a file."""
    size: int | None = None
    mark: str = ""
    """Another content has another mark; empty: the source has none."""
    link: str = ""
    """It is a symbolic link to this."""
    is_dir: bool = False
    executable: bool = False


class Opened:
    """Bytes that come: from `at` on, which is 0 where the source cannot begin elsewhere."""

    def __init__(self, at: int, size: int | None, mark: str, blocks: Iterator[bytes]) -> None:
        self.at = at
        self.size = size
        """Of the whole; None: the source does not say."""
        self.mark = mark
        self.blocks = blocks


class Source(Protocol):
    """Where one prerequisite comes from. Errors are `failures.Trouble`."""

    def entries(self) -> list[Entry]:
        """What there is: one entry without a path, or the files of a tree."""
        ...

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        """Its bytes from `offset` on, if it still is the version `mark`."""
        ...

    def close(self) -> None: ...
