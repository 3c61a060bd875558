"""`holdfast explain`: any log of any size and encoding, several ranks, and input that is no log."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.explain import command
from holdfast.errors import BadUsage
from holdfast.explain.logs.row_matcher import built_in
from holdfast.node.explain_files import TAIL_BYTES, excerpt, explain_files, read_log

STEP_LINE = "2026-11-20 22:00:00,123 [INFO] trainer: step {} loss 2.3 (0.02s)\n"
OOM_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 88, in <module>\n'
    "    main()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.15 GiB"
    " of which 4.06 GiB is free. Process 3012 has 75.08 GiB memory in use.\n"
)
GLOO_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 90, in <module>\n'
    "    main()\n"
    "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.3]:41211. This is typically caused by"
    " a remote worker\n"
)


def explain_command(*args: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(command, list(args), input=text)


def answered(*args: str, text: str | bytes = "") -> dict[str, object]:
    result = explain_command("--json", *args, text=text)
    assert result.exit_code == 0, result.output
    loaded: dict[str, object] = json.loads(result.stdout)
    return loaded


def test_json_is_the_report_object_without_the_jobs_part(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(STEP_LINE.format(1) + OOM_TRACEBACK)
    report = answered(str(log))
    assert report["schema"] == "holdfast.report/1"
    assert "job" not in report
    assert "attempts" not in report
    assert (report["code"], report["phrase"], report["blame"], report["rerun"]) == (
        226,
        "AcceleratorOutOfMemory",
        "workload",
        "never",
    )
    for key in ("reason", "solution", "trigger", "hint", "original", "first", "evidence", "collateral"):
        assert key in report
    evidence = report["evidence"]
    assert isinstance(evidence, list)
    assert evidence[0]["source"] == f"{log}:5"


def test_people_get_a_few_calm_lines(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(OOM_TRACEBACK)
    result = explain_command(str(log))
    assert result.exit_code == 0
    assert "AcceleratorOutOfMemory" in result.stdout
    assert "20.00 GiB" in result.stdout


def test_standard_input() -> None:
    assert answered("-", text=OOM_TRACEBACK)["phrase"] == "AcceleratorOutOfMemory"
    assert answered(text=OOM_TRACEBACK)["phrase"] == "AcceleratorOutOfMemory"


def test_several_files_are_ranks_of_one_job(tmp_path: Path) -> None:
    for rank, text in enumerate((GLOO_TRACEBACK, OOM_TRACEBACK, GLOO_TRACEBACK)):
        (tmp_path / f"rank{rank}.log").write_text(text)
    report = answered(*(str(tmp_path / f"rank{rank}.log") for rank in range(3)))
    assert report["phrase"] == "AcceleratorOutOfMemory"
    first = report["first"]
    assert isinstance(first, dict)
    assert first["rank"] == 1
    assert report["collateral"] == [0, 2]


@pytest.mark.parametrize(
    ("args", "phrase", "code"),
    [
        (["--exit-code", "137"], "KilledBySignal", 137),
        (["--exit-code", "-9"], "KilledBySignal", 137),
        (["--signal", "KILL"], "KilledBySignal", 137),
        (["--signal", "SIGSEGV"], "NativeCrash", 234),
        (["--signal", "11"], "NativeCrash", 234),
        (["--signal", "40"], "KilledBySignal", 137),
        (["--exit-code", "0"], "Succeeded", 0),
        (["--exit-code", "3"], "Unexplained", 255),
        (["--exit-code", "210"], "UserException", 210),
    ],
)
def test_what_the_log_cannot_say(args: list[str], phrase: str, code: int) -> None:
    report = answered("-", *args, text="starting\n")
    assert (report["phrase"], report["code"]) == (phrase, code)


def test_the_log_says_more_than_its_status() -> None:
    report = answered("-", "--exit-code", "1", text=OOM_TRACEBACK)
    assert report["phrase"] == "AcceleratorOutOfMemory"
    assert report["original"] == {"exit_code": 1, "signal": None}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "latin-1"])
def test_wrong_encodings(encoding: str, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes((STEP_LINE.format(1) * 5 + "grüße\n" + OOM_TRACEBACK).encode(encoding))
    assert answered(str(log))["phrase"] == "AcceleratorOutOfMemory"


def test_a_packed_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log.gz"
    log.write_bytes(gzip.compress((STEP_LINE.format(1) * 5000 + OOM_TRACEBACK).encode()))
    assert answered(str(log))["phrase"] == "AcceleratorOutOfMemory"


@pytest.mark.parametrize("data", [b"", b"\x00" * 5000, bytes(range(256)) * 64, b"\xff\xfe", b"x" * 3_000_000])
def test_no_text_is_honestly_unexplained(data: bytes, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(data)
    report = answered(str(log))
    assert (report["phrase"], report["code"]) == ("Unexplained", 255)


@pytest.mark.parametrize(
    "args", [["/no/such/file.log"], ["/no/such/*.log"], ["-", "--signal", "NOPE"], ["-", "--exit-code", "999"]]
)
def test_bad_usage(args: list[str]) -> None:
    result = explain_command(*args)
    assert isinstance(result.exception, BadUsage)
    assert result.exception.exit_status == 2
    assert result.exception.hint


def test_a_cause_far_before_the_end_of_a_big_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "big.log"
    with log.open("w") as file:
        file.write("".join(STEP_LINE.format(number) for number in range(30_000)))
        file.write(OOM_TRACEBACK)
        file.write("".join(GLOO_TRACEBACK.replace("90", str(number)) for number in range(12_000)))
    assert log.stat().st_size > 4 << 20
    report = answered(str(log))
    assert report["phrase"] == "AcceleratorOutOfMemory"
    evidence = report["evidence"]
    assert isinstance(evidence, list)
    assert evidence[0]["source"] == f"{log}:30004"


def test_what_a_big_log_went_on_after_is_not_its_cause(tmp_path: Path) -> None:
    log = tmp_path / "big.log"
    log.write_text(
        OOM_TRACEBACK
        + "".join(STEP_LINE.format(number) for number in range(60_000))
        + "Segmentation fault (core dumped)\n"
    )
    assert answered(str(log))["phrase"] == "NativeCrash"


def test_an_excerpt_is_bounded_and_keeps_the_end(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(OOM_TRACEBACK + "".join(STEP_LINE.format(number) for number in range(60_000)) + "the end\n")
    kept = excerpt(log, "worker-0 stderr")
    assert kept.source == "worker-0 stderr"
    assert kept.text.endswith("the end\n")
    assert len(kept.text) <= 2 * TAIL_BYTES
    assert kept.skipped_bytes + len(kept.text) == log.stat().st_size
    assert kept.settled == len(kept.cuttings) > 0
    assert sum(map(len, kept.cuttings)) < 1 << 20


def test_an_excerpt_of_a_small_file_is_the_file(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(OOM_TRACEBACK)
    kept = excerpt(log, "worker-0 stderr")
    assert (kept.text, kept.skipped_bytes, kept.cuttings) == (OOM_TRACEBACK, 0, ())


def test_a_pipe_is_read_as_a_file_is(tmp_path: Path) -> None:
    data = ("".join(STEP_LINE.format(number) for number in range(40_000)) + OOM_TRACEBACK).encode()
    log = tmp_path / "job.log"
    log.write_bytes(data)
    piped, filed = read_log("-", built_in(), io.BytesIO(data)), read_log(str(log), built_in())
    assert (piped.text, piped.skipped_bytes, piped.first_line) == (filed.text, filed.skipped_bytes, filed.first_line)


def test_pod_status_json_on_one_line() -> None:
    pod = {
        "kind": "Pod",
        "status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
    }
    report = explain_files(["-"], stdin=io.BytesIO(json.dumps(pod).encode()))
    assert report.phrase == "HostOutOfMemoryKilled"
