"""Each report records the rule, the row, the wording and the line that decided it."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import T
from holdfast.catalogue.exit_rows import Catalogue, load
from holdfast.explain import explain, explanation_rules
from holdfast.explain.causes.diagnosis import MOST_TEXT
from holdfast.explain.causes.lost_owner import explain_lost_owner, explain_owner_absent, explain_owner_lost
from holdfast.explain.explanation_rules import BELIEFS, OTHER_RULES, SECOND_LOOKS
from holdfast.explain.funnel import explain as through_the_funnel
from holdfast.explain.openpai_rows import convert
from holdfast.explain.text.secret_masking import mask
from holdfast.explain.text.sentences import shortened
from holdfast.model.codec import encode
from holdfast.model.decisions import JobReport
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, LostOwner, MemoryKill, StopRequest, WorkerEvidence
from holdfast.model.exit_report import (
    Because,
    DecidingLine,
    Evidence,
    EvidenceKind,
    ExitReport,
    Outcome,
    WorkerExit,
)
from holdfast.model.worker_reading import WorkerReading
from holdfast.record.report_file import exit_report_object, from_json_object, to_json_object
from holdfast_testing.labelled_logs import cases

RULES = {rule.__name__ for rule in BELIEFS} | {look.__name__ for look in SECOND_LOOKS} | set(OTHER_RULES)
KILLED = WorkerExit(role="worker", rank=0, node="a", attempt=1, pid=7, signal=9, ended_at=T, order=1)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of"


@cache
def explained() -> list[tuple[str, AttemptEvidence, ExitReport]]:
    return [(name, evidence, explain(evidence)) for name, evidence in cases()]


def one(text: str = "", **known: Any) -> AttemptEvidence:
    log = LogExcerpt(source="worker-0 stderr", text=text)
    return AttemptEvidence(workers=(WorkerEvidence(rank=0, node="a", log=log, exit=known.pop("exit", None)),), **known)


def exited(code: int) -> WorkerExit:
    return replace(KILLED, signal=None, exit_code=code)


def test_each_labelled_log_names_a_rule_that_exists() -> None:
    assert [(name, report.because) for name, _, report in explained() if report.because.rule not in RULES] == []


def test_each_labelled_log_names_a_row_and_one_of_its_wordings() -> None:
    rows = {row.phrase: {"", *(wording.id for wording in row.wordings)} for row in load().rows}
    unknown = [
        (name, report.because)
        for name, _, report in explained()
        if report.because.row != report.phrase or report.because.wording not in rows[report.because.row]
    ]
    assert unknown == []


def test_the_line_of_each_labelled_log_stands_there() -> None:
    missing = []
    lines = 0
    for name, evidence, report in explained():
        if (line := report.because.line) is None:
            continue
        lines += 1
        logs = {each.log.source: each.log.text.split("\n") for each in evidence.workers if each.log is not None}
        # The kernel's lines are taken out of the log that has them, and count anew.
        written = logs[line.source][line.number - 1 : line.number] if line.source in logs else logs["dmesg"]
        if line.text not in [mask(shortened(each, MOST_TEXT)) for each in written]:
            missing.append((name, line))
    assert missing == []
    assert lines > 250


def test_a_wording_never_decides_without_its_line() -> None:
    assert [name for name, _, report in explained() if report.because.wording and report.because.line is None] == []


def test_a_line_that_the_catalogue_knows() -> None:
    report = explain(one(f"step 1\n{OUT_OF_MEMORY}\n", exit=exited(1)))
    assert report.because == Because(
        rule="culprit_of_its_own",
        row="AcceleratorOutOfMemory",
        wording="torch-oom-any-device",
        line=DecidingLine(text=OUT_OF_MEMORY, source="worker-0 stderr", number=2),
    )


def test_a_log_alone() -> None:
    because = explain(one(f"step 1\n{OUT_OF_MEMORY}\n")).because
    assert (because.rule, because.wording) == ("only_logs", "torch-oom-any-device")


@pytest.mark.parametrize(
    ("ended", "row"),
    [
        (KILLED, "KilledBySignal"),
        (replace(KILLED, signal=11), "NativeCrash"),
        (exited(3), "Unexplained"),
        (exited(127), "CommandNotFound"),
        (exited(205), "UserException"),
        (replace(KILLED, signal=None), "Unexplained"),
    ],
)
def test_a_status_alone_names_no_wording_and_no_line(ended: WorkerExit, row: str) -> None:
    assert explain(one("step 1\n", exit=ended)).because == Because(rule="exit_status", row=row)


def test_a_secret_in_the_line_is_masked() -> None:
    because = explain(one("RuntimeError: CUDA out of memory, api_key=abcdef0123456789\n", exit=exited(1))).because
    assert because.line is not None
    assert "abcdef0123456789" not in because.line.text
    assert "api_key=***" in because.line.text


def test_the_kernel_that_knows_better() -> None:
    text = "Out of memory: Killed process 7 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
    kernel = (Evidence(kind=EvidenceKind.KERNEL, text=text, source="kernel log", at=T, node="a"),)
    because = explain(one("step 1\n", exit=KILLED, kernel=kernel)).because
    assert (because.rule, because.row) == ("kernel_log", "HostOutOfMemoryKilled")
    assert because.line == DecidingLine(text=text, source="kernel log", number=1)


def test_the_counter_of_a_memory_kill() -> None:
    kill = MemoryKill(source="cgroup v2 memory.events", text="oom_kill 1", rank=0, node="a")
    assert explain(one("step 1\n", exit=KILLED, memory_kills=(kill,))).because == Because(
        rule="memory_kill",
        row="HostOutOfMemoryKilled",
        line=DecidingLine(text="oom_kill 1", source="cgroup v2 memory.events"),
    )


def test_a_requested_stop_has_no_line() -> None:
    stop = StopRequest(reason="enough", at=T - 2)
    because = explain(one("step 1\n", exit=KILLED, stop=stop)).because
    assert because == Because(rule="asked_to_stop", row="StoppedByOperator")


def test_a_component_that_ordered_the_end() -> None:
    order = tuple(
        Evidence(kind=EvidenceKind.LOG, text=text, source="disk")
        for text in ('1 ERROR ACTION "KILL"', '2 ERROR REASON "full"')
    )
    because = explain(one("step 1\n", exit=KILLED, pai_errors=order)).because
    assert (because.rule, because.row) == ("ordered_in_a_file", "KilledByDiskCleaner")
    assert because.line == DecidingLine(text='1 ERROR ACTION "KILL"', source="disk.pai.error")


def test_a_row_of_openpai() -> None:
    row, _ = convert({
        "code": -7, "phrase": "TheirExit", "type": "USER_FAILURE",
        "pattern": {"runtimeContainerPatterns": [{"userLogRegex": "their words"}]},
    })  # fmt: skip
    catalogue = Catalogue(load().rows, "theirs", further=(row,))
    because = explain(one("these are their words\n", exit=exited(1)), catalogue).because
    line = DecidingLine(text="these are their words", source="worker-0 stderr", number=1)
    assert because == Because(rule="rows_of_openpai", row="TheirExit", line=line)


def test_a_rank_that_never_came_is_known_by_the_line_of_one_that_waited() -> None:
    waited = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/1"
    workers = tuple(
        WorkerEvidence(
            rank=rank,
            node="a",
            log=LogExcerpt(source=f"worker-{rank} stderr", text="" if rank else f"{waited}\n"),
            exit=replace(exited(1), rank=rank, ended_at=T + rank, order=rank, after_stop=rank == 1),
        )
        for rank in range(2)
    )
    report = explain(AttemptEvidence(workers=workers, stop_asked_at=T + 0.5))
    assert report.reason.startswith("rank 1 never joined")
    assert (report.because.rule, report.because.row) == ("port_of_rank_0", "RendezvousTimeout")
    assert report.because.line == DecidingLine(text=waited, source="worker-0 stderr", number=1)


def test_the_shortcut_for_success_names_the_rule_of_the_funnel() -> None:
    evidence = one("step 1\n", exit=exited(0))
    assert explain(evidence).because == through_the_funnel(evidence).because
    assert explain(evidence).because == Because(rule="all_finished", row="Succeeded")


def test_a_bug_of_holdfast() -> None:
    workers = (WorkerEvidence(rank=0, exit=KILLED, reading=WorkerReading(bug="KeyError: 1")),)
    assert explain(AttemptEvidence(workers=workers)).because == Because(rule="bug_of_holdfast", row="Unexplained")


def test_the_reports_about_an_owner() -> None:
    lost = explain_owner_lost("j", "n2", "n1", silent_s=9, waited_s=60, attempt=1, workers=1)
    absent = explain_owner_absent("n1:29400", waited_s=60, last="refused")
    died = explain_lost_owner(
        LostOwner(job="j", pid=1, host="n1", died_at=T, last_known="attempt 1 ran", lock="lock", attempt=1)
    )
    assert [(each.because.rule, each.because.row) for each in (lost, absent, died)] == [
        ("owner_silent", "OwnerLost"), ("owner_absent", "GangStartTimeout"), ("owner_died", "KilledBySignal"),
    ]  # fmt: skip


def test_the_record_is_in_the_json_of_a_log_and_of_a_job() -> None:
    report = explain(one(f"{OUT_OF_MEMORY}\n", exit=exited(1)))
    expected = {
        "rule": "culprit_of_its_own", "row": "AcceleratorOutOfMemory", "wording": "torch-oom-any-device",
        "line": {"source": "worker-0 stderr", "number": 1, "text": OUT_OF_MEMORY}, "rivals": [],
    }  # fmt: skip
    assert exit_report_object(report)["because"] == expected
    whole = to_json_object(JobReport(job_id="j", name="n", outcome=Outcome.FAILED, report=report, attempts=()))
    assert list(whole)[-1] == "because"
    assert whole["because"] == expected
    assert from_json_object(json.loads(encode(whole))).report.because == report.because


def test_a_report_of_an_earlier_version_is_read() -> None:
    whole = to_json_object(
        JobReport(job_id="j", name="n", outcome=Outcome.FAILED, report=explain(one("", exit=KILLED)), attempts=())
    )
    del whole["because"]
    assert from_json_object(json.loads(encode(whole))).report.because == Because()


def test_no_report_is_made_without_its_record() -> None:
    bare = [
        f"{path.name}:{call.lineno}"
        for path in Path(explanation_rules.__file__).parent.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ExitReport"
        and "because" not in {keyword.arg for keyword in call.keywords}
    ]  # fmt: skip
    assert bare == []
