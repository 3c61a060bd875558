"""The interface of all sources of prerequisites. A source gives version, size, and the bytes from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.model.noun_base import Noun

BLOCK = 1 << 20
#: Maximum number of files, directories and links in a fetched directory tree.
MOST_ENTRIES = 1_000_000


class Entry(Noun, frozen=True, kw_only=True):
    """One file, directory or link of a tree, or the single file of a prerequisite."""

    #: Path relative to the tree, with `/`. Empty if the prerequisite itself is a file.
    path: str
    size: int | None = None
    #: Version of the content: different content has a different mark. Empty if the source has no versions.
    mark: str = ""
    #: Target of a symbolic link; empty if the entry is no link.
    link: str = ""
    is_dir: bool = False
    executable: bool = False


class Opened:
    """An open download.

    `at`: offset of the first byte; 0 if the source cannot resume.
    `size`: size of the whole file in bytes; None if unknown.
    `mark`: version of the file.
    `blocks`: yields the bytes from `at` on.
    """

    def __init__(self, at: int, size: int | None, mark: str, blocks: Iterator[bytes]) -> None:
        self.at = at
        #: Size of the whole file in bytes; None if unknown.
        self.size = size
        self.mark = mark
        self.blocks = blocks


class FetchSource(Protocol):
    """The source of one prerequisite. All methods raise FetchError."""

    def entries(self) -> list[Entry]:
        """Return the entries of the prerequisite. A single file is one entry with an empty path."""
        ...

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        """Open the entry from byte `offset` on. If its version is no longer `mark`, open it from byte 0."""
        ...

    def close(self) -> None: ...
