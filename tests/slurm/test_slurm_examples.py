"""Each example of examples/slurm/, submitted to a real Slurm as a user would."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from real_slurm import USER, Slurm

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "slurm"


def _copied(place: Path, *, torch: bool = False) -> None:
    """`torch`: its import takes a second of a core in each worker, and one example with it is enough."""
    for file in EXAMPLES.iterdir():
        if file.is_file():
            shutil.copy(file, place)
    if not torch:
        (place / "torch.py").write_text("raise ImportError('no torch here')\n")


def _submitted(slurm: Slurm, *words: str, user: int | None = None) -> str:
    done = slurm.holdfast("submit", "--json", *words, user=user)
    assert done.wait() == 0, done.err
    number = str(json.loads(done.out)["platform"]["id"])
    slurm.jobs.append(int(number))
    return number


def _steps(slurm: Slurm, name: str) -> int:
    return (slurm.home / name).read_text().count("step 20 of 20")


@pytest.mark.parametrize("name", ["one-node", "many-nodes", "spares"])
def test_an_example_runs_to_its_end(slurm: Slurm, name: str) -> None:
    _copied(slurm.home, torch=name == "many-nodes")
    number = _submitted(slurm, f"{name}.yaml")
    assert slurm.ended(int(number))["ExitCode"] == "0:0", slurm.output(int(number))
    assert _steps(slurm, f"slurm-{number}.out") == 1
    assert "4 workers" in (slurm.home / f"slurm-{number}.out").read_text()
    shown = slurm.holdfast("show", number)
    assert shown.wait() == 0 and f"({name}) SUCCEEDED after 1 attempt" in shown.out
    logs = slurm.holdfast("logs", number, "--rank", "0", "--stdout")
    assert logs.wait() == 0 and "step 20 of 20" in logs.out
    if name == "spares":
        assert json.loads((slurm.home / f"spares-{number}.json").read_text())["outcome"] == "succeeded"


def test_the_array_is_six_jobs_with_a_report_each(slurm: Slurm) -> None:
    _copied(slurm.home)
    number = _submitted(slurm, "array.yaml")
    slurm.wait(lambda: len(list(slurm.home.glob(f"array-{number}_*.json"))) == 6, "all six have reported")
    slurm.wait(lambda: not slurm("squeue", "-h").strip(), "all are over")
    assert {_steps(slurm, f"slurm-{number}_{index}.out") for index in range(6)} == {1}
    listed = slurm.holdfast("jobs", "--json")
    assert listed.wait() == 0
    found = json.loads(listed.out)
    assert {job["platform"]["id"] for job in found["jobs"]} == {f"{number}_{index}" for index in range(6)}
    assert {job["outcome"] for job in found["jobs"]} == {"succeeded"}
    assert found["queued"] == []
    whole = slurm.holdfast("show", number)
    assert whole.wait() == 2 and f"{number} is an array of 6 jobs" in whole.err


def test_an_ordinary_user_in_a_directory_with_blanks_and_holdfast_in_no_path(slurm: Slurm) -> None:
    place = slurm.home / "my runs (2026) 'x'"
    place.mkdir()
    _copied(place)
    place.chmod(0o777)
    text = (place / "many-nodes.yaml").read_text().replace("[python,", f"[{sys.executable},")
    (place / "many-nodes.yaml").write_text(text)
    words = [sys.executable, "-m", "holdfast", "submit", "--json", "many-nodes.yaml"]
    script = 'cd "$1"; shift; PATH=/usr/bin:/bin exec "$@"'
    done = slurm.start("sh", "-c", script, "sh", str(place), *words, user=USER)
    assert done.wait() == 0, done.err
    number = json.loads(done.out)["platform"]["id"]
    slurm.jobs.append(int(number))
    record = slurm.ended(int(number))
    assert (record["ExitCode"], record["UserId"]) == ("0:0", f"ada({USER})")
    assert "step 20 of 20" in (place / f"slurm-{number}.out").read_text()
