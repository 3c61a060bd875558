"""Unpacks archives safely: tar (plain, gzip, bzip2, xz, zstd) and zip.

An archive may be hostile. Unpacking writes no file outside the target directory, neither through a link nor by a name.
It creates no devices, pipes or sockets, and keeps no owner and no set-uid bit. The unpacked size is checked while it
grows.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from holdfast.fetch.fetch_failures import FetchError, writing
from holdfast.fetch.local_source import within
from holdfast.fetch.source_api import BLOCK, MOST_ENTRIES
from holdfast.model.phrases import Phrase

#: Size limit if the user sets none. An archive that unpacks to more than RATIO times its size counts as a bomb.
RATIO = 200
LEAST_LIMIT_BYTES = 1 << 30
_ZSTD = b"\x28\xb5\x2f\xfd"
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def unpack(
    archive: Path, into: Path, shown: str, most_bytes: int | None, moved: Callable[[int], None], free: Callable[[], int]
) -> int:
    """Unpack `archive` into the new directory `into` and return the number of unpacked bytes.

    `shown`: the archive's name for messages.
    `moved`: called with the bytes unpacked so far.
    `free`: returns the free bytes of the disk.
    Raises FetchError.
    """
    limit = most_bytes if most_bytes is not None else max(LEAST_LIMIT_BYTES, archive.stat().st_size * RATIO)
    work = _Unpacking(into, shown, limit, moved)
    with writing(into):
        into.mkdir(mode=0o755)
    try:
        if zipfile.is_zipfile(archive):
            work.zip(archive, free())
        else:
            with _tar(archive, shown) as found:
                work.tar(found)
    except _DAMAGED as error:
        raise FetchError(Phrase.DATA_CORRUPT, f"the archive {shown} is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # for invalid data bz2 and gzip raise an OSError without errno
            raise FetchError(Phrase.DATA_CORRUPT, f"the archive {shown} is damaged: {error}") from error
        raise
    return work.total


@contextmanager
def _tar(archive: Path, shown: str) -> Iterator[tarfile.TarFile]:
    with archive.open("rb") as file:
        head = file.read(4)
        file.seek(0)
        stream: Any = file
        if head == _ZSTD:
            try:
                import zstandard  # imported late: the extra `data` installs it
            except ImportError:
                raise FetchError(
                    Phrase.DATA_CORRUPT,
                    f"the archive {shown} is packed with zstd, and the package zstandard is not installed here",
                    "pip install 'holdfast-run[data]' for the Python that runs holdfast, or pack it with gzip or xz.",
                ) from None
            stream = zstandard.ZstdDecompressor().stream_reader(file)
        try:
            found = tarfile.open(fileobj=stream, mode="r|" if head == _ZSTD else "r|*")  # noqa: SIM115 - closed below
        except tarfile.ReadError as error:
            raise FetchError(
                Phrase.DATA_CORRUPT,
                f"{shown} is no archive that can be unpacked: {error}",
                "Expected tar, tar.gz, tar.bz2, tar.xz, tar.zst or zip; leave `extract` out for a plain file.",
            ) from error
        with found:
            yield found


class _Unpacking:
    def __init__(self, into: Path, shown: str, limit: int, moved: Callable[[int], None]) -> None:
        self._into = into
        self._shown = shown
        self._limit = limit
        self._moved = moved
        self._entries = 0
        self.total = 0

    def tar(self, archive: tarfile.TarFile) -> None:
        for member in archive:
            path = self._place(member.name)
            if path is None:
                continue
            if member.isdir():
                self._folder(path)
            elif member.isreg():
                content = archive.extractfile(member)
                assert content is not None, "a regular file has content"
                self._file(path, content, bool(member.mode & 0o100))
            elif member.issym():
                self._link(path, member.name, member.linkname)
            elif member.islnk():
                self._hard_link(path, member.linkname)
            else:
                raise self._unsafe(member.name, "it is a device, a pipe or a socket")

    def zip(self, archive: Path, free: int) -> None:
        with zipfile.ZipFile(archive) as found:
            told = sum(member.file_size for member in found.infolist())
            if told > self._limit:
                raise self._too_large(told)
            if told > free:
                raise FetchError(
                    Phrase.DISK_FULL, f"{self._shown} unpacks to {told} bytes, and {free} are free", here=True
                )
            for member in found.infolist():
                path = self._place(member.filename)
                if path is None:
                    continue
                if member.flag_bits & 1:
                    raise FetchError(Phrase.DATA_CORRUPT, f"the archive {self._shown} asks for a password")
                mode = member.external_attr >> 16
                if member.is_dir():
                    self._folder(path)
                    continue
                with found.open(member) as content:
                    if stat.S_ISLNK(mode):
                        target = content.read(4096).decode("utf-8", "surrogateescape")
                        self._link(path, member.filename, target)
                    else:
                        self._file(path, content, bool(mode & 0o100))

    # ------------------------------------------------------------------------------------------ one entry

    def _place(self, name: str) -> Path | None:
        """Return the destination path of an entry.

        Return None for the directory itself. Raises FetchError for a path outside.
        """
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE, f"the archive {self._shown} has more than {MOST_ENTRIES} entries"
            )
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
            raise self._unsafe(name, "it leads out of the directory")
        if not parts:
            return None
        path = self._into
        for part in parts[:-1]:
            path = path / part
            # An earlier entry may have created a link at this path. Writing through it could leave the directory.
            if path.is_symlink():
                raise self._unsafe(name, "it leads through a link")
            self._folder(path)
        return path / parts[-1]

    def _folder(self, path: Path) -> None:
        with writing(path):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
                path.mkdir(mode=0o755)

    def _file(self, path: Path, content: IO[bytes], executable: bool) -> None:
        with writing(path):
            path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path, flags, 0o755 if executable else 0o644)
        with os.fdopen(fd, "wb") as file:
            while block := content.read(BLOCK):
                self.total += len(block)
                if self.total > self._limit:
                    raise self._too_large(self.total)
                with writing(path):
                    file.write(block)
                self._moved(self.total)

    def _link(self, path: Path, name: str, target: str) -> None:
        if target.startswith("/") or "\0" in target or not within(name.lstrip("./"), target):
            raise self._unsafe(name, f"it is a link out of the directory, to {target}")
        with writing(path):
            path.unlink(missing_ok=True)
            path.symlink_to(target)

    def _hard_link(self, path: Path, target: str) -> None:
        source = self._place(target)
        if source is None or source.is_symlink() or not source.is_file():
            raise self._unsafe(target, "it is a hard link to what is not in the archive before it")
        with writing(path):
            path.unlink(missing_ok=True)
            path.hardlink_to(source)

    def _unsafe(self, name: str, why: str) -> FetchError:
        return FetchError(Phrase.ARCHIVE_UNSAFE, f"the archive {self._shown} is not unpacked: {name[:200]!r}: {why}")

    def _too_large(self, size: int) -> FetchError:
        return FetchError(
            Phrase.DOWNLOAD_TOO_LARGE,
            f"the archive {self._shown} unpacks to {size} bytes or more, and {self._limit} are allowed",
            "Raise max_size, if the archive is what you expect.",
        )
