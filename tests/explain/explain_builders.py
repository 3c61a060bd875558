"""Values and reports that several tests of explaining start from."""

from __future__ import annotations

from builders import of_log
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport


def of_files(*files: tuple[str, str]) -> ExitReport:
    """The report on files (name, text): one a rank, in their order."""
    logs = [LogExcerpt(source=name, text=text) for name, text in files]
    return explain(AttemptEvidence(workers=tuple(WorkerEvidence(rank=i, log=log) for i, log in enumerate(logs))))


def of_texts(*texts: str) -> ExitReport:
    return of_files(*((f"f{number}.log", text) for number, text in enumerate(texts)))


def of_one_log(text: str) -> ExitReport:
    """The report on a log of which nobody says whose it is."""
    return explain(of_log(text))
