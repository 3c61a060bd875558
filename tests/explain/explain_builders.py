"""Values and reports that several tests of explaining start from."""

from __future__ import annotations

from collections.abc import Sequence

from builders import T, of_log
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit


def of_files(*files: tuple[str, str]) -> ExitReport:
    """The report on files (name, text): one a rank, in their order."""
    logs = [LogExcerpt(source=name, text=text) for name, text in files]
    return explain(AttemptEvidence(workers=tuple(WorkerEvidence(rank=i, log=log) for i, log in enumerate(logs))))


def of_texts(*texts: str) -> ExitReport:
    return of_files(*((f"f{number}.log", text) for number, text in enumerate(texts)))


def of_one_log(text: str) -> ExitReport:
    """The report on a log of which nobody says whose it is."""
    return explain(of_log(text))


def trace(line: str, frame: str = "/app/train.py") -> str:
    return f'Traceback (most recent call last):\n  File "{frame}", line 12, in main\n    step()\n{line}\n'


def dead(
    rank: int, words: str = "", *, code: int | None = 1, signal: int | None = None, at: float = 0.0, order: int = 0,
    after_stop: bool = False, node: str = "",
) -> WorkerEvidence:  # fmt: skip
    if signal is not None:
        code = None
    node = node or f"node{rank}"
    ended = WorkerExit(
        role="worker", rank=rank, node=node, attempt=1, pid=1000 + rank, exit_code=code, signal=signal,
        started_at=T - 100, ended_at=T + at, order=order, after_stop=after_stop, last_words=words,
    )  # fmt: skip
    stderr = LogExcerpt(source=f"worker-{rank} stderr", text=words)
    return WorkerEvidence(rank=rank, node=node, exit=ended, stderr=stderr)


def seen(*workers: WorkerEvidence, **more: object) -> AttemptEvidence:
    return AttemptEvidence(workers=workers, job="j1", **more)  # type: ignore[arg-type] # fields by name


def ended_rank(rank: int, code: int = 1, at: float = 100.0, *, stopped: bool = False, said: str = "") -> WorkerEvidence:
    return WorkerEvidence(
        rank=rank,
        node="n0",
        exit=WorkerExit(
            role="worker", rank=rank, node="n0", attempt=1, pid=100 + rank, ended_at=at, order=rank + 1,
            exit_code=None if stopped else code, signal=15 if stopped else None, after_stop=stopped,
        ),
        stderr=LogExcerpt(source=f"worker-{rank} stderr", text=said) if said else None,
    )  # fmt: skip


def report_of_workers(workers: Sequence[WorkerEvidence], stop_asked_at: float = 100.5) -> ExitReport:
    return explain(AttemptEvidence(workers=tuple(workers), stop_asked_at=stop_asked_at, job="j"))
