"""`runtime.pai.agg.error`: bounded, parseable and honest for any logs."""

from __future__ import annotations

import string

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.explain import explain
from holdfast.explain.openpai_exit_file import END, MOST_BYTES, START, agg_error_file, quoted
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, StopRequest, WorkerEvidence
from holdfast.model.exit_report import Evidence, EvidenceKind, ExitReport, WorkerExit

FILE_KEYS = {
    "exitcode",
    "reason",
    "solution",
    "trigger",
    "originalUserExitCode",
    "caughtSignal",
    "caughtException",
    "matchedUserLogString",
    "dockerStatus",
    "errorLogs",
}

HOSTILE_PIECES = [
    START,
    END,
    f"\n{START}\n",
    "\x00",
    "\ud800",
    "\udfff",
    "💥" * 40,
    '"',
    "'",
    "\\",
    "\u2028",
    "\u0085",
    "\ufeff",
    "---\n",
    ": ",
    "# ",
    "&a *a",
    "!!python/object",
    "\t",
    "\r\n",
    "{",
    "[",
    "%",
    "\x1b[31m",
    "\x7f",
    "￿",
    "𝔘",
    "a" * 5000,
    "\n" * 50,
    "password=hunter2345 ",
]

hostile_text = st.lists(
    st.one_of(st.sampled_from(HOSTILE_PIECES), st.text(max_size=40), st.text(alphabet=string.printable, max_size=80)),
    max_size=40,
).map("".join)


def parsed(data: bytes) -> dict[str, object]:
    """What a plain reader gets: the lines between the landmarks through a plain YAML loader."""
    assert len(data) <= MOST_BYTES
    text = data.decode("utf-8")
    assert text.startswith(f"{START}\n")
    assert text.endswith(f"{END}\n")
    assert text.count(START) == 1
    assert text.count(END) == 1
    loaded = yaml.safe_load(text.removeprefix(START).removesuffix(f"{END}\n"))
    assert isinstance(loaded, dict)
    assert set(loaded) == FILE_KEYS
    assert {"user", "runtime", "diskCleaner"} <= set(loaded["errorLogs"])
    return loaded


def died_with_text(text: str, *, code: int = 1, rank: int = 0) -> WorkerEvidence:
    ended = WorkerExit(
        role="worker", rank=rank, node="n1", attempt=1, pid=100 + rank, exit_code=code, ended_at=1e9 + rank
    )
    return WorkerEvidence(
        rank=rank, node="n1", exit=ended, stderr=LogExcerpt(source=f"worker-{rank} stderr", text=text)
    )


@given(
    text=hostile_text, reason=hostile_text, solution=hostile_text, container=hostile_text, source=st.text(max_size=30)
)
@settings(max_examples=50, deadline=None)
def test_always_bounded_and_parseable(text: str, reason: str, solution: str, container: str, source: str) -> None:
    evidence = AttemptEvidence(
        workers=(died_with_text(text),),
        container=container,
        stop=StopRequest(reason=reason, solution=solution) if reason else None,
        pai_errors=(Evidence(kind=EvidenceKind.LOG, text=f'1 ERROR REASON "{text}"', source=source),),
    )
    report = explain(evidence)
    loaded = parsed(agg_error_file(report, evidence))
    assert loaded["exitcode"] == report.code


@given(text=hostile_text)
@settings(max_examples=200, deadline=None)
def test_a_quoted_scalar_reads_back(text: str) -> None:
    back = yaml.safe_load(quoted(text))
    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    for landmark in (START, END):
        expected = expected.replace(landmark, f"({landmark[1:]}")
    assert back == expected


def test_one_line_of_five_megabytes() -> None:
    evidence = AttemptEvidence(workers=(died_with_text("x" * 5_000_000),))
    parsed(agg_error_file(explain(evidence), evidence))


def test_five_hundred_sources() -> None:
    errors = tuple(
        Evidence(
            kind=EvidenceKind.LOG,
            text=f'{n} ERROR REASON "source {n} is unwell, and tells it at length {"." * 200}"',
            source=f"s{n}",
        )
        for n in range(500)
    )
    evidence = AttemptEvidence(workers=(died_with_text("ValueError: x"),), pai_errors=errors)
    parsed(agg_error_file(explain(evidence), evidence))


def test_the_disk_cleaner_is_believed_and_keeps_its_words() -> None:
    said = (
        'KILL"',
        'REASON "this job uses 30 % (30 GB), all jobs 91 % (91 GB), limit 90 %"',
        'SOLUTION "try again on another node"',
    )
    lines = (f'234346457 ERROR ACTION "{said[0]}', f"234346457 ERROR {said[1]}", f"234346457 ERROR {said[2]}")
    evidence = AttemptEvidence(
        workers=(died_with_text("noise of the dying worker\n" * 400, code=137),),
        pai_errors=tuple(Evidence(kind=EvidenceKind.LOG, text=line, source="diskCleaner") for line in lines),
    )
    report = explain(evidence)
    assert (report.code, report.phrase) == (198, "KilledByDiskCleaner")
    loaded = parsed(agg_error_file(report, evidence))
    assert loaded["exitcode"] == 198
    assert loaded["trigger"] == "diskCleanerErrorLog"
    assert loaded["reason"] == "this job uses 30 % (30 GB), all jobs 91 % (91 GB), limit 90 %"
    assert loaded["solution"] == "try again on another node"
    logs = loaded["errorLogs"]
    assert isinstance(logs, dict)
    assert "ERROR ACTION" in logs["diskCleaner"]
    assert len(logs["user"]) < 700, "the log of a rank that was only stopped is the first to be cut"


def test_the_culprits_log_has_the_room_that_the_cause_leaves() -> None:
    text = (
        "step 1\n" * 2000
        + "Traceback (most recent call last):\n"
        + '  File "a.py", line 3, in <module>\n'
        + "KeyError: 'lr'\n"
    )
    evidence = AttemptEvidence(workers=(died_with_text(text), died_with_text("Connection closed by peer", rank=1)))
    report = explain(evidence)
    data = agg_error_file(report, evidence)
    loaded = parsed(data)
    assert loaded["originalUserExitCode"] == 1
    assert loaded["caughtSignal"] is None
    logs = loaded["errorLogs"]
    assert isinstance(logs, dict)
    assert "KeyError: 'lr'" in logs["user"]
    assert len(data) > 3000


def test_secrets_do_not_leave() -> None:
    evidence = AttemptEvidence(workers=(died_with_text("HF_TOKEN=hf_abcdefghijklmnopqrstuv\nRuntimeError: no\n"),))
    assert b"hf_abcdefgh" not in agg_error_file(explain(evidence), evidence)


def test_the_report_of_success_has_all_keys_too() -> None:
    evidence = AttemptEvidence(workers=(died_with_text("", code=0),))
    report = explain(evidence)
    assert isinstance(report, ExitReport)
    assert parsed(agg_error_file(report, evidence))["exitcode"] == 0
