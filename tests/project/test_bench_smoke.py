"""Each benchmark works, and the ways that must be fast import only what they need. No time is asserted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

BENCHES = sorted(path for path in (ROOT / "bench").glob("*.py") if '"--smoke"' in path.read_text(encoding="utf-8"))
BENCHES_ELSEWHERE = {
    "recovery": "below, with what it must see",
    "slurm": "takes a real Slurm: tests/slurm/test_slurm_bench.py",
    "kubernetes": "takes a real Kubernetes: tests/kubernetes/test_kubernetes_bench.py",
    "checks": "runs every pre-check under load: a minute on two cores",
}


@pytest.mark.real
@pytest.mark.parametrize(
    "bench", [path for path in BENCHES if path.stem not in BENCHES_ELSEWHERE], ids=lambda path: path.stem
)
def test_a_benchmark_works(bench: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, bench, "--smoke"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.real
def test_the_benchmark_of_recovery_sees_a_recovery(tmp_path: Path) -> None:
    bench = ROOT / "bench" / "recovery.py"
    done = subprocess.run(
        [sys.executable, bench, "--smoke"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| holdfast")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "1 of 1", "recovered"
    assert cells[-4:] == ["1 of 1"] * 4, "rank 1 named in every scenario"


def imported(*command: str, home: Path) -> set[str]:
    """The modules that a command imports, in all processes that Python itself makes of it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "holdfast", *command],
        env={**env, "HOLDFAST_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr, re.MULTILINE))


def modules_within(modules: set[str], *tops: str) -> list[str]:
    return sorted(name for name in modules if any(name == top or name.startswith(f"{top}.") for top in tops))


@pytest.mark.real
def test_a_job_that_succeeds_imports_neither_the_explainer_nor_a_library_it_does_not_use(tmp_path: Path) -> None:
    modules = imported("run", "--no-checks", "--no-python", "true", home=tmp_path)
    assert "holdfast.main.single_machine_run" in modules, "the finder works"
    assert modules_within(modules, "re2", "yaml", "rich", "psutil", "asyncio", "torch", "click", "dataclasses") == []
    assert modules_within(modules, "importlib.metadata", "http", "subprocess", "tempfile", "threading", "logging") == []
    assert modules_within(modules, "ctypes", "shutil", "random", "hashlib", "hmac", "secrets", "json") == []
    assert modules_within(modules, "holdfast.catalogue", "holdfast.decide.faults") == []
    explainer = {name.removeprefix("holdfast.explain") for name in modules_within(modules, "holdfast.explain")}
    # Small modules that pull in nothing: together they take less than a millisecond.
    small = {".causes.grace_kills", ".causes.left_running", ".logs.peer_errors", ".text.sentences"}
    small |= {".causes.plain_success", ".text.secret_filter", ".text.secret_masking"}
    assert explainer == {"", ".causes", ".logs", ".text"} | small


@pytest.mark.real
def test_a_job_without_checks_imports_nothing_of_them(tmp_path: Path) -> None:
    modules = imported("run", "--no-checks", "--no-python", "true", home=tmp_path)
    assert modules_within(modules, "holdfast.node.check_entry", "holdfast.observe.checks", "holdfast.decide.gate") == []
    assert (
        modules_within(modules, "holdfast.check_registry", "holdfast.check_profiles", "holdfast.launch.check_plan")
        == []
    )


@pytest.mark.real
def test_a_second_start_reads_no_standings_where_no_fault_was_noted(tmp_path: Path) -> None:
    imported("run", "--no-checks", "--no-python", "true", home=tmp_path)
    modules = imported("run", "--no-checks", "--no-python", "true", home=tmp_path)
    assert modules_within(modules, "holdfast.node.devices.fault_log", "holdfast.record.device_standings") == []


@pytest.mark.real
def test_the_command_line_imports_click_only_for_what_is_not_a_plain_run(tmp_path: Path) -> None:
    modules = imported("jobs", home=tmp_path)
    assert modules_within(modules, "click") != []
    assert modules_within(modules, "holdfast.main.single_machine_run", "rich", "yaml", "re2", "torch") == []


WATCHED = """
import re, re._compiler, sys
from holdfast.cli import main

compiled = re._compiler.compile

def watched(pattern, flags=0):
    frame = sys._getframe(1)
    while "/re/" in frame.f_code.co_filename:
        frame = frame.f_back
    asker = frame.f_code.co_filename
    if "/holdfast/" in asker or asker == "<string>":  # else a library does it while it is imported
        with open(sys.argv[1], "a") as told:
            told.write(f"{asker} {pattern!r}\\n")
    return compiled(pattern, flags)

re._compiler.compile = watched
re.compile("the watch works")
main(["run", "--no-checks", "--no-python", "true"])
"""


@pytest.mark.real
def test_a_start_compiles_no_pattern(tmp_path: Path) -> None:
    """Each costs up to a millisecond, and a table of imports does not show it. The report at the end may need some."""
    told = tmp_path / "told"
    told.touch()
    env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", WATCHED, told], env=env, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = told.read_text(encoding="utf-8").splitlines()
    assert lines[0].endswith("'the watch works'")
    assert lines[1:] == []
