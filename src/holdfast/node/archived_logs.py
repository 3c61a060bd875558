"""Reads the logs in an archive, tar or zip, without unpacking it to disk. The limits are those of fetching."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import BadUsage
from holdfast.fetch.archive_stream import ArchiveStream
from holdfast.fetch.archives import LEAST_LIMIT_BYTES, MOST_ZIP_DIRECTORY_BYTES, RATIO, zip_directory_bytes
from holdfast.fetch.fetch_failures import FetchError
from holdfast.node.compressed_logs import Begun, decompressed
from holdfast.node.log_source import (
    FIRST_BYTES,
    MOST_ENTRIES,
    MOST_LOGS,
    NO_LOG,
    TAILS_BYTES,
    NamedLog,
    compression_of,
    in_order,
    too_many,
)

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


def logs_in(path: Path) -> Iterator[str | NamedLog] | None:
    """Return the logs of an archive, which have to be read in the order in which they come; None: it is no archive."""
    match _kind(path):
        case "zip":
            return _of_zip(path)
        case "tar":
            return _of_tar(path)
        case _:
            return None


def _kind(path: Path) -> str:
    """Return `zip` or `tar` for an archive, compressed or not; empty for any other file."""
    try:
        with path.open("rb") as file:
            first = file.read(FIRST_BYTES)
            if first.startswith((b"PK\3\4", b"PK\5\6")):
                return "zip"
            if compression_of(first):
                first = _begin(decompressed(first, file, str(path)))
    except OSError:
        return ""
    return "tar" if first[257:262] == b"ustar" else ""


def _begin(reader: Any) -> bytes:
    begin = b""
    while len(begin) < 512 and (piece := reader.read(512 - len(begin))):
        begin += piece
    return begin


def _of_tar(path: Path) -> Iterator[NamedLog]:
    limit = max(LEAST_LIMIT_BYTES, path.stat().st_size * RATIO)
    count = total = 0
    try:
        with path.open("rb") as file:
            stream = ArchiveStream(file, str(path), limit)
            opened: Any = tarfile.open  # its stubs want more of a stream than a method to read
            with opened(fileobj=stream, mode="r|") as archive:
                for entry in range(MOST_ENTRIES + 1):
                    stream.header()
                    member = archive.next()
                    if member is None:
                        break
                    if entry == MOST_ENTRIES:
                        raise too_many(str(path), MOST_ENTRIES)
                    stream.content()
                    archive.members = []
                    if not member.isreg() or not member.size or not _in_archive(member.name):
                        continue
                    total += member.size
                    content = archive.extractfile(member)
                    if content is None or (first := _text_of(content)) is None:
                        continue
                    count += 1
                    _check(path, count, total, limit)
                    yield _member(path, member.name, first, content, float(member.mtime))
    except (*_DAMAGED, FetchError) as error:
        raise BadUsage(f"the archive {path} is damaged: {error}", hint=f"tar tf {path}") from None
    _check_some(path, count)


def _of_zip(path: Path) -> Iterator[NamedLog]:
    limit = max(LEAST_LIMIT_BYTES, path.stat().st_size * RATIO)
    count = total = 0
    try:
        if zip_directory_bytes(path) > MOST_ZIP_DIRECTORY_BYTES:
            raise too_many(str(path), MOST_ENTRIES)
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MOST_ENTRIES:
                raise too_many(str(path), MOST_ENTRIES)
            names = {each.filename: each for each in archive.infolist()}
            for name in in_order(list(names)):
                member = names[name]
                if member.is_dir() or not member.file_size or not _in_archive(name):
                    continue
                if member.flag_bits & 1:
                    raise BadUsage(f"the archive {path} asks for a password", hint=f"unzip {path} -d logs")
                total += member.file_size
                with archive.open(member) as content:
                    if (first := _text_of(content)) is None:
                        continue
                    count += 1
                    _check(path, count, total, limit)
                    yield _member(path, name, first, content, path.stat().st_mtime)
    except (*_DAMAGED, NotImplementedError) as error:
        raise BadUsage(f"the archive {path} is damaged: {error}", hint=f"unzip -t {path}") from None
    _check_some(path, count)


def _in_archive(name: str) -> bool:
    return not NO_LOG.search(name) and not Path(name).name.startswith(".")


def _text_of(content: Any) -> bytes | None:
    """Return the first bytes of an entry; None if it is neither text nor compressed."""
    first: bytes = content.read(FIRST_BYTES)
    return first if compression_of(first) or b"\0" not in first[:1024] else None


def _check(path: Path, count: int, total: int, limit: int) -> None:
    if count > MOST_LOGS:
        raise too_many(str(path), MOST_LOGS)
    if total > limit:
        raise BadUsage(
            f"the archive {path} unpacks to more than {limit} bytes: that much is not read",
            hint="unpack it, and name the logs of the ranks that failed",
        )


def _check_some(path: Path, count: int) -> None:
    if not count:
        raise BadUsage(f"the archive {path} has no log: text files were expected", hint=f"tar tf {path}")


def _member(path: Path, name: str, first: bytes, content: Any, written_at: float) -> NamedLog:
    reader: Any = _Entry(path, Begun(first, content))
    return NamedLog(
        name=f"{path.name}/{name}", opened=lambda: reader, written_at=written_at, tail_bytes=TAILS_BYTES // MOST_LOGS
    )


class _Entry:
    """The content of one entry, which may be damaged."""

    def __init__(self, path: Path, content: Begun) -> None:
        self._path = path
        self._content = content

    def read(self, size: int) -> bytes:
        try:
            return self._content.read(size)
        except (*_DAMAGED, FetchError) as error:
            raise BadUsage(f"the archive {self._path} is damaged: {error}", hint=f"tar tf {self._path}") from None

    def close(self) -> None:
        """Leave the archive open, which has further entries."""
