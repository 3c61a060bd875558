"""The report: the JSON keys that scripts rely on, and the text that people read."""

from __future__ import annotations

import io
import json
import os
import stat
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from holdfast.model.decisions import AttemptRecord, Decision, DecisionKind, JobReport
from holdfast.model.exit_report import Blame, Culprit, Evidence, EvidenceKind, ExitReport, Original, Outcome, Rerun
from holdfast.model.human_format import duration
from holdfast.record import report_file
from holdfast.report.brief_report import render_brief, render_exit
from holdfast.report.failure_place import FailurePlace
from holdfast.report.report_json import exit_report_object, exit_text, from_json_object, pretty, to_json_object
from holdfast.report.terminal_text import harmless, wants_colour, wrapped
from holdfast.report.text_report import bar, in_a_row
from holdfast.untrusted import Malformed

MEMORY = ExitReport(
    code=226,
    phrase="AcceleratorOutOfMemory",
    blame=Blame.WORKLOAD,
    rerun=Rerun.NEVER,
    reason="rank 1 on node7: asked for 20.00 GiB, 1.39 GiB of 79.15 GiB free on GPU 1",
    solution="Use a smaller batch, or shard the model over more devices.",
    trigger="matchedUserLogString",
    original=Original(exit_code=1),
    first=Culprit(role="worker", rank=1, node="node7", pid=4242, at=1_700_000_000.0),
    evidence=(
        Evidence(
            kind=EvidenceKind.LOG,
            text="torch.OutOfMemoryError: CUDA out of memory.",
            source="worker-1 stderr",
            at=1_700_000_000.0,
        ),
    ),
    collateral=(0, 2, 3),
    attempt=2,
    fingerprint="AcceleratorOutOfMemory|torch.OutOfMemoryError|step",
    exception="torch.OutOfMemoryError",
)
KILLED_REPORT = ExitReport(
    code=137,
    phrase="KilledBySignal",
    blame=Blame.UNKNOWN,
    rerun=Rerun.UNKNOWN,
    reason="rank 3 on node7 was killed by SIGKILL and nothing says why",
    solution="Look into the kernel log.",
    original=Original(signal="SIGKILL"),
    first=Culprit(role="worker", rank=3, node="node7"),
)
KILLED_JOB = JobReport(
    job_id="20261120-2341-k3f9",
    name="demo",
    outcome=Outcome.FAILED,
    report=MEMORY,
    attempts=(
        AttemptRecord(
            attempt=1,
            started_at=1_699_999_900.0,
            ended_at=1_699_999_950.0,
            report=KILLED_REPORT,
            decision=Decision(
                kind=DecisionKind.RESTART, reason="spends the budget (restart 1 of 3)", charged=True, delay_s=2.5
            ),
            parts={"preparing": 1.5, "running": 48.5},
            step=120,
        ),
        AttemptRecord(
            attempt=2,
            started_at=1_699_999_955.0,
            ended_at=1_700_000_000.0,
            report=MEMORY,
            decision=Decision(kind=DecisionKind.FAIL, reason="it would end the same way", avoid=("gpu1",)),
        ),
    ),
)
SUCCESS = ExitReport(
    code=0, phrase="Succeeded", blame=Blame.UNKNOWN, rerun=Rerun.NEVER, reason="every worker finished", solution=""
)


def verbose(job: JobReport, width: int = 100, *, colour: bool = False) -> str:
    return render_brief(job, FailurePlace(), width=width, colour=colour, verbose=True)


TOP_KEYS = [
    "schema", "job", "outcome", "code", "phrase", "blame", "rerun", "reason", "solution", "trigger", "hint", "original",
    "first", "evidence", "collateral", "attempt", "attempts",
]  # fmt: skip


def test_the_object_has_the_keys_of_the_contract_in_their_order() -> None:
    value = to_json_object(KILLED_JOB)
    assert list(value)[: len(TOP_KEYS)] == TOP_KEYS
    assert value["schema"] == "holdfast.report/1"
    assert value["job"] == {"id": "20261120-2341-k3f9", "name": "demo"}
    assert (value["outcome"], value["code"], value["blame"], value["rerun"]) == ("failed", 226, "workload", "never")
    assert value["original"] == {"exit_code": 1, "signal": None}
    assert value["first"] == {"role": "worker", "rank": 1, "node": "node7", "pid": 4242, "at": 1_700_000_000.0}
    assert list(value["evidence"][0]) == ["kind", "text", "source", "at"]
    assert value["collateral"] == [0, 2, 3] and value["attempt"] == 2
    first, second = value["attempts"]
    assert list(first)[:5] == ["attempt", "started_at", "ended_at", "report", "decision"]
    assert first["decision"] == {
        "kind": "restart",
        "reason": "spends the budget (restart 1 of 3)",
        "charged": True,
        "delay_s": 2.5,
        "avoid": [],
    }
    assert first["report"]["phrase"] == "KilledBySignal" and first["report"]["original"]["signal"] == "SIGKILL"
    assert second["decision"]["avoid"] == ["gpu1"]
    assert value["hint"] == "holdfast logs 20261120-2341-k3f9 --attempt 2 --rank 1"


def test_an_explained_exit_is_the_same_object_without_the_jobs_part() -> None:
    value = exit_report_object(MEMORY)
    assert list(value)[:15] == [key for key in TOP_KEYS if key not in ("job", "attempts")]
    assert value["outcome"] == "failed" and value["hint"] is None
    assert exit_report_object(SUCCESS)["outcome"] == "succeeded"
    assert json.loads(exit_text(MEMORY)) == value


def test_no_culprit_is_null() -> None:
    assert (
        to_json_object(msgspec.structs.replace(KILLED_JOB, report=SUCCESS, outcome=Outcome.SUCCEEDED))["first"] is None
    )


def test_reading_it_back_gives_the_same_report() -> None:
    hinted = msgspec.structs.replace(KILLED_JOB, report=msgspec.structs.replace(MEMORY, hint="holdfast logs x"))
    assert from_json_object(json.loads(pretty(to_json_object(hinted)))) == hinted


@pytest.mark.parametrize("spoil", [{"schema": "holdfast.report/2"}, {"code": "many"}, {"job": None}])
def test_what_is_not_a_report_is_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        from_json_object({**to_json_object(KILLED_JOB), **spoil})


def test_the_file_is_written_whole_and_private(tmp_path: Path) -> None:
    (tmp_path / "jobs" / KILLED_JOB.job_id).mkdir(parents=True)
    path = report_file.write(tmp_path, KILLED_JOB)
    assert path == tmp_path / "jobs" / KILLED_JOB.job_id / "report.json"
    assert json.loads(path.read_text()) == to_json_object(KILLED_JOB)
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]
    assert report_file.read(tmp_path, "other") is None


def test_log_text_that_is_not_unicode_is_still_written(tmp_path: Path) -> None:
    odd = msgspec.structs.replace(MEMORY, reason="bytes \udcff of a log")
    path = report_file.write_to(tmp_path / "r.json", msgspec.structs.replace(KILLED_JOB, report=odd))
    assert json.loads(path.read_text())["reason"].startswith("bytes ")


def test_a_report_may_go_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    report_file.write_to(pipe, KILLED_JOB)
    assert json.loads(os.read(reader, 1 << 20)) == to_json_object(KILLED_JOB)
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_text_answers_what_one_asks_at_night() -> None:
    text = verbose(KILLED_JOB, 120)
    lines = text.splitlines()
    assert lines[0].startswith("holdfast: job 20261120-2341-k3f9 (demo) FAILED: asked for 20.00 GiB")
    assert "    rank 1 on node7 (exit status 1) · attempt 2 of 2 · 1 min 40 s, until " in text
    assert "  class    AcceleratorOutOfMemory (exit code 226) · " in text
    assert "  fix      Use a smaller batch" in text
    assert "| torch.OutOfMemoryError: CUDA out of memory." in text
    assert "  others   ranks 0, 2 and 3 ended because of it" in text
    assert "  attempts 1: KilledBySignal, rank 3 on node7, step 120, 50 s, from " in text
    assert "→ restart, after 2.5 s, charged to --max-restarts: spends the budget (restart 1 of 3)" in text
    assert "→ not restarted, avoiding gpu1: it would end the same way" in text
    assert lines[-1].startswith("  next     holdfast logs 20261120-2341-k3f9 --attempt 2 --rank 1")
    assert "\x1b" not in text


def test_success_is_one_line_and_a_recovered_one_tells_its_attempts() -> None:
    won = Decision(kind=DecisionKind.SUCCEED, reason="every worker finished")
    last = msgspec.structs.replace(KILLED_JOB.attempts[1], report=SUCCESS, decision=won)
    once = JobReport(job_id="j", name="n", outcome=Outcome.SUCCEEDED, report=SUCCESS, attempts=(last,))
    assert render_brief(once, FailurePlace()) == "holdfast: job j (n) SUCCEEDED after 1 attempt, 45 s\n"
    twice = msgspec.structs.replace(once, attempts=(KILLED_JOB.attempts[0], last))
    assert "KilledBySignal" in verbose(twice) and "→ succeed: every worker finished" in verbose(twice)


def test_a_stop_on_request_is_not_called_hopeless() -> None:
    stopped = msgspec.structs.replace(MEMORY, code=250, phrase="StoppedByOperator", blame=Blame.OPERATOR, first=None)
    text = verbose(msgspec.structs.replace(KILLED_JOB, report=stopped, outcome=Outcome.STOPPED))
    assert " STOPPED: " in text and "  class    StoppedByOperator (exit code 250) · an operator's request" in text
    assert "would fail again" not in text
    assert "  next " not in text


def test_two_candidates_and_a_doubt_are_both_said() -> None:
    doubtful = msgspec.structs.replace(
        KILLED_REPORT, also=(Culprit(role="worker", rank=5, node="node8"),), confidence=0.5
    )
    text = render_exit(doubtful, FailurePlace())
    assert "    rank 3 on node7 (SIGKILL) · or rank 5 on node8 · confidence 50%\n" in text
    job = verbose(JobReport(job_id="j", name="n", outcome=Outcome.FAILED, report=doubtful))
    assert "    rank 3 on node7 (SIGKILL) · or rank 5 on node8 · confidence 50%\n" in job


def test_many_lines_of_evidence_are_cut_and_the_cut_is_said() -> None:
    long = Evidence(kind=EvidenceKind.LOG, text="\n".join(f"line {n}" for n in range(40)), source="worker-0 stderr")
    text = render_exit(msgspec.structs.replace(KILLED_REPORT, evidence=(long,) * 11), FailurePlace())
    assert "… 28 lines before these are in report.json" in text and "| line 39" in text and "| line 27" not in text
    assert "… 3 more in report.json" in text


def test_a_log_cannot_steer_the_terminal() -> None:
    nasty = "\x1b[2J\x1b]0;title\x07red \x1b[31mtext\x1b[0m\x00\x9b31m\u202eevil\ttab"
    text = render_exit(
        msgspec.structs.replace(
            KILLED_REPORT, reason=nasty, evidence=(Evidence(kind=EvidenceKind.LOG, text=nasty, source=nasty),)
        ),
        FailurePlace(),
    )
    assert not set(text) & set("\x1b\x00\x07\x9b\u202e")
    assert "red text" in text
    assert harmless("a\r\nb") == "a\nb"


def test_colour_only_on_a_terminal_that_wants_it() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert wants_colour(Terminal(), {"TERM": "xterm"})
    assert not wants_colour(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {"TERM": "xterm"})
    coloured = verbose(KILLED_JOB, colour=True)
    assert "\x1b[1;31mFAILED\x1b[0m" in coloured
    assert harmless(coloured) == verbose(KILLED_JOB)


def test_lines_fit_and_commands_stay_whole() -> None:
    headline, *body = verbose(KILLED_JOB, 70).splitlines()
    assert headline.startswith("holdfast: job ") and max(map(len, body)) <= 70
    command = "x" * 90
    assert wrapped(f"type {command} now", 40, "  ") == ["  type", f"  {command}", "  now"]


DAYS = {
    "backoff": 60.0,
    "checking": 0.004,
    "preparing": 0.2,
    "starting": 0.01,
    "running": 3 * 86_400.0,
    "detection": 300.0,
    "draining": 30.0,
    "decision": 0.008,
    "first_output": 12.0,
}
SHORT = {"backoff": 0.0, "preparing": 0.002, "starting": 0.003, "running": 0.19, "draining": 0.001, "decision": 0.005}


def test_a_bar_shows_every_part_in_the_order_of_time() -> None:
    (text,) = bar({"preparing": 10.0, "checking": 0.01, "running": 20.0}, 100)
    marks, _, names = text.partition("  ")
    assert marks == "░" + "▒" * 10 + "█" * 19
    assert names == "░ checks 10 ms, ▒ prepare 10 s, █ running 20 s"
    assert bar({}, 80) == bar({"running": 0.0}, 80) == []
    shown = verbose(KILLED_JOB)
    assert "█ running 48 s" in shown


def test_the_time_to_the_first_output_is_a_part_of_the_bar_and_counted_once() -> None:
    parts = {"starting": 1.0, "running": 5.0, "draining": 4.0, "first_output": 3.0}
    row = in_a_row(parts)
    assert row == {"first_output": 3.0, "running": 3.0, "draining": 4.0}
    assert sum(row.values()) == sum(parts.values()) - parts["first_output"]
    assert in_a_row({"starting": 2.0, "first_output": 0.5}) == {"first_output": 0.5, "starting": 1.5}
    late = in_a_row({"starting": 1.0, "running": 1.0, "draining": 1.0, "first_output": 60.0})
    assert late == {"first_output": 3.0}, "words that came after the end are not drawn beyond it"


@pytest.mark.parametrize(
    "parts", [DAYS, SHORT, {"running": 1e-6}, {"checking": 5.0}], ids=["days", "short", "dot", "one"]
)
@pytest.mark.parametrize("width", [44, 64, 104])
def test_bars_of_any_attempt_are_equally_wide_and_tell_every_part(parts: dict[str, float], width: int) -> None:
    lines = bar(parts, width)
    assert max(map(len, lines)) <= width
    marks = lines[0].split(" ")[0]
    assert len(marks) == 30
    told = " ".join(lines)
    for name, seconds in in_a_row(parts).items():
        assert duration(seconds) in told, name
    assert [mark for mark, _ in groupby(marks)] == [name[0] for name in told.removeprefix(marks).strip().split(", ")]


def test_thirty_attempts_are_shown_without_colour_within_the_width() -> None:
    first = KILLED_JOB.attempts[0]
    records = tuple(
        structs.replace(first, attempt=number, parts=DAYS if number == 1 else SHORT | {"first_output": 0.1})
        for number in range(1, 31)
    )
    text = verbose(structs.replace(KILLED_JOB, attempts=records), 80)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert text.count("█ running 2 d 23 h") == 1 and text.count("█ running 93 ms") == 29
    # 300 s until it was noticed, 30 s to drain, and what the next attempt took to its first words.
    assert text.count("back 5 min 30 s after the first sign of trouble") == 1
    assert text.count("back 0.1 s after the first sign of trouble") == 28
