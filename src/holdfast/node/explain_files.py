"""The entry point of explaining: it turns logs (files, pipes, workers' directories) into evidence and then into a
report.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import Catalogue, load
from holdfast.errors import BadUsage
from holdfast.explain import explain
from holdfast.explain.causes.exits_from_logs import rank_of_name
from holdfast.explain.logs.launcher_notes import plain_of, signal_of
from holdfast.explain.logs.log_scanner import BLOCK_BYTES, Scanner
from holdfast.explain.logs.row_matcher import Matcher, built_in
from holdfast.explain.logs.signal_sentences import number_of
from holdfast.explain.row_lint import RowProblem, lint, usable
from holdfast.explain.row_trial import RowMatch, row_matches
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast.node.log_source import NamedLog, compression_of
from holdfast.record.rotated_logs import older
from holdfast.safe_files import opened, read_given
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, json_leniently

__all__ = [
    "catalogue_with",
    "ended_by",
    "excerpt",
    "explain_files",
    "lint_file",
    "number_of",
    "plain_of",
    "read_rows_file",
    "signal_of",
    "try_rows",
]

#: The excerpt always has this many bytes of a log's end.
TAIL_BYTES = 64 << 10
#: The excerpt has at most this many bytes of the end of a log without progress messages. The limit is high, because a
#: thousand ranks may print messages after one death.
MOST_TAIL_BYTES = 1 << 20
#: Between a death and its report, at most this many bytes of all workers' logs together are scanned.
LIVE_BYTES = 256 << 20


def excerpt(path: Path, source: str, scan_bytes: int = LIVE_BYTES) -> LogExcerpt:
    """Return the part of a worker's log to keep: its end, and the text around earlier lines that match a row of the
    catalogue.

    The log may have any size; at most its last `scan_bytes` are scanned. Raises OSError if it cannot be read. `source`:
    the log's name in the excerpt.
    """
    with opened(path) as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        if size <= TAIL_BYTES:
            before = _end_of(older(path, 1), TAIL_BYTES - size)
            return _dated(LogExcerpt(source=source, text=decode(before + file.read())), status.st_mtime)
        start = max(0, size - max(scan_bytes, TAIL_BYTES))
        file.seek(start)
        return _dated(_scan(_blocks(file, source), source, built_in(), skipped=start), status.st_mtime)


def _end_of(path: str, most_bytes: int) -> bytes:
    """Return the end of the file before this one, if the log was rotated. A message about a death often begins
    there.
    """
    try:
        with opened(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read(most_bytes)
    except OSError:
        return b""  # there is no file before this one: usually the log was not rotated


def _dated(kept: LogExcerpt, written_at: float) -> LogExcerpt:
    """Add the year and the time zone that a log's timestamps lack to its excerpt. They come from the file's
    modification time.
    """
    return replace(kept, written_at=written_at, utc_offset_s=time.localtime(written_at).tm_gmtoff)


def explain_files(
    files: Iterable[str | NamedLog],
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    catalogue: Catalogue | None = None,
    stdin: BinaryIO | None = None,
) -> ExitReport:
    """Return the report of a failure from logs alone. Each file (`-`: standard input) is the log of one rank or of the
    whole job. Without any, standard input is read.

    The user types `exit_code` and `signal`, because a log has neither. Raises `BadUsage` for a file that is missing,
    unreadable or a directory.
    """
    matcher = Matcher(catalogue) if catalogue is not None else built_in()
    workers: list[WorkerEvidence] = []
    for index, name in enumerate(files):
        ended = None
        if index == 0 and (exit_code is not None or signal is not None):
            ended = WorkerExit(role="worker", rank=0, node="", attempt=1, exit_code=exit_code, signal=signal)
        workers.append(WorkerEvidence(rank=index, log=read_log(name, matcher, stdin), exit=ended))
    if not workers:
        return explain_files(["-"], exit_code=exit_code, signal=signal, catalogue=catalogue, stdin=stdin)
    return explain(AttemptEvidence(workers=tuple(_with_ranks(_one_a_rank(workers)))), catalogue)


def ended_by(exit_code: int | None, signal_name: str | None) -> tuple[int | None, int | None]:
    """Convert the typed exit status and signal name to numbers; at most one is not None. Raises `BadUsage`."""
    number: int | None = None
    if signal_name is not None:
        number = number_of(signal_name)
        if number is None or not 0 < number < 65:
            raise BadUsage(
                f"--signal {signal_name}: no such signal; a name or a number was expected", hint="--signal KILL"
            )
    if exit_code is not None:
        typed = exit_code
        # Accept larger and negative statuses too, because PBS, wait(2), Python and Windows show such.
        if not 0 <= typed <= 255:
            told = signal_of(typed)
            number, exit_code = (told, None) if told is not None else (number, plain_of(typed))
            if told is None and exit_code is None:
                raise BadUsage(f"--exit-code {typed}: a status from 0 to 255 was expected", hint="--exit-code 1")
    return (exit_code, None) if number is None else (None, number)


def _one_a_rank(workers: Sequence[WorkerEvidence]) -> list[WorkerEvidence]:
    """Join the log files of a rank's two streams (`attempt_0/3/stdout.log` and `stderr.log`) into one worker."""
    places: dict[str, int] = {}
    found: list[WorkerEvidence] = []
    for worker in workers:
        path = Path(worker.log.source) if worker.log is not None else Path()
        stream = path.name.partition(".")[0]
        place = places.get(str(path.parent)) if stream in ("stdout", "stderr") else None
        first = found[place] if place is not None else None
        if place is None or first is None or first.log is None or rank_of_name(str(path)) is None:
            places[str(path.parent)] = len(found)
            found.append(worker)
        elif stream == "stderr":  # make stderr the main log, because failures are reported there
            found[place] = replace(first, log=worker.log, stdout=first.log, exit=first.exit or worker.exit)
        else:
            found[place] = replace(first, stdout=worker.log, exit=first.exit or worker.exit)
    return found


def _with_ranks(workers: Sequence[WorkerEvidence]) -> Sequence[WorkerEvidence]:
    """Give each log the rank that its name has, if at least two names have ranks and no two have the same one.

    The other logs come after the last rank.
    """
    named = [rank_of_name(worker.log.source) if worker.log is not None else None for worker in workers]
    told = [rank for rank in named if rank is not None]
    if len(told) < 2 or len(set(told)) < len(told):
        return workers
    free = itertools.count(max(told) + 1)
    return [
        replace(worker, rank=rank if rank is not None else next(free), exit=_of_rank(worker.exit, rank))
        for worker, rank in zip(workers, named, strict=True)
    ]


def _of_rank(ended: WorkerExit | None, rank: int | None) -> WorkerExit | None:
    return replace(ended, rank=rank) if ended is not None and rank is not None else ended


def catalogue_with(files: Sequence[str]) -> tuple[Catalogue, list[str]]:
    """Return the exit rows of these files (in holdfast's or OpenPAI's format) followed by the built-in rows, and a
    message for each row that was left out.

    Raises `BadUsage` for a file that cannot be read or has no rows.
    """
    ours, theirs, said = [], [], []
    for name in files:
        try:
            own, further, problems = usable(read_rows_file(name), name)
        except ValueError as error:
            raise BadUsage(f"{name}: {error}", hint=f"holdfast exits lint {name}") from None
        ours += own
        theirs += further
        said += problems
    return load().merged(ours, ", ".join(files), theirs), said


def read_rows_file(name: str) -> bytes:
    """Return the content of a file of exit rows. Raises `BadUsage` if it cannot be read."""
    try:
        return read_given(name, MOST_CONFIG_BYTES)
    except IsADirectoryError:
        raise BadUsage(
            f"{name} is a directory: a file of exit rows was expected", hint="holdfast exits --help"
        ) from None
    except OSError as error:
        raise BadUsage(f"{name} cannot be read: {error.strerror or error}", hint=f"ls -l {name}") from None


def lint_file(name: str) -> list[RowProblem]:
    """Return the mistakes in a file of exit rows, in the order of its lines."""
    return lint(read_rows_file(name), name)


def try_rows(name: str, catalogue: Catalogue | None = None) -> Iterator[RowMatch]:
    """Yield every row that matches a line of the log `name`, in the order of the lines."""
    matcher = Matcher(catalogue) if catalogue is not None else built_in()
    return row_matches(read_log(name, matcher), matcher)


def read_log(name: str | NamedLog, matcher: Matcher, stdin: BinaryIO | None = None) -> LogExcerpt:
    """Read one log of any size and encoding with limited memory."""
    if isinstance(name, NamedLog):
        try:
            with contextlib.closing(name.opened()) as file:
                blocks = _blocks(file, name.name)
                return _dated(_scan(blocks, name.name, matcher, tail_bytes=name.tail_bytes), name.written_at)
        except OSError as error:
            raise BadUsage(f"{name.name} cannot be read: {error.strerror or error}") from None
    if name == "-":
        return _dated(_scan(_blocks(stdin or sys.stdin.buffer, "stdin"), "stdin", matcher), time.time())
    path = Path(name)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise BadUsage(f"{name} is a directory: a log file was expected", hint=f"holdfast explain {name}")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            # A pipe (`<(kubectl logs …)`) is written while it is read, so its text is from now.
            written_at = status.st_mtime if stat.S_ISREG(status.st_mode) else time.time()
            return _dated(_scan(_blocks(file, name), name, matcher), written_at)
    except FileNotFoundError:
        raise BadUsage(f"there is no file {name}: a log was expected", hint="holdfast explain job.log") from None
    except OSError as error:
        raise BadUsage(f"{name} cannot be read: {error.strerror or error}", hint=f"ls -l {name}") from None


def _scan(blocks: Iterator[bytes], source: str, matcher: Matcher, skipped: int = 0, tail_bytes: int = 0) -> LogExcerpt:
    scanner = Scanner(matcher, tail_bytes or MOST_TAIL_BYTES)
    for block in blocks:
        scanner.feed(block)
    tail, offset, line, cuttings, settled = scanner.finish()
    if offset == 0 and skipped == 0 and (document := _document(tail)):
        tail = document
    if len(tail) > 4 * TAIL_BYTES:
        # The program survived everything before its last progress message, so keep only the text after it.
        begin = min(max(0, matcher.last_progress(tail) - TAIL_BYTES), len(tail) - TAIL_BYTES)
        begin = tail.rfind(b"\n", 0, begin) + 1
        line += tail.count(b"\n", 0, begin)
        offset, tail = offset + begin, tail[begin:]
    return LogExcerpt(
        source=source,
        text=decode(tail),
        skipped_bytes=skipped + offset,
        cuttings=tuple(decode(cutting.data) for cutting in cuttings),
        settled=settled,
        first_line=line,
        cutting_lines=tuple(cutting.line for cutting in cuttings),
    )


def _blocks(file: BinaryIO, shown: str) -> Iterator[bytes]:
    """Yield blocks of UTF-8 text. Each ends with a whole line, unless a line is longer than a block."""
    first = file.read(4096)
    read: Callable[[], bytes]
    if compression_of(first):
        from holdfast.node.compressed_logs import decompressed  # imported here, because few logs are compressed

        unpacked = decompressed(first, file, shown)

        def read() -> bytes:
            return unpacked.read(BLOCK_BYTES)

        rest = b""
    elif encoding := _wide(first):
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        rest = decoder.decode(first).encode()

        def read() -> bytes:
            data = file.read(BLOCK_BYTES)
            return decoder.decode(data, not data).encode() if data else b""

    else:
        rest = first

        def read() -> bytes:
            return file.read(BLOCK_BYTES)

    while True:
        data = read()
        if not data:
            if rest:
                yield rest
            return
        end = data.rfind(b"\n") + 1
        if not end:
            # The line is longer than a block, so yield it in blocks without waiting for its end.
            rest += data
            if len(rest) >= BLOCK_BYTES:
                yield rest
                rest = b""
            continue
        yield rest + data[:end] if rest else data[:end]
        rest = data[end:]


def _wide(first: bytes) -> str:
    """Return the encoding of UTF-16 or UTF-32 text, found by its byte-order mark or its zero bytes; "" for other
    text.
    """
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if first.startswith(mark):
            return encoding
    sample = first[:1024]
    half = len(sample) // 2
    if half >= 16:
        if sample[1::2].count(0) > 0.6 * half and sample[0::2].count(0) < 0.1 * half:
            return "utf-16-le"
        if sample[0::2].count(0) > 0.6 * half and sample[1::2].count(0) < 0.1 * half:
            return "utf-16-be"
    return ""


def decode(data: bytes) -> str:
    """Decode UTF-8 with replacement characters, so that a wrong byte changes one character and not a whole line."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _document(tail: bytes) -> bytes:
    """Reformat a JSON document of Kubernetes (pod status, events) to one value per line; return b"" for other text."""
    head = tail[:64].lstrip()
    if not head.startswith((b"{", b"[")) or b'"kind"' not in tail or len(tail) > MOST_TAIL_BYTES:
        return b""
    try:
        return json.dumps(json_leniently(tail), indent=1, ensure_ascii=False).encode("utf-8", "replace")
    except Malformed:
        return b""
