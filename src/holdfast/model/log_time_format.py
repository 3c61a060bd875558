"""How the times of a log's bytes are kept beside it: `stdout.times` beside `stdout.log`.

A head, then records of one length: the bytes of the log from this one on, up to the next record's, were read at this
moment. An incomplete last record does not count.
"""

from __future__ import annotations

#: `_MAGIC`, then the inode number of the log's file: after a rotation the names do not match for a moment.
HEAD_BYTES = 12
#: Milliseconds since the epoch, then the byte's offset, six bytes each, big-endian.
RECORD_BYTES = 12
SUFFIX = ".times"
_MAGIC = b"HFT1"
_HALF = 48
_MASK = (1 << _HALF) - 1


def times_name(log: str) -> str:
    """`stdout.times.2` for `stdout.log.2`: the log's name with another suffix."""
    name, _, number = log.partition(".log")
    return f"{name}{SUFFIX}{number}"


def head(inode: int) -> bytes:
    """The head of a file of times."""
    return _MAGIC + (inode & (1 << 64) - 1).to_bytes(8, "big")


def inode_in(data: bytes) -> int | None:
    """The inode number of the log that this head is for; None where it is no head."""
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    return int.from_bytes(data[4:HEAD_BYTES], "big")


def record(at: int, now: float) -> bytes:
    """One record. `at`: a byte of the log. `now`: seconds since the epoch."""
    return (max(0, int(now * 1000)) << _HALF | at & _MASK).to_bytes(RECORD_BYTES, "big")


def records(data: bytes) -> list[tuple[int, float]]:
    """(byte, seconds since the epoch) for each record, in the order of the file."""
    found = []
    for begin in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        both = int.from_bytes(data[begin : begin + RECORD_BYTES], "big")
        found.append((both & _MASK, (both >> _HALF) / 1000))
    return found
