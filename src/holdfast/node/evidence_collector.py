"""Collects the evidence about an ended attempt: logs, OOM kills, kernel lines, progress and error files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.act.worker_environment import read_error_file
from holdfast.model.evidence import AttemptEvidence, HangEvidence, LogExcerpt, MemoryKill, WorkerEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind
from holdfast.model.job_spec import JobSpec
from holdfast.node import rare_parts
from holdfast.observe.container_end import container_word
from holdfast.observe.memory_watch import MemoryWatch
from holdfast.observe.progress_reader import read_marks, read_progress
from holdfast.observe.step_counter import counts_in
from holdfast.record.local_time import local
from holdfast.safe_files import read_file

if TYPE_CHECKING:
    from holdfast.act.cgroups import ControlGroups
    from holdfast.launch.launch_spec import LaunchSpec
    from holdfast.observe.kernel_log import KernelLog
    from holdfast.observe.output_pump import OutputPump


#: The logs of at most this many workers are searched far back. Of other workers only the end of each log is read.
DEEP_WORKERS = 4
#: The logs of this many first ranks are searched for step and epoch counts. So are the logs of the last rank and of the
#: first ranks to die.
COUNTING_WORKERS = 2
PAI_FILES = 64
PAI_BYTES = 16 * 1024
#: A file's modification time may be this many seconds too early, because the file system uses the time of the kernel's
#: last tick.
FILE_CLOCK_S = 0.01


class Collector:
    """Reads the files of one job's workers. It never raises: if a file is unreadable, its facts are missing."""

    def __init__(
        self,
        launch: LaunchSpec,
        logs: Path,
        output: OutputPump,
        machine: MachineLog,
        store_trouble: Callable[[int], str],
    ) -> None:
        """Set up the collector.

        `logs`: the directory that contains the attempts' log directories. `output`: the workers' output. `machine`:
        finds OOM kills and kernel log lines. `store_trouble(attempt)`: returns why the workers' rendezvous store
        failed; "" if it worked.
        """
        self._logs = logs
        self._output = output
        self._machine = machine
        self._store_trouble = store_trouble
        self._error_files = error_files(launch.spec)
        self._container_status = launch.container_status

    def collect(self, known: AttemptEvidence, completed: bool, since: float) -> AttemptEvidence:
        """Return the owner's evidence `known` with this node's evidence added. A completed attempt must end fast, so
        its logs are not read.

        `since`: the attempt's start; older files are ignored.
        """
        attempt = self._logs / f"attempt-{known.attempt}"
        first = first_to_die(known.workers)
        workers = tuple(
            self._worker(worker, attempt, read_logs=not completed, deep=worker.rank in first, share=len(first))
            for worker in known.workers
        )
        if not completed:
            workers = _with_counts(workers, first)
        evidence = replace(known, workers=workers, dropped_bytes=self._output.take_dropped_bytes())
        if completed:
            return evidence
        evidence = replace(evidence, utc_offset_s=local(since))
        if known.hang is not None and known.hang.looks:
            evidence = replace(evidence, hang=_told_at_last(known.hang, workers))
        return replace(
            evidence,
            memory_kills=self._machine.memory_kills(evidence, since),
            kernel=self._machine.lines(evidence, since),
            pai_errors=tuple(pai_errors(self._logs, known.attempt, since)),
            container=known.container or self._message_of_engine(since),
            store=self._store_trouble(known.attempt),
        )

    def _message_of_engine(self, since: float) -> str:
        return "" if self._container_status is None else container_word(self._container_status, since)

    def _worker(
        self, worker: WorkerEvidence, attempt: Path, *, read_logs: bool, deep: bool, share: int
    ) -> WorkerEvidence:
        directory = attempt / f"{worker.role}-{worker.rank}"
        progress, (first, saved) = read_progress(directory / "progress"), read_marks(directory / "progress")
        worker = replace(
            worker,
            first_output_at=self._output.first_output_at(worker.rank),
            last_output_at=self._output.last_output_at(worker.rank),
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
        """Add a failed worker's error file, and the whole end of its output. The owner has only an excerpt of that
        output.
        """
        ended = worker.exit
        if ended is None or ended.ok:
            return worker
        said, stream = self._output.last_words(worker.rank)
        if said:
            ended = replace(ended, last_words=said, last_words_stream=stream)
        path = self._error_files.get(worker.role, directory / "error.json")
        return replace(worker, exit=replace(ended, error_file=read_error_file(path)))


def error_files(spec: JobSpec) -> dict[str, Path]:
    """Return role → path of the error file, for the roles whose environment sets TORCHELASTIC_ERROR_FILE."""
    named = {role.name: role.env.get("TORCHELASTIC_ERROR_FILE", "") for role in spec.roles}
    return {role: Path(path) for role, path in named.items() if path}


def _with_counts(workers: Sequence[WorkerEvidence], first: set[int]) -> tuple[WorkerEvidence, ...]:
    """Add the printed step counts of the first ranks, the last rank and the ranks in `first`. Usually the first or the
    last rank prints them.
    """
    ends = {worker.rank for worker in (*workers[:COUNTING_WORKERS], *workers[-1:])} | first
    return tuple(
        replace(worker, counts=counts_in(*(log.text for log in (worker.stdout, worker.stderr) if log is not None)))
        if worker.rank in ends
        else worker
        for worker in workers
    )


def _told_at_last(hang: HangEvidence, workers: Sequence[WorkerEvidence]) -> HangEvidence:
    """Add the stacks that hung workers printed on SIGABRT, if no sample of the hang has stacks."""
    if any(thread.frames for look in hang.looks for shot in look for thread in shot.threads):
        return hang
    # Use only workers that SIGABRT ended. Another worker may have printed its stack long before.
    said = {
        worker.rank: worker.stderr.text
        for worker in workers
        if worker.stderr is not None and worker.exit is not None and worker.exit.signal == signal.SIGABRT
    }
    # The ranks did not move between the samples, so these stacks are valid for all samples.
    looks = [rare_parts.python_stacks.with_last_words(look, said) for look in hang.looks]
    if looks == list(hang.looks):
        return hang
    exits = [worker.exit for worker in workers if worker.exit is not None]
    began = min((ended.started_at for ended in exits if ended.started_at is not None), default=0.0)
    return rare_parts.hang_judgement.with_stacks(
        hang, looks, began, [ended.rank for ended in exits if ended.ok and not ended.after_stop]
    )


def first_to_die(workers: Sequence[WorkerEvidence]) -> set[int]:
    """Return the ranks whose logs are searched far back for the cause: the first to die, and those that still hang."""

    def when(worker: WorkerEvidence) -> tuple[float, int]:
        ended = worker.exit
        return (0.0, 0) if ended is None else (ended.ended_at or 0.0, ended.order)

    failed = [worker for worker in workers if worker.exit is None or not worker.exit.ok]
    return {worker.rank for worker in sorted(failed or workers, key=when)[:DEEP_WORKERS]}


def _excerpt(path: Path, source: str, worker: WorkerEvidence, share: int) -> LogExcerpt | None:
    """Return the excerpt of a worker's log file, or the end of its output in memory if the file is missing or empty.

    `source`: the name of the worker and the stream. `share`: how many workers' logs (two files each) share the limit on
    scanned bytes; 0: read only the end of the log.
    """
    try:
        if path.is_file() and path.stat().st_size:
            logs = rare_parts.explain_files
            return logs.excerpt(path, source, logs.LIVE_BYTES // (2 * share) if share else logs.MOST_TAIL_BYTES)
    except OSError:
        pass  # the file was never written, or the disk is unavailable: use the output in memory
    ended = worker.exit
    if ended is not None and ended.last_words and source.endswith(f" {ended.last_words_stream}"):
        return LogExcerpt(source=source, text=ended.last_words)
    return None


def pai_errors(directory: Path, attempt: int, since: float) -> Iterator[Evidence]:
    """Yield the lines of this attempt's `*.pai.error` files (OpenPAI's runtime exit spec), up to a limit.

    The files are in the attempt's own directory. Files outside that directory count if they were written since the
    attempt began.
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
    """Yield the `*.pai.error` files in the directory above the attempts' log directories, and in its other
    subdirectories.
    """
    try:
        # Read only the names, because a job with a thousand attempts has a thousand directories.
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


class MachineLog:
    """The OOM kills and kernel log lines of one node. Each entry names the node, because processes of two nodes may
    have equal pids.

    `node`: this node's name. `groups`: the job's control groups. `kernel`: the kernel log.
    """

    def __init__(self, node: str, groups: ControlGroups, kernel: KernelLog) -> None:
        self._node = node
        self._groups = groups
        self._kernel = kernel
        self._memory: MemoryWatch | None = None

    def begin(self) -> None:
        """Store the present OOM kill counters, before an attempt starts."""
        self._memory = MemoryWatch(self._groups.container, self._kernel)

    def memory_kills(self, evidence: AttemptEvidence, since: float) -> tuple[MemoryKill, ...]:
        """Return the OOM kills of the attempt's workers since `since`, and remove the attempt's control groups.

        If an earlier agent prepared the attempt, return none, because this agent has no counters from the attempt's
        start.
        """
        groups = self._groups.memory_groups(evidence.attempt)
        kills = () if self._memory is None else self._memory.kills(_pids_of(evidence), since, groups)
        self._groups.remove()
        return tuple(replace(kill, node=self._node) for kill in kills)

    def lines(self, evidence: AttemptEvidence, since: float) -> tuple[Evidence, ...]:
        """Return the kernel log's lines since `since` about a worker's process or a device."""
        pids = frozenset(pid for known in _pids_of(evidence).values() for pid in known)
        lines = self._kernel.lines(since, pids=pids)
        return tuple(replace(line, node=self._node) for line in lines)


def _pids_of(evidence: AttemptEvidence) -> dict[int, frozenset[int]]:
    return {
        worker.rank: frozenset({worker.exit.pid})
        for worker in evidence.workers
        if worker.exit is not None and worker.exit.pid is not None
    }
