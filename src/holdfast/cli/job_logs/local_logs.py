"""`holdfast logs` for logs on this machine: prints them once, or follows them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output.printing import print_line, say
from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.record.rotated_logs import files_of, tail_mark
from holdfast.record.timed_logs import has_times
from holdfast.report.log_files import LogPart, attempts_of, chosen, copy, parts_of
from holdfast.report.merged_logs import LogCursor, LogLineFilter, Printer, block_bytes, merge
from holdfast.report.terminal_text import harmless

if TYPE_CHECKING:
    from holdfast.record.job_views import JobView


class LogOptions(Noun, frozen=True, kw_only=True):
    """The options of `holdfast logs`."""

    attempt: int | None
    rank: int | None
    streams: tuple[str, ...]
    lines: LogLineFilter
    timestamps: bool
    as_json: bool

    @property
    def in_time(self) -> bool:
        """Whether the user selects lines by time. They may be in any attempt."""
        return self.lines.since is not None or self.lines.until is not None

    @property
    def as_they_stand(self) -> bool:
        """Whether the logs can be copied unchanged, because no option selects or changes single lines."""
        return not (self.in_time or self.timestamps or self.as_json or self.lines.pattern is not None)


def parts_wanted(home: Path, job_id: str, wish: LogOptions) -> tuple[int, list[LogPart]]:
    """Return the number of the attempt that the user asks for, and its logs; for a time span, the logs of all attempts.

    Raise BadUsage if the job has no such logs.
    """
    number, parts = chosen(home, job_id, attempt=wish.attempt, rank=wish.rank, streams=wish.streams)
    if wish.attempt is None and wish.in_time:
        every = [part for each in attempts_of(home, job_id) for part in parts_of(home, job_id, each)]
        parts = [part for part in every if part.stream in wish.streams and wish.rank in (None, part.rank)]
    return number, parts


class LocalLogFile(Noun, frozen=True, kw_only=True):
    """One file of a log, which may be rotated."""

    part: LogPart
    path: str
    #: The size in bytes.
    size: int
    #: The node that has the file; "" for this machine.
    node: str = ""


def files_here(parts: Sequence[LogPart]) -> list[LocalLogFile]:
    """Return the files of these logs on this machine, each log's oldest file first."""
    return [LocalLogFile(part=part, path=path, size=size) for part in parts for path, size in files_of(part.path)]


def print_files(job_id: str, files: Sequence[LocalLogFile], *, as_json: bool) -> None:
    """Print the paths of the logs, as `NODE:PATH` for files on other nodes."""
    if not as_json:
        lines = [f"{harmless(file.node)}:{harmless(file.path)}" if file.node else file.path for file in files]
        print_line("\n".join(lines), nl=bool(lines))
        return
    from holdfast.report.report_json import pretty

    found = [
        {
            "attempt": file.part.attempt,
            "role": file.part.role,
            "rank": file.part.rank,
            "stream": file.part.stream,
            "path": file.path,
            "size_bytes": file.size,
            "node": file.node or None,
        }
        for file in files
    ]
    print_line(pretty({"schema": "holdfast.log_files/1", "job_id": job_id, "files": found}))


def print_logs(view: JobView, number: int, parts: Sequence[LogPart], wish: LogOptions) -> None:
    """Print all lines that the logs have now. Raise BadUsage if the user asks for a time span and no log has times.

    `number`: the attempt. `parts`: the job's logs on this machine. `wish`: the typed options.
    """
    out = sys.stdout.buffer
    if len(parts) == 1 and wish.as_they_stand:
        since = None if wish.lines.tail is None else tail_mark(parts[0].path, wish.lines.tail)
        copy(parts[0], out.write, since=since, prefixed=False)
        out.flush()
        if not Path(parts[0].path).stat().st_size:
            say(f"attempt {number} of job {view.id}: nothing was written to {parts[0].path}")
        return
    with_times = _with_times(view, parts, wish)
    printer = printer_for(with_times, wish, prefixed=len(parts) > 1)
    size = block_bytes(len(with_times))
    merge([LogCursor(part, wish.lines, size) for part in with_times], printer.put)
    printer.end()
    out.flush()
    if not printer.wrote and wish.lines.tail != 0:
        asked = wish.in_time or wish.lines.pattern is not None
        say(
            f"job {view.id}: no line of its logs fits"
            if asked
            else f"attempt {number} of job {view.id}: nothing was written to these logs"
        )


def printer_for(parts: Sequence[LogPart], wish: LogOptions, *, prefixed: bool) -> Printer:
    """Return the printer for these logs. If they belong to several attempts, the prefix contains the attempt.

    `prefixed`: print the worker and the stream before each line.
    """
    several = len({part.attempt for part in parts}) > 1
    return Printer(
        sys.stdout.buffer.write,
        prefixed=prefixed,
        timestamps=wish.timestamps,
        as_json=wish.as_json,
        attempts=several,
    )


def _with_times(view: JobView, parts: Sequence[LogPart], wish: LogOptions) -> list[LogPart]:
    """Return the logs whose lines have times. Report the others, because their lines cannot be sorted."""
    written = [part for part in parts if _size(part.path)]
    without = [part for part in written if not has_times(part.path)]
    left = left_out(view, len(without), len(written), wish, several=len(parts) > 1)
    return [part for part in parts if part not in without] if left else [*parts]


def left_out(view: JobView, without: int, written: int, wish: LogOptions, *, several: bool) -> bool:
    """Return whether logs are left out, and report how many, because their lines have no times.

    Raise BadUsage if the user asks for a time span and no log has times.

    `without`: number of logs without times. `written`: number of logs that are not empty. `several`: the lines of
    several logs are sorted by time.
    """
    if not without or not (wish.in_time or wish.timestamps or several):
        return False
    why = "an earlier version of holdfast wrote them, or the disk took none"
    if without < written:
        what = "they are left out" if wish.in_time else "their lines come first"
        say(f"{without} of {written} logs of job {view.id} have no times ({why}): {what}")
        return wish.in_time
    if wish.in_time:
        raise BadUsage(
            f"--since, --until: the logs of job {view.id} have no times ({why})",
            hint=f"holdfast logs {view.id} --tail 9",
        )
    order = ": one log after the other" if several else ""
    say(f"the logs of job {view.id} have no times ({why}){order}")
    return False


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def follow_logs(home: Path, view: JobView, wish: LogOptions) -> None:
    """Print the lines that the logs have now, and later lines until the job ends.

    Unless the user typed an attempt, later attempts are printed too.
    """
    from holdfast.record.job_directory import logs_of
    from holdfast.record.owner_lock import LOCK_NAME
    from holdfast.record.state_directory import job_dir
    from holdfast.report.log_follow import LogWatch

    out = sys.stdout.buffer
    # A single stream of one rank needs no prefix, so that a progress bar can be printed while the program draws it.
    prefixed = wish.rank is None or len(wish.streams) > 1
    whole = prefixed or not wish.as_they_stand
    began = max(attempts_of(home, view.id), default=1) if wish.attempt is None else wish.attempt
    if wish.attempt is None and wish.in_time:
        began = 1
    sources: dict[Path, LogCursor] = {}
    lines = wish.lines
    printer = printer_for((), wish, prefixed=prefixed)

    def look() -> None:
        numbers = [n for n in attempts_of(home, view.id) if (n >= began if wish.attempt is None else n == wish.attempt)]
        for part in (part for number in numbers for part in parts_of(home, view.id, number)):
            path = Path(part.path)
            if path not in sources and part.stream in wish.streams and wish.rank in (None, part.rank):
                try:
                    sources[path] = LogCursor(part, lines, block_bytes(2 * (len(sources) + 1)))
                except FileNotFoundError:
                    pass  # the log is being rotated, so the next call finds the new file

    def directories() -> list[Path]:
        top, logs = job_dir(home, view.id), logs_of(home, view.id)
        attempts = [logs / f"attempt-{number}" for number in attempts_of(home, view.id)]
        return [top, logs, *attempts, *(worker for each in attempts for worker in each.glob("*-*"))]

    with LogWatch(job_dir(home, view.id) / LOCK_NAME) as watch:
        others: set[Path] = set()
        changed: set[Path] | None = set()
        while changed is not None:
            if not changed or not changed <= sources.keys() | others:
                # A directory may be created while another one is added, so repeat until no new directory is found.
                while sum(watch.add(directory) for directory in directories()):
                    pass
                look()
                # The reader begins at the start of each later log, so only the user's pattern filters its lines.
                lines = LogLineFilter(pattern=wish.lines.pattern)
                # Logs that the user did not select may also change. They need no new search of the directories.
                others = {path for path in changed if ".log" in path.suffixes} - sources.keys()
                changed = set(sources)
            merge([sources[path] for path in sources if path in changed], printer.put, whole_lines=whole)
            out.flush()
            changed = watch.wait()
        look()
        merge([*sources.values()], printer.put)
        printer.end()
        out.flush()
