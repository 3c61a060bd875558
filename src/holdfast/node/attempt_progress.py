"""Computes the progress of a running attempt from its ranks' files on this machine: the step, the steps per second, and
the time of the last output.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun
from holdfast.model.progress_facts import Count
from holdfast.observe.progress_reader import read_began, read_marks, read_progress
from holdfast.observe.step_counter import counts_in, counts_of_lines
from holdfast.record.job_directory import logs_of
from holdfast.record.job_views import JobState, JobView
from holdfast.record.local_time import ago
from holdfast.record.timed_logs import Span, read_on, timed_pieces

#: At most this many ranks' files are read.
MOST_RANKS = 4096
#: This many bytes at the end of a worker's log are searched for step counts.
_TAIL_BYTES = 64 << 10
#: This many characters at the end of a progress bar are searched for its steps per second.
_BAR_CHARS = 400
#: Matches the speed that tqdm's progress bars print: `3.05it/s`, or `1.20s/it` below one step per second.
_BARS_PACE = Lazy(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>it/s|s/it)")
_STREAMS = ("stdout.log", "stderr.log")


class AttemptProgress(Noun, frozen=True, kw_only=True):
    """The progress of a running attempt. None means unknown."""

    attempt: int
    #: The lowest step that a rank reported with `holdfast.progress`. Without such reports, the last step in the output
    #: of the first rank that prints steps.
    step: int | None = None
    #: The total number of steps, or the number of steps in this epoch.
    total: int | None = None
    epoch: float | None = None
    steps_per_s: float | None = None
    #: The time of the last output of any rank, in seconds since the epoch.
    last_output: float | None = None

    def words(self, now: float, *, briefly: bool = False) -> str:
        """Format the known values: `epoch 2 · step 1200 of 5000 · 3.1 steps/s · last output 5 s ago`; if `briefly`,
        `epoch 2 · step 1200 of 5000 · 3.1/s · 5 s ago`.
        """
        parts = [] if self.epoch is None else [f"epoch {self.epoch:g}"]
        if self.step is not None:
            parts.append(f"step {self.step}" + ("" if self.total is None else f" of {self.total}"))
        if self.steps_per_s:
            fast = f"{self.steps_per_s:.3g}{'' if briefly else ' steps'}/s"
            parts.append(fast if self.steps_per_s >= 1 else f"{1 / self.steps_per_s:.3g} s/step")
        if self.last_output is None:
            return " · ".join([*parts, "no output yet"])
        age_s = max(now - self.last_output, 0.0)
        age = f"{int(age_s)} s ago" if age_s < 60 else ago(self.last_output, now)
        return " · ".join([*parts, age if briefly and parts else f"last output {age}"])


def progress_of(home: Path, view: JobView) -> AttemptProgress | None:
    """Return the progress of the running attempt; None if no attempt runs on this machine."""
    if view.state is not JobState.RUNNING:
        return None
    logs = logs_of(home, view.id)
    attempt = max(_numbers(logs), default=0)
    if attempt <= view.attempts:
        return None  # the last attempt has ended, and the next one has not begun
    folder = logs / f"attempt-{attempt}"
    steps, heard = signs_of(folder)
    last_output = max(heard, default=None)
    if steps:
        step, rank = min((step, at, rank) for rank, (step, at) in steps.items())[::2]
        return AttemptProgress(attempt=attempt, step=step, steps_per_s=_reported_pace(rank), last_output=last_output)
    found = AttemptProgress(attempt=attempt, last_output=last_output)
    return next(_in_output(folder, found), found)


def signs_of(attempt: Path) -> tuple[dict[Path, tuple[int, float]], list[float]]:
    """Return rank directory → (last step, time of that step) for each rank on this machine. Also return the
    modification times of the log files that are not empty.
    """
    steps: dict[Path, tuple[int, float]] = {}
    heard: list[float] = []
    for folder in _ranks(attempt):
        if (told := read_progress(folder / "progress")) is not None:
            steps[folder] = told
        for name in _STREAMS:
            try:
                found = (folder / name).stat()
            except OSError:
                continue  # the log file does not exist yet
            if found.st_size:
                heard.append(found.st_mtime)
    return steps, heard


def last_outputs(attempt: Path) -> dict[int, float]:
    """Return rank → time of its last output, for each rank on this machine that has written any."""
    heard: dict[int, float] = {}
    for folder in _ranks(attempt):
        rank = folder.name.rpartition("-")[2]
        for name in _STREAMS if rank.isascii() and rank.isdecimal() else ():
            with contextlib.suppress(OSError):  # the log file does not exist yet
                found = (folder / name).stat()
                if found.st_size:
                    heard[int(rank)] = max(heard.get(int(rank), 0.0), found.st_mtime)
    return heard


def printed_steps(attempt: Path) -> list[tuple[float, float]]:
    """Return (time, step) for each step that the first rank that prints steps has printed lately, oldest first."""
    for spans in _outputs(attempt):
        if found := _counted(spans):
            return [(at, count.value) for at, count in _steps_of(spans, found[0]) if count.name != "epoch"]
    return []


def _ranks(attempt: Path) -> list[Path]:
    try:
        with os.scandir(attempt) as entries:
            return [Path(entry.path) for entry, _ in zip(entries, range(MOST_RANKS), strict=False)]
    except OSError:
        return []


def _numbers(logs: Path) -> Iterator[int]:
    try:
        with os.scandir(logs) as entries:
            for entry in entries:
                name, _, number = entry.name.rpartition("-")
                if name == "attempt" and number.isascii() and number.isdecimal():
                    yield int(number)
    except OSError:
        return


def _reported_pace(rank: Path) -> float | None:
    """Return a rank's steps per second between its first and its last progress report; None if it made only one
    report.
    """
    told, began = read_progress(rank / "progress"), read_began(rank / "progress")
    first, _ = read_marks(rank / "progress")
    if told is None or began is None or first is None or told[0] <= first or told[1] <= began:
        return None
    return (told[0] - first) / (told[1] - began)


def _in_output(attempt: Path, known: AttemptProgress) -> Iterator[AttemptProgress]:
    """Yield the progress in the output of the first rank that prints step counts. `known`: the attempt, and the time of
    its last output.
    """

    for spans in _outputs(attempt):
        if found := _counted(spans):
            count, epoch = found
            total = count.name.rpartition(" of ")[2]
            is_epoch = count.name == "epoch"
            yield AttemptProgress(
                attempt=known.attempt,
                step=None if is_epoch else int(count.value),
                total=int(total) if total.isdecimal() else None,
                epoch=count.value if is_epoch else epoch,
                steps_per_s=None if is_epoch else _printed_pace(spans, count),
                last_output=known.last_output,
            )


def _outputs(attempt: Path) -> Iterator[list[Span]]:
    """Yield the last lines of each log, in the order of the ranks."""

    def number(folder: Path) -> int:
        rank = folder.name.rpartition("-")[2]
        return int(rank) if rank.isascii() and rank.isdecimal() else MOST_RANKS

    for folder in sorted(_ranks(attempt), key=number):
        for name in _STREAMS:
            with contextlib.suppress(OSError):  # the log file does not exist yet
                yield _end_of(folder / name)


def _end_of(path: Path) -> list[Span]:
    """Return the last lines of a log with their times. Raises OSError if there is no log file."""
    with timed_pieces(path) as found:
        inode, file, _ = found[-1]
        begin = max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES)
    return read_on(path, (inode, begin), _TAIL_BYTES, whole_lines=False)[0]


def _counted(spans: Sequence[Span]) -> tuple[Count, float | None] | None:
    """Return the most informative count in the output, and the epoch; a step is preferred to an epoch. Return None if
    no printed number rises.
    """
    counts = [count for count in counts_in("".join(map(_text, spans))) if not count.alone]
    if not counts:
        return None
    epoch = next((count.value for count in counts if count.name == "epoch"), None)
    best = min(counts, key=lambda count: (count.name == "epoch", " of " in count.name or count.name == "bar"))
    return best, best.epoch if epoch is None else epoch


def _printed_pace(spans: Sequence[Span], wanted: Count) -> float | None:
    """Return the steps per second between the first and the last printed value of the count `wanted` in `spans`.
    Without them return the speed that a progress bar printed; None if neither is known.
    """
    first: tuple[float, Count] | None = None
    last: tuple[float, Count] | None = None
    for at, count in _steps_of(spans, wanted):
        if first is None or last is None or count.value < last[1].value or count.epoch != last[1].epoch:
            first = (at, count)
        last = (at, count)
    if first is None or last is None or last[0] <= first[0] or last[1].value <= first[1].value:
        return _bars_pace(_text(spans[-1])[-_BAR_CHARS:]) if wanted.name.startswith(("bar", "batch")) else None
    return (last[1].value - first[1].value) / (last[0] - first[0])


def _steps_of(spans: Sequence[Span], wanted: Count) -> Iterator[tuple[float, Count]]:
    """Yield each value of the count `wanted` in the output, with the time of its line."""
    epoch: float | None = None
    for span in spans:
        for count in counts_of_lines(_text(span), epoch):
            epoch = count.value if count.name == "epoch" else epoch
            if count.name == wanted.name and span.at is not None:
                yield span.at, count


def _bars_pace(line: str) -> float | None:
    """Return the last speed in a progress bar's line, in steps per second; None if the line has none."""
    paces = [*_BARS_PACE.finditer(line)]
    number = float(paces[-1]["number"]) if paces else 0.0
    return (number if paces[-1]["unit"] == "it/s" else 1 / number) if number else None


def _text(span: Span) -> str:
    return span.data.decode("utf-8", "replace")
