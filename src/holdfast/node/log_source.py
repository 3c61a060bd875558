"""A log to read, which is no plain file; and the limits that all ways to find logs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy

MOST_LOGS = 1024
#: Limit of the entries of a directory tree or an archive that are looked at.
MOST_ENTRIES = 100_000
#: Limit of the tails that are kept of all logs together, in bytes.
TAILS_BYTES = 128 << 20
FIRST_BYTES = 4096
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
#: Names of files that are code or data.
NO_LOG = Lazy(
    r"(?i)\.(?:py[cio]?|sh|c|cc|cpp|cu|h|hpp|so|o|a|js|ts|html?|css|md|rst|ya?ml|toml|cfg|ini|lock|csv|tsv|parquet|arrow"
    r"|npy|npz|pt|pth|ckpt|bin|safetensors|gguf|h5|hdf5|pkl|pickle|png|jpe?g|gif|svg|pdf|mp4|wav|whl|egg|db|sqlite|pid"
    r"|tfevents.*|idx|onnx|model|vocab|jsonl|xml|trace)$"
)


class NamedLog(msgspec.Struct, frozen=True, kw_only=True):
    """One log to read: its name, how to open it, and when it was last written (in seconds since the epoch)."""

    name: str
    opened: Callable[[], BinaryIO]
    written_at: float
    #: Limit of the bytes to keep of its end; 0: the usual one.
    tail_bytes: int = 0


def compression_of(first: bytes) -> str:
    """Return the name of the compression of a file that begins with these bytes; empty: it is not compressed."""
    return next((name for magic, name in _MAGIC.items() if first.startswith(magic)), "")


def in_order(names: list[str]) -> list[str]:
    """Sort names so that `rank2` comes before `rank10`."""
    return sorted(names, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)])


def too_many(word: str, most: int) -> BadUsage:
    return BadUsage(
        f"{word} has more than {most:,} files: name those of the ranks that failed",
        hint=f"holdfast explain '{word.rstrip('/*')}/rank*.log'",
    )
