"""Each field of `runtime.pai.agg.error` holds what its name says, and the field that `trigger` names is never null."""

from __future__ import annotations

import json

import pytest
import yaml

from conftest import Holdfast
from holdfast.explain import explain
from holdfast.explain.openpai_exit_file import agg_error_file
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, StopRequest, StopSource, WorkerEvidence
from holdfast.model.exit_report import WorkerExit
from places import DATA

EXAMS = [
    json.loads(line)
    for name in ("explain_exam.jsonl", "explain_exam2.jsonl")
    for line in (DATA / name).read_text().splitlines()
]
FIELD = {
    "diskCleanerErrorLog": ("errorLogs", "diskCleaner"),
    "runtimeErrorLog": ("errorLogs", "runtime"),
    "originalUserExitCode": ("originalUserExitCode",),
    "caughtSignal": ("caughtSignal",),
    "caughtException": ("caughtException",),
    "matchedUserLogString": ("matchedUserLogString",),
    "dockerStatus": ("dockerStatus",),
}
OOM_ON_GPU_0 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
    " of which 1.2 MiB is free."
)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FRAMES = 'Traceback (most recent call last):\n  File "/x/train.py", line 88, in step\n    loss = model(x)\n'
NOISE = "".join(f"cleanup noise {n}\n" for n in range(300))


def dead_worker(text: str = "", *, exit_code: int | None = None, signal: int | None = None) -> AttemptEvidence:
    exit_ = WorkerExit(
        role="worker", rank=0, node="n1", attempt=1, pid=7, ended_at=1_700_000_001.0, exit_code=exit_code, signal=signal
    )
    stderr = LogExcerpt(source="worker-0 stderr", text=text)
    return AttemptEvidence(workers=(WorkerEvidence(node="n1", exit=exit_, stderr=stderr),))


def fields_of(evidence: AttemptEvidence) -> dict[str, object]:
    return loaded_fields(agg_error_file(explain(evidence), evidence).decode())


def loaded_fields(text: str) -> dict[str, object]:
    loaded: dict[str, object] = yaml.load("\n".join(text.splitlines()[1:-1]), LOADER)
    return loaded


def deciding(loaded: dict[str, object]) -> object:
    """What the field holds that `trigger` names; the trigger itself where it names none."""
    value: object = loaded
    for key in FIELD.get(str(loaded["trigger"]), ("trigger",)):
        assert isinstance(value, dict)
        value = value[key]
    return value


def test_what_follows_a_traceback_is_not_part_of_it() -> None:
    loaded = fields_of(dead_worker(f"warm up\n{FRAMES}{OOM_ON_GPU_0}\n{NOISE}", exit_code=1))
    assert loaded["matchedUserLogString"] == OOM_ON_GPU_0
    assert loaded["caughtException"] == f"{OOM_ON_GPU_0}\n  at /x/train.py:88 in step"


def test_what_follows_an_unknown_exception_is_not_part_of_it() -> None:
    evidence = dead_worker(f"{FRAMES}ValueError: no rows\n{NOISE}", exit_code=1)
    assert fields_of(evidence)["caughtException"] == "ValueError: no rows\n  at /x/train.py:88 in step"
    assert "noise" not in explain(evidence).reason


@pytest.mark.parametrize(
    "message",
    [
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously reported at some other API call.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
        ),
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight".',
        "ValueError: these rows are wrong:\nrow 3\n",
        "KeyError: (1,\n 2)",
    ],
)
def test_a_message_over_several_lines_is_kept_whole(message: str) -> None:
    said = str(fields_of(dead_worker(f"{FRAMES}{message}\ncleanup noise\n", exit_code=1))["caughtException"])
    for line in message.strip().splitlines():
        assert line.strip() in said
    assert "noise" not in said


def test_a_cpp_abort_fills_caught_exception() -> None:
    said = "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check"
    evidence = dead_worker(f"{said}\nmore\n", signal=6)
    report = explain(evidence)
    assert report.exception == "std::out_of_range"
    assert fields_of(evidence)["caughtException"] == said
    assert "Python line" not in report.solution


def test_a_shells_status_fills_caught_signal() -> None:
    loaded = fields_of(dead_worker(exit_code=139))
    assert (loaded["originalUserExitCode"], loaded["caughtSignal"]) == (139, "SIGSEGV")
    assert fields_of(dead_worker(exit_code=137))["caughtSignal"] == "SIGKILL"
    assert fields_of(dead_worker(exit_code=3))["caughtSignal"] is None


def test_holdfasts_own_disk_cleaner_fills_its_error_log() -> None:
    evidence = AttemptEvidence(
        workers=dead_worker(signal=15).workers,
        stop=StopRequest(
            reason="this job uses 90 % of the disk", solution="write less", source=StopSource.DISK_CLEANER,
            phrase="KilledByDiskCleaner", at=1_700_000_000.5,
        ),
        stop_asked_at=1_700_000_000.5,
    )  # fmt: skip
    loaded = fields_of(evidence)
    logs = loaded["errorLogs"]
    assert isinstance(logs, dict)
    assert logs["diskCleaner"] == (
        '1700000000 ERROR ACTION "KILL"\n'
        '1700000000 ERROR REASON "this job uses 90 % of the disk"\n'
        '1700000000 ERROR SOLUTION "write less"'
    )
    assert deciding(loaded) == logs["diskCleaner"]


def test_the_field_that_trigger_names_is_never_null() -> None:
    """Over all logs of the exams, each as a dead worker's, every other also after a signal or as a file alone."""
    empty = {}
    for number, case in enumerate(EXAMS):
        text = case.get("text") or "\n".join(case["files"])
        alone = AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source="job.log", text=text)),))
        also = {1: (alone,), 3: (dead_worker(text, exit_code=139),)}.get(number % 4, ())
        for evidence in (dead_worker(text, exit_code=1), *also):
            loaded = fields_of(evidence)
            if loaded["trigger"] is not None and deciding(loaded) is None:
                empty[case["id"]] = loaded["trigger"]
    assert not empty


@pytest.mark.real
def test_a_command_that_cannot_be_run_fills_errorlogs_runtime(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", "--no-python", "./not-there")
    loaded = loaded_fields((ran.job_dir / "attempt-1" / "runtime.pai.agg.error").read_text())
    assert loaded["trigger"] == "runtimeErrorLog"
    assert "./not-there: No such file or directory" in str(deciding(loaded))
    assert loaded["matchedUserLogString"] is None


@pytest.mark.real
def test_the_seeds_own_shell_line(holdfast: Holdfast) -> None:
    script = holdfast.script("set -e\nx=\n[ $x -gt 3 ]\necho not here\n", "unary.sh")
    ran = holdfast.run("--max-restarts", "0", "--no-python", "bash", script)
    loaded = loaded_fields((ran.job_dir / "attempt-1" / "runtime.pai.agg.error").read_text())
    assert (loaded["exitcode"], loaded["trigger"], loaded["originalUserExitCode"]) == (231, "matchedUserLogString", 2)
    assert str(loaded["matchedUserLogString"]).endswith("[: -gt: unary operator expected")
