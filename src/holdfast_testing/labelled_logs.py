"""Logs whose cause is known: the cases of the explainers' benchmark, the tests' records, the catalogue's samples.

This module turns each log into the evidence that `holdfast explain` would collect. The logs are in the repository, not
in the wheel.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.catalogue.exit_rows import read_rows
from holdfast.explain.logs.row_matcher import built_in
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from holdfast.node.explain_files import read_log

CHECKOUT = Path(__file__).parents[2]
#: The time of the last write to each case's logs, in seconds since the epoch. It is fixed, so that results never
#: change.
WRITTEN_AT = 1_780_000_000.0


def cases() -> Iterator[tuple[str, AttemptEvidence]]:
    """Yield the cases of `benchmarks/explain/cases` with their ids, in order."""
    for path in sorted((CHECKOUT / "benchmarks" / "explain" / "cases").glob("*.json")):
        yield path.stem, evidence_of_case(json.loads(path.read_text(encoding="utf-8")))


def records() -> Iterator[tuple[str, AttemptEvidence]]:
    """Yield the records of `tests/data/explain_*.jsonl` with file and id, in order."""
    for path in sorted((CHECKOUT / "tests" / "data").glob("explain_*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            yield f"{path.stem}/{record['id']}", evidence_of_record(record)


def samples() -> Iterator[tuple[str, AttemptEvidence]]:
    """Yield the samples of the catalogue's patterns, named CLASS/WORDING/SAMPLE. Both numbers count from 1."""
    for row in read_rows():
        for number, wording in enumerate(row.wordings, 1):
            for index, text in enumerate(wording.samples, 1):
                excerpt = LogExcerpt(source="sample", text=text)
                yield f"{row.phrase}/{number}/{index}", AttemptEvidence(workers=(WorkerEvidence(log=excerpt),))


def evidence_of_case(case: dict[str, Any]) -> AttemptEvidence:
    """Return the evidence of `holdfast explain rank-*.log launcher.log dmesg`.

    `benchmarks/explain/README.md` describes the keys of `case`.
    """
    texts: dict[int, str] = defaultdict(str)
    for log in case["logs"]:
        texts[log["rank"]] += log["text"]
    exits = {each["rank"]: _exit(each) for each in case["exits"]}
    ranks = sorted({*texts, *exits})
    workers = [
        WorkerEvidence(rank=rank, log=_excerpt(f"rank-{rank}.log", texts[rank]), exit=exits.get(rank)) for rank in ranks
    ]
    if case["launcher"]:
        workers.append(WorkerEvidence(rank=len(ranks), log=_excerpt("launcher.log", case["launcher"])))
    if case["kernel"]:
        workers.append(WorkerEvidence(rank=len(ranks) + 1, log=_excerpt("dmesg", "\n".join(case["kernel"]))))
    return AttemptEvidence(workers=tuple(workers))


def evidence_of_record(record: dict[str, Any]) -> AttemptEvidence:
    """Return the evidence of `holdfast explain FILE… --exit-code N`.

    Each of the record's `files` is the log of a rank; `text` is the log of the whole job.
    """
    texts = record.get("files") or [record["text"]]
    code, signal = record.get("exit_code"), record.get("signal")
    ended = None
    if code is not None or signal is not None:
        ended = WorkerExit(role="worker", rank=0, node="", attempt=1, exit_code=code, signal=signal)
    workers = tuple(
        WorkerEvidence(rank=rank, log=LogExcerpt(source=f"{rank}.log", text=text), exit=ended if rank == 0 else None)
        for rank, text in enumerate(texts)
    )
    return AttemptEvidence(workers=workers)


def _exit(each: dict[str, Any]) -> WorkerExit:
    return WorkerExit(
        role="worker",
        rank=each["rank"],
        node="",
        attempt=1,
        exit_code=each["code"],
        signal=each["signal"],
        after_stop=bool(each.get("by_launcher")),
    )


def _excerpt(source: str, text: str) -> LogExcerpt:
    """Return the excerpt that `holdfast explain` keeps of a log.

    `WRITTEN_AT` supplies the year of a time stamp without a year; a time stamp without a zone is in UTC.
    """
    read = read_log("-", built_in(), io.BytesIO(text.encode()))
    return replace(read, source=source, written_at=WRITTEN_AT, utc_offset_s=0)
