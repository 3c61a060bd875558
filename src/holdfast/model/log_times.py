"""How the times of a log's bytes are kept beside it: `stdout.times` beside `stdout.log`.

A head, then records of one length: from this byte of the log on, what stands there was read at this moment, until the
next record. The last record that ends in the middle does not count.
"""

from __future__ import annotations

HEAD_BYTES = 12
"""`_MAGIC`, then the number (inode) of the log's file: after a rotation, names say nothing for a moment."""
RECORD_BYTES = 12
"""Milliseconds since the epoch, then the byte, both of six bytes, the highest first."""
SUFFIX = ".times"
_MAGIC = b"HFT1"
_HALF = 48
_MASK = (1 << _HALF) - 1


def times_name(log: str) -> str:
    """`stdout.times.2` for `stdout.log.2`: a log's name with another suffix."""
    name, _, number = log.partition(".log")
    return f"{name}{SUFFIX}{number}"


def head(inode: int) -> bytes:
    """How the times of this file begin."""
    return _MAGIC + (inode & (1 << 64) - 1).to_bytes(8, "big")


def inode_in(data: bytes) -> int | None:
    """The file that this head is for; None where it is no head."""
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    return int.from_bytes(data[4:HEAD_BYTES], "big")


def record(at: int, now: float) -> bytes:
    """`at`: a byte of the log. `now`: seconds since the epoch."""
    return (max(0, int(now * 1000)) << _HALF | at & _MASK).to_bytes(RECORD_BYTES, "big")


def records(data: bytes) -> list[tuple[int, float]]:
    """(byte, seconds since the epoch), as they stand."""
    found = []
    for begin in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        both = int.from_bytes(data[begin : begin + RECORD_BYTES], "big")
        found.append((both & _MASK, (both >> _HALF) / 1000))
    return found
