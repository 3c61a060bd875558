"""Lists a job's log files and copies their bytes. It copies in blocks, because a log may have gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.model import human_format
from holdfast.model.noun_base import Noun
from holdfast.record.job_directory import logs_of
from holdfast.record.rotated_logs import BLOCK_BYTES, Mark, pieces
from holdfast.safe_text import one_line

STREAMS = ("stdout", "stderr")

Write = Callable[[bytes], object]


class LogPart(Noun, frozen=True, kw_only=True):
    """The log of one stream of one worker in one attempt."""

    attempt: int
    role: str
    rank: int
    stream: str
    path: str

    @property
    def prefix(self) -> bytes:
        return f"[{one_line(self.role)}-{self.rank} {self.stream}] ".encode()


def attempts_of(home: Path, job_id: str) -> list[int]:
    """Return the numbers of attempts that have a log directory, in order."""
    return sorted(number for number, _ in _numbered(logs_of(home, job_id), "attempt"))


def parts_of(home: Path, job_id: str, attempt: int) -> list[LogPart]:
    """Return every log of an attempt, by rank, stdout before stderr. Links that a worker has put there are none."""
    parts: list[LogPart] = []
    directories = logs_of(home, job_id) / f"attempt-{attempt}"
    if directories.is_symlink():
        return parts
    for rank, directory in _numbered(directories, None):
        role = directory.name.rpartition("-")[0]
        for stream in STREAMS:
            path = directory / f"{stream}.log"
            if path.is_file() and not path.is_symlink():
                parts.append(LogPart(attempt=attempt, role=role, rank=rank, stream=stream, path=str(path)))
    return sorted(parts, key=lambda part: (part.rank, part.role, STREAMS.index(part.stream)))


def chosen(
    home: Path, job_id: str, *, attempt: int | None, rank: int | None, streams: Iterable[str]
) -> tuple[int, list[LogPart]]:
    """Return the attempt (if None, the last attempt) and its logs of this rank (if None, all ranks) and these streams.

    If the job has no logs, return 0 and an empty list. Raise `BadUsage` for an attempt or a rank that the job does not
    have.
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
        have = f"it has {human_format.ranks(ranks)}" if ranks else "it has no logs yet"
        raise BadUsage(
            f"--rank {rank}: attempt {number} of job {job_id} has no such rank: {have}", hint=f"holdfast show {job_id}"
        )
    wanted = set(streams)
    return number, [part for part in parts if part.stream in wanted and rank in (None, part.rank)]


def copy(
    part: LogPart, write: Write, *, since: Mark | None = None, prefixed: bool, whole_lines: bool = False
) -> Mark | None:
    """Write a log from position `since` on (None: from its first byte).

    If `prefixed`, write the part's prefix before each line.

    Return the position in the log at which the next call continues. A rotated log is read over all its pieces. If the
    last line has no line end and `prefixed` is set, add a line end, so that the next log's prefix begins a line. With
    `whole_lines`, leave such a line for the next call instead.
    """
    lines = _Lines(part.prefix if prefixed else b"", write)
    mark = since
    with pieces(part.path) as found:
        known = [inode for inode, _ in found]
        first = known.index(since[0]) if since is not None and since[0] in known else 0
        for inode, file in found[first:]:
            last_piece = inode == known[-1]
            at = since[1] if since is not None and inode == since[0] else 0
            file.seek(at)
            while block := file.read(BLOCK_BYTES):
                last = len(block) < BLOCK_BYTES
                if whole_lines and last and last_piece:
                    block = block[: block.rfind(b"\n") + 1]
                at += len(block)
                lines.write(block)
                if last:
                    break
            mark = (inode, at)
    lines.end()
    return mark


class _Lines:
    """Writes blocks with a prefix before each line. Without a prefix it writes the blocks as they are."""

    def __init__(self, prefix: bytes, write: Write) -> None:
        self._prefix = prefix
        self._write = write
        self._at_line_start = True

    def write(self, block: bytes) -> None:
        if not self._prefix:
            self._write(block)
        elif block:
            ends = block.endswith(b"\n")
            body = (block[:-1] if ends else block).replace(b"\n", b"\n" + self._prefix)
            self._write((self._prefix if self._at_line_start else b"") + body + (b"\n" if ends else b""))
            self._at_line_start = ends

    def end(self) -> None:
        if not self._at_line_start:
            self._write(b"\n")


def _numbered(directory: Path, name: str | None) -> list[tuple[int, Path]]:
    """Return (number, path) of the entries called `<name>-<number>`. `name` None: with any name."""
    found = []
    try:
        entries = list(directory.iterdir())
    except OSError:
        return []
    for entry in entries:
        head, _, number = entry.name.rpartition("-")
        if head and number.isdecimal() and (name is None or head == name) and not entry.is_symlink():
            found.append((int(number), entry))
    return found
