"""Collects the evidence about a drained attempt: logs, memory kills, kernel lines, progress, error files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.evidence import AttemptEvidence, HangEvidence, LogExcerpt, MemoryKill, WorkerEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind
from holdfast.model.job_spec import JobSpec
from holdfast.observe.progress_reader import read_marks, read_progress
from holdfast.record.local_time import local
from holdfast.safe_files import read_file

#: The logs of so many workers are searched far before their end; of the others only the end is read.
DEEP_WORKERS = 4
#: So many of the first ranks are searched for steps and epochs, besides the last rank and those that died first.
COUNTING_WORKERS = 2
PAI_FILES = 64
PAI_BYTES = 16 * 1024
#: A file system may date a write this much too early: it uses the time of the kernel's last tick.
FILE_CLOCK_S = 0.01


class Collector:
    """Reads the files of one job's workers. Raises nothing: a file that cannot be read leaves its facts unknown."""

    def __init__(
        self,
        logs: Path,
        *,
        first_output_at: Callable[[int], float | None] = lambda rank: None,
        last_output_at: Callable[[int], float | None],
        memory_kills: Callable[[AttemptEvidence], tuple[MemoryKill, ...]],
        kernel_lines: Callable[[AttemptEvidence], tuple[Evidence, ...]],
        store_trouble: Callable[[int], str],
        last_words: Callable[[int], tuple[str, str]],
        error_files: Mapping[str, Path],
        container_word: Callable[[float], str] = lambda since: "",
        dropped_bytes: Callable[[], dict[str, int]] = dict,
    ) -> None:
        """`last_words`: of a rank and a stream. `error_files`: by role, where the file is not in a directory here."""
        self._logs = logs
        self._first_output_at = first_output_at
        self._last_output_at = last_output_at
        self._memory_kills = memory_kills
        self._kernel_lines = kernel_lines
        self._store_trouble = store_trouble
        self._last_words = last_words
        self._error_files = error_files
        self._container_word = container_word
        self._dropped_bytes = dropped_bytes

    def collect(self, known: AttemptEvidence, completed: bool, since: float) -> AttemptEvidence:
        """Add to what the gang knows. A completed attempt needs no logs: its end is quick.

        `since`: when the attempt began. A file of an earlier attempt says nothing about this one.
        """
        attempt = self._logs / f"attempt-{known.attempt}"
        first = first_to_die(known.workers)
        workers = tuple(
            self._worker(worker, attempt, read_logs=not completed, deep=worker.rank in first, share=len(first))
            for worker in known.workers
        )
        if not completed:
            workers = _with_counts(workers, first)
        evidence = replace(known, workers=workers, dropped_bytes=self._dropped_bytes())
        if completed:
            return evidence
        evidence = replace(evidence, utc_offset_s=local(since))
        if known.hang is not None and known.hang.looks:
            evidence = replace(evidence, hang=_told_at_last(known.hang, workers))
        return replace(
            evidence,
            memory_kills=self._memory_kills(evidence),
            kernel=self._kernel_lines(evidence),
            pai_errors=tuple(pai_errors(self._logs, known.attempt, since)),
            container=known.container or self._container_word(since),
            store=self._store_trouble(known.attempt),
        )

    def _worker(
        self, worker: WorkerEvidence, attempt: Path, *, read_logs: bool, deep: bool, share: int
    ) -> WorkerEvidence:
        directory = attempt / f"{worker.role}-{worker.rank}"
        progress, (first, saved) = read_progress(directory / "progress"), read_marks(directory / "progress")
        worker = replace(
            worker,
            first_output_at=self._first_output_at(worker.rank),
            last_output_at=self._last_output_at(worker.rank),
            last_step=progress[0] if progress else None,
            first_step=first,
            saved_step=saved,
        )
        if not read_logs:
            return worker
        worker = self._with_words(worker, directory)
        name = f"{worker.role}-{worker.rank}"
        return replace(
            worker,
            stderr=_excerpt(directory / "stderr.log", f"{name} stderr", worker, share if deep else 0),
            stdout=_excerpt(directory / "stdout.log", f"{name} stdout", worker, share if deep else 0),
        )

    def _with_words(self, worker: WorkerEvidence, directory: Path) -> WorkerEvidence:
        """The exit with the whole end of its log, as this node has it: only an excerpt has travelled to the owner."""
        ended = worker.exit
        if ended is None or ended.ok:
            return worker
        from holdfast.act.worker_environment import read_error_file

        said, stream = self._last_words(worker.rank)
        if said:
            ended = replace(ended, last_words=said, last_words_stream=stream)
        path = self._error_files.get(worker.role, directory / "error.json")
        return replace(worker, exit=replace(ended, error_file=read_error_file(path)))


def error_files(spec: JobSpec) -> dict[str, Path]:
    """By role: where its workers write their error file, if the role's own environment sets it."""
    named = {role.name: role.env.get("TORCHELASTIC_ERROR_FILE", "") for role in spec.roles}
    return {role: Path(path) for role, path in named.items() if path}


def _with_counts(workers: Sequence[WorkerEvidence], first: set[int]) -> tuple[WorkerEvidence, ...]:
    """The progress of a bounded number of workers: mostly the first or the last rank prints it."""
    from holdfast.observe.step_counter import counts_in  # a run without a death never imports it

    ends = {worker.rank for worker in (*workers[:COUNTING_WORKERS], *workers[-1:])} | first
    return tuple(
        replace(worker, counts=counts_in(*(log.text for log in (worker.stdout, worker.stderr) if log is not None)))
        if worker.rank in ends
        else worker
        for worker in workers
    )


def _told_at_last(hang: HangEvidence, workers: Sequence[WorkerEvidence]) -> HangEvidence:
    """A hang of which no look has a stack, with the stacks that the workers wrote when they were stopped."""
    if any(thread.frames for look in hang.looks for shot in look for thread in shot.threads):
        return hang
    from holdfast.explain.hang_judgement import with_stacks
    from holdfast.observe.python_stacks import with_last_words

    # A worker that did not exit because of our signal may have written a stack long before.
    said = {
        worker.rank: worker.stderr.text
        for worker in workers
        if worker.stderr is not None and worker.exit is not None and worker.exit.signal == signal.SIGABRT
    }
    # Nothing has changed between the looks, so the stacks at the end were true at each of them.
    looks = [with_last_words(look, said) for look in hang.looks]
    if looks == list(hang.looks):
        return hang
    exits = [worker.exit for worker in workers if worker.exit is not None]
    began = min((ended.started_at for ended in exits if ended.started_at is not None), default=0.0)
    return with_stacks(hang, looks, began, [ended.rank for ended in exits if ended.ok and not ended.after_stop])


def first_to_die(workers: Sequence[WorkerEvidence]) -> set[int]:
    """Ranks whose logs are searched far back: the cause is with those that died first, or still hang."""

    def when(worker: WorkerEvidence) -> tuple[float, int]:
        ended = worker.exit
        return (0.0, 0) if ended is None else (ended.ended_at or 0.0, ended.order)

    failed = [worker for worker in workers if worker.exit is None or not worker.exit.ok]
    return {worker.rank for worker in sorted(failed or workers, key=when)[:DEEP_WORKERS]}


def _excerpt(path: Path, source: str, worker: WorkerEvidence, share: int) -> LogExcerpt | None:
    """The file's excerpt; where the disk kept nothing, the end of that stream as memory has it.

    `share`: how many workers, with two files each, share the time for searching far back; 0: the end only.
    """
    from holdfast.node.explain_files import (  # imports the matcher, which no run needs before a death
        LIVE_BYTES,
        MOST_TAIL_BYTES,
        excerpt,
    )

    try:
        if path.is_file() and path.stat().st_size:
            return excerpt(path, source, LIVE_BYTES // (2 * share) if share else MOST_TAIL_BYTES)
    except OSError:
        pass  # the file was never written, or the disk is gone: only memory has it
    ended = worker.exit
    if ended is not None and ended.last_words and source.endswith(f" {ended.last_words_stream}"):
        return LogExcerpt(source=source, text=ended.last_words)
    return None


def pai_errors(directory: Path, attempt: int, since: float) -> Iterator[Evidence]:
    """The lines of this attempt's `*.pai.error` files (OpenPAI's runtime exit spec), bounded.

    They lie in the attempt's own directory, or beside the attempts' directories and were written to since it began.
    """
    found = [*(directory / f"attempt-{attempt}").rglob("*.pai.error"), *_beside(directory)]
    for path in sorted(path for path in found if _written_since(path, since))[:PAI_FILES]:
        try:
            text = read_file(path, PAI_BYTES, cut=True).decode(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            if line.strip():
                yield Evidence(kind=EvidenceKind.LOG, text=line, source=path.name.removesuffix(".pai.error"))


def _beside(directory: Path) -> Iterator[Path]:
    """The `*.pai.error` files beside the attempts' directories, and those in other directories there."""
    try:
        # A job of a thousand attempts has a thousand directories here: this reads only their names.
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return
    for name in [name for name in names if not name.startswith("attempt-") or name.endswith(".pai.error")]:
        if name.endswith(".pai.error"):
            yield directory / name
        elif (directory / name).is_dir():
            yield from (directory / name).rglob("*.pai.error")


def _written_since(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since - FILE_CLOCK_S
    except OSError:
        return False
