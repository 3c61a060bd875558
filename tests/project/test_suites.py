"""Which tests a command of pytest asks for; what may fail once; what a killed test run leaves behind."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import date

import pytest

import suites
import unsteady
from leftovers import TOKEN_PREFIX, living
from places import TESTS

EVERYTHING = frozenset(suites.BY_NAME)


def left_out(words: str, markers: str, file: str = "main/test_run_ways.py", name: str = "test_a", **how: bool) -> str:
    """`words`: paths as typed below `tests`; an expression behind ` -m `."""
    paths, _, expression = words.partition(" -m ")
    typed = [str(TESTS / path) for path in paths.split()]
    chosen = suites.choice(typed, expression, everything=how.get("everything", False))
    return chosen.left_out(frozenset(markers.split()), TESTS / file, name)


@pytest.mark.parametrize(
    ("words", "markers", "suite"),
    [
        ("", "", ""),
        ("", "real key", ""),
        ("", "real", "real"),
        ("", "real slurm", "slurm"),
        ("", "torch", "torch"),
        (" -m slurm", "real slurm", ""),
        (" -m slurm", "real slurm bundle", "bundle"),
        (" -m real", "real slurm", "slurm"),
        (" -m real", "real", ""),
        (" -m not real", "real slurm", "slurm"),
        (" -m not real", "drill", "drill"),
        (" -m not slurm", "real", "real"),
        (" -m drill or (torch and not slurm)", "drill torch", ""),
        (" -m drill or (torch and not slurm)", "slurm", "slurm"),
        (" -m not (not browser)", "browser", ""),
        (" -m this is no expression", "browser", "browser"),
        ("main", "real", "real"),
        ("main/test_run_ways.py", "real", ""),
        ("main/test_run_ways.py", "real torch", "torch"),
        ("main/test_run_ways.py::test_a", "real torch", ""),
        ("main/test_run_ways.py::test_ab", "real torch", "torch"),
    ],
)
def test_a_suite_runs_when_it_is_asked_for(words: str, markers: str, suite: str) -> None:
    assert left_out(words, markers) == suite


def test_a_path_below_a_suites_folder_asks_for_it() -> None:
    for word in ("slurm", "slurm/test_slurm_itself.py"):
        assert left_out(word, "slurm real", "slurm/test_slurm_itself.py") == ""
        assert left_out(word, "drill", "slurm/test_slurm_itself.py") == "drill"
    assert left_out("", "slurm real", "slurm/test_slurm_itself.py") == "slurm"


def test_an_id_with_parameters_is_that_of_its_test() -> None:
    word = "main/test_run_ways.py::TestA::test_b"
    assert left_out(word, "real torch", name="TestA::test_b[x]") == ""
    assert left_out(word, "real torch", name="TestA::test_c") == "torch"
    assert left_out("main/test_run_ways.py::TestA", "real torch", name="TestA::test_c") == ""


def test_everything_asks_for_every_suite() -> None:
    for name in EVERYTHING:
        assert left_out("", f"real {name}", everything=True) == ""


def test_a_suite_that_was_asked_for_and_cannot_run_fails_with_the_line_to_type() -> None:
    run = """
        import pytest, suites
        suites._missing = lambda name: "there is no slurmctld here" if name == "slurm" else ""
        class Item:
            def iter_markers(self):
                return [pytest.mark.slurm.mark, pytest.mark.real.mark]
        suites.must_be_able_to_run(Item())
    """
    code = "\n".join(line[8:] for line in run.splitlines())
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=False)
    assert "the suite `slurm` was asked for and cannot run here: there is no slurmctld here" in done.stderr
    assert "try: apt-get install slurm-wlm" in done.stderr


TODAY = date(2026, 3, 20)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("# a comment\n\n2026-03-07 tests/project/test_suites.py::test_a waits for a slow disk\n", ""),
        ("2026-03-05 tests/project/test_suites.py::test_a waits for a slow disk\n", "added 15 days ago"),
        ("2026-03-21 tests/project/test_suites.py::test_a waits for a slow disk\n", "added -1 days ago"),
        ("2026-03-20 tests/project/test_suites.py::test_a\n", "expected `DATE TEST-ID REASON`"),
        ("2026-03-20 tests/project/test_gone.py::test_a why\n", "there is no file tests/project/test_gone.py"),
        ("2026-03-20 tests/project/test_suites.py::test_a why\n" * 6, "6 tests are excused; at most 5 may be"),
    ],
)
def test_the_list_of_unsteady_tests_is_short_and_young(text: str, mistake: str) -> None:
    found, mistakes = unsteady.read_list(text, TODAY)
    assert bool(mistakes) is bool(mistake) and mistake in " ".join(mistakes)
    assert mistake or found[0].reason == "waits for a slow disk"


def test_what_a_killed_test_run_has_started_is_ended() -> None:
    """Its own token is of the process that is killed, whose guard looks for it."""
    code = """
import os, subprocess, sys, time
from leftovers import guard, new_token
process = guard()
subprocess.Popen(["sleep", "600"], env={**os.environ, new_token(): "1"}, start_new_session=True)
print(os.getpid(), flush=True)
time.sleep(600)
"""
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True)
    with killed:
        assert killed.stdout is not None
        token = f"{TOKEN_PREFIX}_{int(killed.stdout.readline())}_"
        assert any("sleep 600" in line for line in living_with_prefix(token))
        killed.kill()
    deadline = time.monotonic() + 60
    while living_with_prefix(token):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def living_with_prefix(prefix: str) -> list[str]:
    import psutil

    names = {name for process in psutil.process_iter() for name in _environ_of(process) if name.startswith(prefix)}
    return [line for name in names for line in living(name)]


def _environ_of(process: object) -> dict[str, str]:
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        return process.environ()
    except psutil.Error:
        return {}
