"""The interface of all sources: a version, a size, and the bytes from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.model.noun_base import Noun

BLOCK = 1 << 20
#: Files of one tree.
MOST_ENTRIES = 1_000_000


class Entry(Noun, frozen=True, kw_only=True):
    """One file of a tree, or the one file."""

    #: Relative to the tree, with `/`; empty: the prerequisite itself is a file.
    path: str
    size: int | None = None
    #: Different content has a different mark; empty: the source has none.
    mark: str = ""
    #: The target, where it is a symbolic link.
    link: str = ""
    is_dir: bool = False
    executable: bool = False


class Opened:
    """Arriving bytes: from `at` on, which is 0 where the source cannot begin elsewhere."""

    def __init__(self, at: int, size: int | None, mark: str, blocks: Iterator[bytes]) -> None:
        self.at = at
        self.size = size
        """Bytes of the whole; None: not known."""
        self.mark = mark
        self.blocks = blocks


class FetchSource(Protocol):
    """The origin of one prerequisite. Errors are `failures.Trouble`."""

    def entries(self) -> list[Entry]:
        """Its content: one entry without a path, or the files of a tree."""
        ...

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        """Its bytes from `offset` on, if it is still the version `mark`."""
        ...

    def close(self) -> None: ...
