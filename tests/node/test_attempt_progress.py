"""The step, the pace and the last output of an attempt that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Holdfast
from holdfast.node.attempt_progress import AttemptProgress, progress_of
from holdfast.record.job_views import JobState, JobView
from log_writing import Wrote, write_log
from processes import until

NOW = 1_000_000.0
VIEW = JobView(id="j", name="train", created=NOW, host="n", pid=1, state=JobState.RUNNING)


def _rank(home: Path, number: int, wrote: Wrote, *, attempt: int = 1, stream: str = "stdout") -> Path:
    folder = home / "jobs" / "j" / f"attempt-{attempt}" / f"worker-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    write_log(folder / f"{stream}.log", wrote)
    os.utime(folder / f"{stream}.log", (NOW, NOW))
    return folder


def _lines(*lines: str, every_s: float = 2.0) -> Wrote:
    return [(NOW + every_s * i, f"{line}\n".encode()) for i, line in enumerate(lines)]


def _report(folder: Path, first: int, began: float, step: int, at: float) -> None:
    words = [step, int(at * 1e9), first]
    (folder / "progress").write_bytes(b"".join(word.to_bytes(8, "little", signed=True) for word in words))
    (folder / "progress.began").write_bytes(int(began * 1e9).to_bytes(8, "little"))


def test_reported_steps_win_and_the_slowest_rank_counts(tmp_path: Path) -> None:
    _report(_rank(tmp_path, 0, _lines("step 900", "step 901")), 100, NOW, 130, NOW + 10)
    _report(_rank(tmp_path, 1, []), 100, NOW, 120, NOW + 10)
    found = progress_of(tmp_path, VIEW)
    assert found == AttemptProgress(attempt=1, step=120, steps_per_s=2.0, last_output=NOW)
    assert found.words(NOW + 5) == "step 120 · 2 steps/s · last output 5 s ago"
    assert found.words(NOW + 300, briefly=True) == "step 120 · 2/s · 5 min ago"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step 10 loss 1", "step 11 loss 1", "saved a file"], "step 11 · 2 s/step"),
        (["iter 100: loss 1", "iter 120: loss 1"], "step 120 · 10 steps/s"),
        (["Epoch 1 loss 1", "Epoch 2 loss 1"], "epoch 2"),
        (["epoch 1 step 8", "epoch 1 step 9", "epoch 2 step 1", "epoch 2 step 5"], "epoch 2 · step 5 · 2 steps/s"),
        (["Epoch 3: [10/500] loss 1", "Epoch 3: [20/500] loss 1"], "epoch 3 · step 20 of 500 · 5 steps/s"),
        (["step 7", "step 0", "step 40"], "step 40 · 20 steps/s"),
        (["batch size 32", "world size 4", "step 1000 is the last"], ""),
        (["hello"], ""),
    ],
)
def test_without_reports_the_output_tells_step_and_pace(tmp_path: Path, lines: list[str], expected: str) -> None:
    _rank(tmp_path, 10, _lines("step 1", "step 2"))
    _rank(tmp_path, 9, _lines(*lines))
    _rank(tmp_path, 9, [], stream="stderr")
    if not expected:
        expected = "step 2 · 2 s/step"  # of the next rank
    assert (found := progress_of(tmp_path, VIEW)) is not None
    assert found.words(NOW) == f"{expected} · last output 0 s ago"


@pytest.mark.parametrize(("pace", "expected"), [("3.05it/s", 3.05), ("4.00s/it", 0.25), ("?it/s", None)])
def test_a_progress_bar_tells_its_own_pace(tmp_path: Path, pace: str, expected: float | None) -> None:
    bars = [(NOW + i, f"\r{i}%|###   | {i}/400 [00:01<00:02, {pace}, loss=0.5]".encode()) for i in range(1, 5)]
    _rank(tmp_path, 0, bars, stream="stderr")
    assert (found := progress_of(tmp_path, VIEW)) is not None
    assert (found.step, found.total, found.steps_per_s) == (4, 400, expected)


def test_the_pace_is_of_the_end_of_a_long_log(tmp_path: Path) -> None:
    slow = _lines(*(f"step {i} {'x' * 90}" for i in range(1000)), every_s=50)
    fast = [(NOW + 50_000 + i, f"step {1000 + i} {'x' * 90}\n".encode()) for i in range(1000)]
    _rank(tmp_path, 0, [*slow, *fast])
    assert (found := progress_of(tmp_path, VIEW)) is not None
    assert (found.step, found.steps_per_s) == (1999, 1.0)


def test_no_attempt_that_runs_has_no_progress(tmp_path: Path) -> None:
    assert progress_of(tmp_path, VIEW) is None
    _rank(tmp_path, 0, _lines("step 1", "step 2"))
    assert progress_of(tmp_path, replace(VIEW, state=JobState.ENDED)) is None
    between = replace(VIEW, attempts=1)
    assert progress_of(tmp_path, between) is None
    _rank(tmp_path, 0, [], attempt=10)
    assert (found := progress_of(tmp_path, between)) is not None
    assert (found.attempt, found.words(NOW)) == (10, "no output yet")


@pytest.mark.real
@pytest.mark.parametrize("line", ["holdfast.progress(step)", "print('step', step, flush=True)"])
def test_jobs_and_show_tell_step_pace_and_output_of_a_running_job(holdfast: Holdfast, line: str) -> None:
    script = holdfast.script(
        f"""
        import os, time
        import holdfast
        step = 0
        print("begun", flush=True)
        while not os.path.exists("end"):
            step += 1
            {line}
            time.sleep(0.05)
        """
    )
    process = holdfast.start("run", "--no-checks", "--nproc-per-node", "2", "--name", "steps", script)

    def known() -> dict[str, Any]:
        jobs = json.loads(holdfast("jobs", "--json").out)["jobs"]
        found: dict[str, Any] = jobs[0]["progress"] if jobs else {}
        return found if found and found["steps_per_s"] and found["step"] > 1 else {}

    found = until(known, limit_s=60)
    assert found["attempt"] == 1 and found["last_output"] is not None
    shown = holdfast("show", "steps").out
    assert "  progress step " in shown and "last output" in shown
    assert json.loads(holdfast("show", "steps", "--json").out)["progress"]["step"] >= found["step"]
    listed = holdfast("jobs").out
    assert " · " in listed and " ago" in listed
    (holdfast.dir / "end").touch()
    assert holdfast.finish(process).status == 0
