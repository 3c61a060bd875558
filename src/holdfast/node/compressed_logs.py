"""Decompresses a log while it is read: gzip, bzip2, xz, and zstd where a library for it is installed."""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from typing import Any, BinaryIO, Protocol

from holdfast.errors import BadUsage
from holdfast.fetch.archives import LEAST_LIMIT_BYTES, RATIO
from holdfast.node.log_source import compression_of

_PIECE_BYTES = 64 << 10


class Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Begun:
    """A file of which some bytes were already read."""

    def __init__(self, first: bytes, file: Reader) -> None:
        self._first = first
        self._file = file

    def read(self, size: int) -> bytes:
        if self._first:
            piece, self._first = self._first[:size], self._first[size:]
            return piece
        return self._file.read(size)


def decompressed(first: bytes, file: BinaryIO, shown: str) -> Reader:
    """Return the text of a file that begins with `first`, decompressed if it is compressed.

    `shown`: the file's name for messages. The reader raises `BadUsage` where the text exceeds the limits.
    """
    whole = Begun(first, file)
    match compression_of(first):
        case "":
            return whole
        case "zstd":
            return _Limited(_zstd(whole, shown), whole, shown)
        case name:
            return _Limited(_Inflated(whole, name), whole, shown)


class _Counted:
    def __init__(self, file: Reader) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data


class _Limited:
    """The unpacked text, up to the limits."""

    def __init__(self, unpacked: Any, packed: Reader, shown: str) -> None:
        self._counted = _Counted(packed)
        unpacked.source = self._counted
        self._unpacked = unpacked
        self._shown = shown
        self._count = 0

    def read(self, size: int) -> bytes:
        data: bytes = self._unpacked.read(size)
        self._count += len(data)
        if self._count > max(LEAST_LIMIT_BYTES, RATIO * self._counted.count):
            raise BadUsage(
                f"{self._shown} unpacks to more than {RATIO} times its size: that much is not read",
                hint="unpack it, and explain its end: tail -c 100M FILE | holdfast explain -",
            )
        return data


class _Inflated:
    """gzip, bzip2 or xz: one stream after the other. A damaged or truncated end is left out."""

    def __init__(self, source: Reader, name: str) -> None:
        self.source = source
        self._name = name
        self._stream: Any = self._new()
        self._pending = b""
        self._over = False

    def _new(self) -> Any:
        match self._name:
            case "gzip":
                return zlib.decompressobj(wbits=31)
            case "bzip2":
                return bz2.BZ2Decompressor()
            case _:
                return lzma.LZMADecompressor()

    def read(self, size: int) -> bytes:
        while not self._over:
            if not self._pending and self._hungry():
                self._pending = self.source.read(_PIECE_BYTES)
                if not self._pending:
                    return b""
            try:
                out: bytes = self._stream.decompress(self._pending, size)
            except (zlib.error, OSError, lzma.LZMAError, EOFError):
                self._over = True
                return b""
            self._pending = self._stream.unconsumed_tail if self._name == "gzip" else b""
            if self._stream.eof:
                self._pending = self._stream.unused_data
                self._stream = self._new()
            if out:
                return out
        return b""

    def _hungry(self) -> bool:
        return self._name == "gzip" or bool(self._stream.needs_input)


class _Zstd:
    """A reader that opens its library's stream at the first read, when the source is known."""

    def __init__(self, source: Reader, library: Any) -> None:
        self.source = source
        self._library = library
        self._stream: Any = None

    def read(self, size: int) -> bytes:
        if self._stream is None:
            new = self._library.__name__ == "compression.zstd"
            self._stream = (
                self._library.ZstdFile(self.source)
                if new
                else self._library.ZstdDecompressor().stream_reader(self.source, read_across_frames=True)
            )
        try:
            data: bytes = self._stream.read(size)
        except (EOFError, self._error()):
            return b""
        return data

    def _error(self) -> type[Exception]:
        found: type[Exception] = self._library.ZstdError
        return found


def _zstd(source: Reader, shown: str) -> _Zstd:
    for name in ("compression.zstd", "zstandard"):
        try:
            return _Zstd(source, importlib.import_module(name))
        except ImportError:
            continue
    raise BadUsage(
        f"{shown} is compressed with zstd, and this Python has no library for it",
        hint=f"pip install zstandard, or: zstd -dc {shown} | holdfast explain -",
    )
