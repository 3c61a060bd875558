"""Copies a prerequisite from a path on this machine, which may be on a shared file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.fetch.fetch_failures import FetchError
from holdfast.fetch.prerequisite_uris import Uri
from holdfast.fetch.source_api import BLOCK, MOST_ENTRIES, Entry, Opened
from holdfast.fetch.tree_links import stays_inside
from holdfast.model.phrases import Phrase
from holdfast.safe_files import opened


class LocalSource:
    """Copies a file, or a directory with all its contents."""

    def __init__(self, uri: Uri) -> None:
        self._top = Path(uri.path).absolute()
        self._file: BinaryIO | None = None

    def entries(self) -> list[Entry]:
        try:
            found = self._top.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        if stat.S_ISREG(found.st_mode):
            return [_entry("", found)]
        if not stat.S_ISDIR(found.st_mode):
            raise FetchError(Phrase.DATA_NOT_FOUND, f"{self._top} is neither a file nor a directory")
        return list(self._tree())

    def _tree(self) -> Iterator[Entry]:
        count = 0

        def fail(error: OSError) -> None:
            raise self._unreadable(error)

        for folder, folders, names in os.walk(self._top, onerror=fail):
            for name in sorted((*folders, *names)):
                path = Path(folder) / name
                relative = path.relative_to(self._top).as_posix()
                found = path.lstat()
                count += 1
                if count > MOST_ENTRIES:
                    raise FetchError(
                        Phrase.DOWNLOAD_TOO_LARGE, f"{self._top} has more than {MOST_ENTRIES} files: pack them"
                    )
                if stat.S_ISLNK(found.st_mode):
                    yield self._link(path, relative)
                elif stat.S_ISDIR(found.st_mode):
                    yield Entry(path=relative, is_dir=True)
                elif stat.S_ISREG(found.st_mode):
                    yield _entry(relative, found)
                else:
                    raise FetchError(Phrase.DATA_NOT_FOUND, f"{path} is neither a file nor a directory")

    def _link(self, path: Path, relative: str) -> Entry:
        """Return the entry for a symbolic link.

        A link that leads out of the tree is replaced by a copy of its target file.
        """
        target = os.readlink(path)  # noqa: PTH115 - the unchanged text of the link
        if stays_inside(self._top, relative):
            return Entry(path=relative, link=target)
        try:
            found = path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        if stat.S_ISREG(found.st_mode):
            return _entry(relative, found)
        raise FetchError(Phrase.DATA_NOT_FOUND, f"{path} is a link that leads out of {self._top}, and not to a file")

    def open(self, entry: Entry, offset: int, mark: str) -> Opened:
        path = self._top / entry.path if entry.path else self._top
        self.close()
        try:
            self._file = opened(path)
            found = os.fstat(self._file.fileno())
        except OSError as error:
            raise self._unreadable(error) from error
        now = _mark(found)
        at = offset if mark and mark == now else 0
        self._file.seek(at)
        return Opened(at, found.st_size, now, self._blocks(path))

    def _blocks(self, path: Path) -> Iterator[bytes]:
        assert self._file is not None
        while True:
            try:
                block = self._file.read(BLOCK)
            except OSError as error:
                raise FetchError(
                    Phrase.STORAGE_IO_ERROR, f"{path} cannot be read: {error.strerror}", here=True
                ) from error
            if not block:
                return
            yield block

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _unreadable(self, error: OSError) -> FetchError:
        what = f"{error.filename or self._top}: {error.strerror}"
        if isinstance(error, PermissionError):
            return FetchError(Phrase.PERMISSION_DENIED, f"this user may not read it: {what}")
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return FetchError(Phrase.DATA_NOT_FOUND, f"there is nothing: {what}")
        return FetchError(Phrase.STORAGE_IO_ERROR, what, here=True)


def _mark(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def _entry(relative: str, found: os.stat_result) -> Entry:
    return Entry(path=relative, size=found.st_size, mark=_mark(found), executable=bool(found.st_mode & 0o100))
