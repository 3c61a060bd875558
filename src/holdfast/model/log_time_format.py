"""The format of the file with the times of a log's bytes: `stdout.times` beside `stdout.log`.

The file has a head and then records of equal length. A record has an offset in the log and a time: the worker wrote the
bytes from this offset to the next record's offset at that time. Readers ignore an incomplete last record.
"""

from __future__ import annotations

#: The length of the file's head in bytes: `_MAGIC`, then the inode number of the log's file. The inode number shows
#: that both files belong together, because for a moment after a rotation their names do not match.
HEAD_BYTES = 12
#: The length of a record in bytes: milliseconds since the epoch, then an offset in the log; six bytes each, big-endian.
RECORD_BYTES = 12
SUFFIX = ".times"
_MAGIC = b"HFT1"
_HALF = 48
_MASK = (1 << _HALF) - 1


def times_name(log: str) -> str:
    """Return the name of the file with the times of a log: `stdout.times.2` for `stdout.log.2`."""
    name, _, number = log.partition(".log")
    return f"{name}{SUFFIX}{number}"


def head(inode: int) -> bytes:
    """Return the head of a file with the times of a log. `inode`: the inode number of the log's file."""
    return _MAGIC + (inode & (1 << 64) - 1).to_bytes(8, "big")


def inode_in(data: bytes) -> int | None:
    """Return the inode number in the head of a file of times; None if the bytes are no such head."""
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    return int.from_bytes(data[4:HEAD_BYTES], "big")


def record(at: int, now: float) -> bytes:
    """Return one record of a file of times, as bytes.

    `at`: an offset in the log. `now`: when the bytes from this offset on were read, in seconds since the epoch.
    """
    return (max(0, int(now * 1000)) << _HALF | at & _MASK).to_bytes(RECORD_BYTES, "big")


def records(data: bytes) -> list[tuple[int, float]]:
    """Return (offset in the log, seconds since the epoch) for each record, in the order of the file."""
    found = []
    for begin in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        both = int.from_bytes(data[begin : begin + RECORD_BYTES], "big")
        found.append((both & _MASK, (both >> _HALF) / 1000))
    return found
