"""Reads the source lines around the place of a failure, when an attempt has ended.

A later edit of the file does not change what the report shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from holdfast.explain.logs.tracebacks import is_users
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.lazy_pattern import Lazy
from holdfast.model.codec import encode
from holdfast.model.evidence import AttemptEvidence, WorkerEvidence
from holdfast.model.exit_report import SourceLines
from holdfast.model.worker_reading import WORKER_BYTES
from holdfast.observe.python_stacks import parse_faulthandler
from holdfast.safe_files import read_file

#: Number of bytes at the beginning of a file that are read, and of lines that are shown before and after the place.
MOST_BYTES = 2 << 20
AROUND = 1
#: Maximum number of a hang's culprits whose source is read.
MOST_CULPRITS = 4
#: Maximum number of characters kept of a line and of a path.
MOST_LINE = 160
MOST_PATH = 400
#: Number of lines before the place in which the beginning of a secret of several lines, such as a key, is searched.
SECRET_LINES = 80
#: The end of the names of files that are read. Any other file that a log names may be no source.
SUFFIX = ".py"

_FRAME = Lazy(r"(?:.{1,200}) \((?P<path>[^()\n]{1,4096}):(?P<line>\d{1,9})\)")


def with_sources(told: AttemptEvidence, evidence: AttemptEvidence, cwd: Path, ranks: set[int]) -> AttemptEvidence:
    """Return the evidence `told`, with the source lines of the places in which these ranks failed. Never raises.

    `told`: the evidence with the readings of the logs. `evidence`: the same with the logs. `cwd`: the workers' working
    directory.
    """
    logs = {worker.rank: worker for worker in evidence.workers}
    some = ranks | set(told.hang.culprits[:MOST_CULPRITS] if told.hang is not None else ())

    def with_source(worker: WorkerEvidence) -> WorkerEvidence:
        found = replace(worker, source=_source_of(worker, logs[worker.rank], told, cwd))
        return found if len(encode(found)) <= WORKER_BYTES else worker

    return replace(told, workers=tuple(with_source(each) if each.rank in some else each for each in told.workers))


def _source_of(worker: WorkerEvidence, logs: WorkerEvidence, told: AttemptEvidence, cwd: Path) -> SourceLines | None:
    place = next(_places(worker, logs, told), None)
    if place is None:
        return None
    path, line = place
    ended = worker.exit.ended_at if worker.exit is not None else None
    printed = _printed(logs.stderr.text if logs.stderr is not None else "", path, line)
    try:
        return read_source(cwd / path, path, line, printed=printed, unchanged_since=ended)
    except (OSError, ValueError):
        return None


def _places(worker: WorkerEvidence, logs: WorkerEvidence, told: AttemptEvidence) -> Iterator[tuple[str, int]]:
    """Yield the file and the line in which the worker failed, the surest first."""
    reading = worker.reading
    for clue in reading.clues if reading is not None else ():
        if clue.raised is not None and clue.raised.frame is not None:
            yield clue.raised.frame[:2]
    if told.hang is not None and worker.rank in told.hang.culprits:
        for shot in told.hang.looks[-1] if told.hang.looks else ():
            # A thread in state D waits for a file system, and reading a file of it would wait as well.
            if shot.rank == worker.rank and all(thread.state != "D" for thread in shot.threads):
                yield from _users(next((thread.frames for thread in shot.threads if thread.frames), ()))
        return
    if logs.stderr is not None and (stacks := parse_faulthandler(logs.stderr.text)):
        yield from _users(stacks[0])
    if reading is not None and reading.last_raised is not None and reading.last_raised.frame is not None:
        yield reading.last_raised.frame[:2]


def _users(frames: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for frame in frames:
        if (found := _FRAME.fullmatch(frame)) and is_users(found["path"]):
            yield found["path"], int(found["line"])


def _printed(text: str, path: str, line: int) -> str | None:
    """Return the source line that the traceback in the log shows below this frame; None: it shows none."""
    below = text.rpartition(f'  File "{path}", line {line}, in ')[2].split("\n", 2)
    return below[1].strip() if len(below) > 1 and below[1].startswith("    ") and below[0] != text else None


def read_source(
    file: Path, path: str, line: int, *, printed: str | None, unchanged_since: float | None
) -> SourceLines | None:
    """Return the lines around `line` of a source file, without secrets; None if they are not those that ran.

    `path`: the file as the log names it. `printed`: the line as the traceback shows it. `unchanged_since`: when the
    worker ended; a file that was changed later is not read. Raise OSError if it cannot be read.
    """
    if file.suffix != SUFFIX or line < 1:
        return None
    if unchanged_since is not None and file.stat().st_mtime > unchanged_since:
        return None
    lines = read_file(file, MOST_BYTES, cut=True).decode(errors="replace").split("\n")
    if line > len(lines) or (printed is not None and lines[line - 1].strip() != printed):
        return None
    first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
    begin = max(1, line - SECRET_LINES)
    masked = without_secrets("\n".join(lines[begin - 1 : last])).split("\n")
    if len(masked) != last - begin + 1:
        # A secret of several lines became one line. Keep the lines behind it, unless the place is inside.
        first = begin = line
        masked = masked[line - last - 1 :]
        if masked[0] != without_secrets(lines[line - 1]):
            return None
    kept = [text.rstrip().expandtabs(4) for text in masked[first - begin :]]
    if last > line and not kept[-1]:
        kept.pop()
    return SourceLines(
        path=path[:MOST_PATH],
        line=line,
        first=first,
        lines=tuple(text if len(text) <= MOST_LINE else f"{text[:MOST_LINE]} …" for text in kept),
    )
