"""The interface of all sources: a version, a size, and the bytes from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.model.noun_base import Noun

BLOCK = 1 << 20
#: The largest number of entries in one tree.
MOST_ENTRIES = 1_000_000


class Entry(Noun, frozen=True, kw_only=True):
    """One file, directory or link of a tree, or a prerequisite that is a single file."""

    #: Path relative to the tree, with `/`; empty: the prerequisite itself is a file.
    path: str
    size: int | None = None
    #: The version: different content has a different mark; empty: the source has no versions.
    mark: str = ""
    #: The target of a symbolic link; empty: this is not a link.
    link: str = ""
    is_dir: bool = False
    executable: bool = False


class Opened:
    """An open download.

    `at`: offset of the first byte, 0 if the source cannot resume. `size`: bytes of the whole file; None: not known.
    `mark`: the file's version. `blocks`: the bytes from `at` on.
    """

    def __init__(self, at: int, size: int | None, mark: str, blocks: Iterator[bytes]) -> None:
        self.at = at
        #: The size of the whole file in bytes; None: not known.
        self.size = size
        self.mark = mark
        self.blocks = blocks


class FetchSource(Protocol):
    """The source of one prerequisite. Its methods raise FetchError."""

    def entries(self) -> list[Entry]:
        """Return the content: one entry with an empty path, or the entries of a tree."""
        ...

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        """Open the entry from byte `offset` on; from byte 0 if its version is no longer `mark`."""
        ...

    def close(self) -> None: ...
