"""A job's log files: which there are, and their bytes as they stand. In blocks, for a log may have gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.files import opened
from holdfast.model import in_words
from holdfast.model.base import Noun
from holdfast.plain import one_line
from holdfast.record import log_tail
from holdfast.record.log_tail import BLOCK_BYTES
from holdfast.record.places import logs_of

STREAMS = ("stdout", "stderr")

Write = Callable[[bytes], object]


class LogPart(Noun, frozen=True, kw_only=True):
    """One stream of one worker in one attempt."""

    attempt: int
    role: str
    rank: int
    stream: str
    path: str

    @property
    def prefix(self) -> bytes:
        return f"[{one_line(self.role)}-{self.rank} {self.stream}] ".encode()


def attempts_of(home: Path, job_id: str) -> list[int]:
    """The attempts that have a directory, in order."""
    return sorted(number for number, _ in _numbered(logs_of(home, job_id), "attempt"))


def parts_of(home: Path, job_id: str, attempt: int) -> list[LogPart]:
    """Every log of an attempt, by rank, stdout before stderr."""
    parts = []
    for rank, directory in _numbered(logs_of(home, job_id) / f"attempt-{attempt}", None):
        role = directory.name.rpartition("-")[0]
        for stream in STREAMS:
            path = directory / f"{stream}.log"
            if path.is_file():
                parts.append(LogPart(attempt=attempt, role=role, rank=rank, stream=stream, path=str(path)))
    return sorted(parts, key=lambda part: (part.rank, part.role, STREAMS.index(part.stream)))


def chosen(
    home: Path, job_id: str, *, attempt: int | None, rank: int | None, streams: Iterable[str]
) -> tuple[int, list[LogPart]]:
    """The attempt (the last one unless given) and its logs of these ranks and streams.

    Raises `BadUsage` for an attempt or a rank that the job does not have. No logs at all: attempt 0 and an empty list.
    """
    attempts = attempts_of(home, job_id)
    if attempt is not None and attempt not in attempts:
        have = f"it has {', '.join(map(str, attempts))}" if attempts else "it has no logs yet"
        raise BadUsage(f"--attempt {attempt}: job {job_id} has no such attempt: {have}", hint=f"holdfast show {job_id}")
    if not attempts:
        return 0, []
    number = attempts[-1] if attempt is None else attempt
    parts = parts_of(home, job_id, number)
    ranks = sorted({part.rank for part in parts})
    if rank is not None and rank not in ranks:
        have = f"it has {in_words.ranks(ranks)}" if ranks else "it has no logs yet"
        raise BadUsage(
            f"--rank {rank}: attempt {number} of job {job_id} has no such rank: {have}", hint=f"holdfast show {job_id}"
        )
    wanted = set(streams)
    return number, [part for part in parts if part.stream in wanted and rank in (None, part.rank)]


def copy(part: LogPart, write: Write, *, start: int = 0, prefixed: bool, whole_lines: bool = False) -> int:
    """Write a log from byte `start` on, each line with the part's prefix if `prefixed`. Returns where it stopped.

    The end without a line end gets one when prefixed, so that the next log's prefix begins a line; with `whole_lines`
    it is left for the next call instead.
    """
    at = start
    at_line_start = True
    with opened(part.path) as file:
        file.seek(start)
        while block := file.read(BLOCK_BYTES):
            last = len(block) < BLOCK_BYTES
            if whole_lines and last:
                block = block[: block.rfind(b"\n") + 1]
            at += len(block)
            if not prefixed:
                write(block)
            elif block:
                ends = block.endswith(b"\n")
                body = (block[:-1] if ends else block).replace(b"\n", b"\n" + part.prefix)
                write((part.prefix if at_line_start else b"") + body + (b"\n" if ends else b""))
                at_line_start = ends
            if last:
                break
    if prefixed and not at_line_start:
        write(b"\n")
    return at


def tail_start(path: str, lines: int) -> int:
    """Where the last `lines` lines of a file begin, in bytes, found from its end."""
    with opened(path) as file:
        return log_tail.tail_start(file, lines)


def _numbered(directory: Path, name: str | None) -> list[tuple[int, Path]]:
    """Entries called `<name>-<number>`, any name where None."""
    found = []
    try:
        entries = list(directory.iterdir())
    except OSError:
        return []
    for entry in entries:
        head, _, number = entry.name.rpartition("-")
        if head and number.isdecimal() and (name is None or head == name):
            found.append((int(number), entry))
    return found
