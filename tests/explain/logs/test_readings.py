"""What a node tells of its workers: small for any words, and enough for the same report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import T
from holdfast.explain import explain, read_workers
from holdfast.explain.logs import log_reader
from holdfast.model.codec import decode_event, encode
from holdfast.model.events import EvidenceCollected
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import ExitReport, WorkerExit
from holdfast.model.worker_reading import READING_BYTES, WORKER_BYTES, Clue, QuotedLine, Weight, WorkerReading
from places import DATA

OOM_OF_1_GPU = (
    'Traceback (most recent call last):\n  File "/srv/train.py", line 88, in main\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB\n"
)


def worker_with(text: str, rank: int = 0, **how: Any) -> WorkerEvidence:
    fields: dict[str, Any] = {"exit_code": 1, "pid": 100 + rank, "ended_at": T + rank, "order": rank} | how
    ended = WorkerExit(role="worker", rank=rank, node="a", attempt=1, last_words=text[-8192:], **fields)
    return WorkerEvidence(rank=rank, node="a", exit=ended, stderr=LogExcerpt(source=f"worker-{rank} stderr", text=text))


def told_by_the_node(evidence: AttemptEvidence) -> AttemptEvidence:
    """As the owner gets it."""
    event = decode_event(encode(EvidenceCollected(attempt=1, evidence=read_workers(evidence))))
    assert isinstance(event, EvidenceCollected)
    assert all(each.reading is not None and not each.reading.bug for each in event.evidence.workers)
    return event.evidence


def of_exam(texts: list[str], code: int | None, signal: int | None) -> AttemptEvidence:
    """As a run has it: each text is one rank's, and all ranks have ended."""
    ends: dict[str, Any] = {
        "exit_code": None if signal is not None else (code if code is not None else 1),
        "signal": signal,
    }
    return AttemptEvidence(workers=tuple(worker_with(text, rank, **ends) for rank, text in enumerate(texts)))


@pytest.mark.parametrize("name", ["explain_exam", "explain_exam2", "explain_jobs"])
def test_the_report_from_readings_is_the_one_from_logs(name: str) -> None:
    for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        evidence = of_exam(record.get("files") or [record["text"]], record.get("exit_code"), record.get("signal"))
        assert explain(told_by_the_node(evidence)) == explain(evidence), record["id"]


_LINES = [
    *OOM_OF_1_GPU.splitlines(),
    "[rank" + "9" * 40 + "]: RuntimeError: Connection closed by rank " + "8" * 30,
    "[rank7]: step 1 loss 2.0",
    "srun: error: node7: task 3: Segmentation fault",
    " exitcode  : -99999999999999999999 (pid: 88888888888888888888)",
    "terminate called after throwing an instance of '" + "x" * 9000 + "'",
    "CUDA out of memory. Tried to allocate " + "\\" * 30_000,
    "RuntimeError: " + "\U0001f600" * 9000,
    "KeyError: " + '"' * 30_000,
    "Connection refused " + "\x00\x7f\u2028" * 3000,
]
_HOSTILE = st.lists(
    # By their numbers: what Hypothesis prints of a strategy must not be as long as these lines.
    st.one_of(st.text(max_size=300), st.integers(0, len(_LINES) - 1).map(_LINES.__getitem__)),
    max_size=60,
)


@given(_HOSTILE, st.integers(1, 20), st.sampled_from([None, 6, 9, 11]))
@example(_LINES, 4, 6)
@settings(max_examples=25)
def test_a_worker_costs_sixteen_kilobytes_whatever_it_wrote(lines: list[str], times: int, signal: int | None) -> None:
    text = "\n".join(lines * times)[-100_000:]
    one = worker_with(text, exit_code=None if signal else 1, signal=signal)
    assert one.exit is not None
    one = replace(one, exit=replace(one.exit, error_file=text[:65536]), stdout=one.stderr)
    [told] = told_by_the_node(AttemptEvidence(workers=(one,))).workers
    assert len(encode(told.reading)) <= READING_BYTES
    assert len(encode(told)) <= WORKER_BYTES
    assert not told.stderr and not told.stdout


@pytest.mark.parametrize("digits", [10, 19, 5000])
def test_numbers_without_end_are_no_ranks(digits: int) -> None:
    many = "9" * digits
    text = f"[rank{many}]: Traceback (most recent call last):\n[rank{many}]: KeyError: 1\nlost rank {many}\n"
    text += f"<Rank {many}> x\n exitcode  : {many} (pid: {many})\nProcess {many} terminated with exit code {many}\n"
    text += f"Connection closed by rank {many}\nsrun: error: a: task {many}: Killed\n"
    report = explain(told_by_the_node(AttemptEvidence(workers=(worker_with(text),))))
    assert "bug of holdfast" not in (report.hint or "")


def test_a_bug_in_reading_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> ExitReport:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(log_reader, "blamed_ranks", breaks)
    evidence = read_workers(AttemptEvidence(workers=(worker_with(OOM_OF_1_GPU),)))
    report = explain(evidence)
    assert report.phrase == "Unexplained"
    assert report.hint == "bug of holdfast: ZeroDivisionError: of all things"
    assert report.original.exit_code == 1


def test_evidence_of_an_older_journal_has_logs_and_is_explained_the_same() -> None:
    evidence = AttemptEvidence(workers=(worker_with(OOM_OF_1_GPU),))
    old = encode(EvidenceCollected(attempt=1, evidence=evidence)).replace(b',"reading":null', b"")
    event = decode_event(old)
    assert isinstance(event, EvidenceCollected)
    assert explain(event.evidence) == explain(evidence)
    assert explain(event.evidence).phrase == "AcceleratorOutOfMemory"


def test_the_owner_believes_what_a_node_has_read_of_every_worker() -> None:
    """However many: a node has bounded its own part, and no log is there to look into."""
    line = QuotedLine(text="KeyError: 'lr'", number=4, source="worker-40 stderr")
    clue = Clue(weight=Weight.OWN, phrase="UserException", line=line)
    peers = WorkerReading(of_peers=True)
    workers = [replace(worker_with("", rank, ended_at=T), stderr=None, reading=peers) for rank in range(60)]
    workers[40] = replace(workers[40], reading=WorkerReading(clues=(clue,), first_hand=True))
    report = explain(AttemptEvidence(workers=tuple(workers)))
    assert report.first is not None and report.first.rank == 40
    assert "KeyError: 'lr'" in report.reason
