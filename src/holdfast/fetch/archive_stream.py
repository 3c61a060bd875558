"""Decompresses a tar archive, and limits the size of its headers, because `tarfile` reads a whole header into memory.

A tar of 14 MB may hold a header of 3 GiB. The limit on unpacked files does not cover headers.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from typing import Any, BinaryIO

from holdfast.fetch.fetch_failures import FetchError
from holdfast.model.phrases import Phrase

#: Maximum size of all headers of one entry, in bytes: name, target of a link, attributes, and map of holes.
HEADER_BYTES = 1 << 20
#: Allowed bytes of headers and padding per entry, on average over the whole archive.
ENTRY_BYTES = 4096
SLACK_BYTES = 64 << 20
_GZIP, _BZIP2, _XZ, _LZMA, _ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\0\0\x80", b"\x28\xb5\x2f\xfd"


class ArchiveStream:
    """A readable stream for `tarfile.open(fileobj=…, mode="r|")`.

    `file`: the archive, opened at its start. `shown`: the archive's name for messages.
    `limit_bytes`: limit of the size of all unpacked files together.
    """

    def __init__(self, file: BinaryIO, shown: str, limit_bytes: int) -> None:
        self._file = _decompressed(file, shown)
        self._shown = shown
        self._most = limit_bytes + SLACK_BYTES
        self._read = 0
        self._header_left: int | None = HEADER_BYTES

    def header(self) -> None:
        """Announce that the next reads return the headers of one entry. They must not exceed HEADER_BYTES."""
        self._most += ENTRY_BYTES
        self._header_left = HEADER_BYTES

    def content(self) -> None:
        """Announce that the next reads return an entry's content. The code that writes the file limits its size."""
        self._header_left = None

    def read(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes. Raises FetchError if headers or archive exceed their limit."""
        data: bytes = self._file.read(size)
        self._read += len(data)
        if self._header_left is not None:
            self._header_left -= len(data)
            if self._header_left < 0:
                raise FetchError(
                    Phrase.ARCHIVE_UNSAFE,
                    f"the archive {self._shown} is not unpacked: an entry has more than {HEADER_BYTES} bytes of header",
                )
        if self._read > self._most:
            raise FetchError(
                Phrase.DOWNLOAD_TOO_LARGE,
                f"the archive {self._shown} decompresses to more than {self._most} bytes, most of which are in no file",
            )
        return data


def _decompressed(file: BinaryIO, shown: str) -> Any:
    head = file.read(6)
    file.seek(0)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if head.startswith(_BZIP2):
        return bz2.BZ2File(file)
    if head.startswith((_XZ, _LZMA)):
        return lzma.LZMAFile(file)
    if not head.startswith(_ZSTD):
        return file
    try:
        import zstandard  # the extra `data` installs this package
    except ImportError:
        raise FetchError(
            Phrase.DATA_CORRUPT,
            f"the archive {shown} is packed with zstd, and the package zstandard is not installed here",
            "pip install 'holdfast-run[data]' for the Python that runs holdfast, or pack it with gzip or xz.",
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(file)
