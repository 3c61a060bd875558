"""Unpacks archives safely: tar (plain, gzip, bzip2, xz, zstd) and zip.

An archive may be hostile. All files are written below its directory, and no name or link of the unpacked tree leads out
of it. Devices, pipes and sockets are refused, and owners and set-uid bits are dropped. The unpacked size is checked
while it grows.
"""

from __future__ import annotations

import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from holdfast.fetch.archive_stream import ArchiveStream
from holdfast.fetch.fetch_failures import FetchError, writing
from holdfast.fetch.source_api import BLOCK, MOST_ENTRIES
from holdfast.fetch.tree_links import link_outside
from holdfast.model.phrases import Phrase

#: Size limit if the user sets none: an archive that unpacks to more than RATIO times its size is treated as a bomb.
RATIO = 200
LEAST_LIMIT_BYTES = 1 << 30
#: Limits of a file system for the length of a name and of a path, in bytes.
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 4095
#: Maximum size of a zip's directory of entries, in bytes. Python reads the whole directory into memory.
MOST_ZIP_DIRECTORY_BYTES = 256 << 20
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def unpack(
    archive: Path, into: Path, shown: str, most_bytes: int | None, moved: Callable[[int], None], free: Callable[[], int]
) -> int:
    """Unpack `archive` into the new directory `into` and return the number of unpacked bytes.

    `shown`: the archive's name for messages.
    `most_bytes`: the user's limit of the unpacked size; None: a multiple of the archive's size.
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
            with archive.open("rb") as file:
                work.tar(ArchiveStream(file, shown, limit))
        work.links()
    except _DAMAGED as error:
        raise FetchError(Phrase.DATA_CORRUPT, f"the archive {shown} is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # for invalid data bz2 and gzip raise an OSError without errno
            raise FetchError(Phrase.DATA_CORRUPT, f"the archive {shown} is damaged: {error}") from error
        raise
    return work.total


@contextmanager
def _tar(stream: Any, shown: str) -> Iterator[tarfile.TarFile]:
    try:
        found = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115 - closed below
    except tarfile.ReadError as error:
        raise FetchError(
            Phrase.DATA_CORRUPT,
            f"{shown} is no archive that can be unpacked: {error}",
            "Expected tar, tar.gz, tar.bz2, tar.xz, tar.zst or zip; leave `extract` out for a plain file.",
        ) from error
    with found:
        yield found


def zip_directory_bytes(archive: Path) -> int:
    """Return the size of a zip's directory of entries from the zip's last record. Return 0 without such a record."""
    with archive.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # A comment of up to 64 KiB may follow the last record. In a zip64 another record precedes it.
        file.seek(max(0, size - (1 << 16) - 128))
        end = file.read()
    at = end.rfind(b"PK\5\6")
    wide = end.rfind(b"PK\6\6")
    if wide >= 0 and len(end) >= wide + 48:
        return int(struct.unpack_from("<Q", end, wide + 40)[0])
    return int(struct.unpack_from("<I", end, at + 12)[0]) if at >= 0 and len(end) >= at + 16 else 0


class _Unpacking:
    def __init__(self, into: Path, shown: str, limit: int, moved: Callable[[int], None]) -> None:
        self._into = into
        self._shown = shown
        self._limit = limit
        self._moved = moved
        self._entries = 0
        #: Directories that are known to be real directories, so that each path is checked only once.
        self._folders = {into}
        self.total = 0

    def tar(self, stream: ArchiveStream) -> None:
        with _tar(stream, self._shown) as archive:
            while True:
                stream.header()
                member = archive.next()
                if member is None:
                    return
                stream.content()
                self._member(archive, member)
                # `tarfile` keeps a list of all entries. Empty the list to save memory.
                archive.members = []  # type: ignore[attr-defined] # public, and missing in the stubs

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._place(member.name)
        if path is None:
            return
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
        if (size := zip_directory_bytes(archive)) > MOST_ZIP_DIRECTORY_BYTES:
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE,
                f"the archive {self._shown} has a directory of {size} bytes; allowed: {MOST_ZIP_DIRECTORY_BYTES}",
            )
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

    # ------------------------------------------------------------------------------------------ unpacking one entry

    def _place(self, name: str) -> Path | None:
        """Return the path to which an entry is unpacked. Return None if the entry is the top directory itself.

        Raises FetchError for a path outside the top directory.
        """
        self._entries += 1
        self._moved(self.total)
        if self._entries > MOST_ENTRIES:
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE, f"the archive {self._shown} has more than {MOST_ENTRIES} entries"
            )
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
            raise self._unsafe(name, "it leads out of the directory")
        if not parts:
            return None
        folder = self._into.joinpath(*parts[:-1])
        if any(len(os.fsencode(part)) > MOST_NAME_BYTES for part in parts) or (
            len(os.fsencode(folder)) + len(os.fsencode(parts[-1])) + 1 > MOST_PATH_BYTES
        ):
            raise self._unsafe(
                name, f"a file system takes {MOST_NAME_BYTES} bytes for a name and {MOST_PATH_BYTES} for a path"
            )
        if folder not in self._folders:
            self._way(folder, name)
        return folder / parts[-1]

    def _way(self, folder: Path, name: str) -> None:
        """Create `folder` and its missing parents. Refuse the entry `name` if one of them is a symbolic link."""
        path = self._into
        for part in folder.relative_to(self._into).parts:
            path = path / part
            # An earlier entry may have created a link at this path that leads out of the top directory.
            with writing(path):
                through = path.is_symlink()
            if through:
                raise self._unsafe(name, "it leads through a link")
            self._folder(path)
        self._folders.add(folder)

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

    def links(self) -> None:
        """Refuse the tree if a symbolic link leads out of it. This check comes last, because one link may lead through
        another.
        """
        if (name := link_outside(self._into)) is not None:
            raise self._unsafe(name, f"it is a link out of the directory, to {(self._into / name).readlink()}")

    def _link(self, path: Path, name: str, target: str) -> None:
        if not target or target.startswith("/") or "\0" in target:
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
