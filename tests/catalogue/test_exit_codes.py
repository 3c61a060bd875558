"""The blocks of final codes: what may be a row's, what `holdfast exits N` answers, and that no failure ends with 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import Holdfast
from holdfast.catalogue import exit_codes, exit_rows
from holdfast.cli.exits import command
from holdfast.explain.row_lint import lint
from holdfast.model.exit_report import Blame

ROW = """
- phrase: {phrase}
  code: {code}
  blame: {blame}
  rerun: never
  what: x
  solution: "{solution}"
  wordings:
    - {{id: t1, pattern: 'zzz one', samples: ["zzz one"]}}
"""


def rows(code: int, *, phrase: str = "Mine", blame: str = "workload", solution: str = "do") -> str:
    return ROW.format(phrase=phrase, code=code, blame=blame, solution=solution)


def rules(text: str) -> set[str]:
    return {problem.rule for problem in lint(text, "mine.yaml")}


def asked(*words: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(command, [*words, "--json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)["exits"]
    return found


@pytest.mark.parametrize("code", [-1, 0, 1, 2, 127, 134, 165, 185, 198, 200, 205, 219, 250, 255, 256, 300])
def test_a_workload_row_outside_its_block_is_refused(code: int) -> None:
    assert rules(rows(code)) == {"bad-code"}


@pytest.mark.parametrize("blame", [blame for blame in Blame if blame is not Blame.WORKLOAD])
def test_each_blame_has_its_block(blame: Blame) -> None:
    allowed = {code for block in exit_codes.BLOCKS[blame] for code in block}
    refused = {code for code in range(-1, 301) if rules(rows(code, blame=blame.value)) == {"bad-code"}}
    assert refused == set(range(-1, 301)) - allowed


def test_a_row_without_a_solution_is_refused() -> None:
    assert rules(rows(221, solution=" ")) == {"empty-solution"}


def test_a_row_that_adds_to_a_built_in_phrase_keeps_its_code() -> None:
    assert rules(rows(252, phrase="CheckFailed", blame="hardware")) == set()
    assert rules(rows(253, phrase="CheckFailed", blame="hardware")) == {"bad-code"}


def test_the_built_in_rows_keep_to_the_blocks() -> None:
    own = {"Succeeded", "KilledBySignal", "Unexplained", "CheckFailed", "KilledByDiskCleaner"}
    wrong = {row.phrase: exit_codes.misfits(row) for row in exit_rows.load().rows if row.phrase not in own}
    assert {phrase: why for phrase, why in wrong.items() if why} == {}


@pytest.mark.parametrize("code", [0, 300, 165, 205])
def test_a_refused_row_is_not_loaded_and_the_job_fails(holdfast: Holdfast, code: int) -> None:
    file = holdfast.script(rows(code), "mine.yaml")
    script = holdfast.script("import sys\nprint('zzz one')\nsys.exit(1)\n")
    ran = holdfast.run("--max-restarts", "0", "--exits", file, script)
    assert (ran.status, ran.report["code"]) == (255, 255)
    assert f"row 1 (Mine) is skipped: code {code} " in ran.err


@pytest.mark.parametrize(
    ("code", "phrase"),
    [
        (0, "Succeeded"),
        (1, "HoldfastBug"),
        (2, "BadUsage"),
        (255, "Unexplained"),
        (137, "KilledBySignal"),
        (170, "AskedByComponent"),
    ]
    + [(128 + number, "KilledBySignal") for number in range(1, 32)]
    + [(code, "UserException") for code in exit_codes.CONTRACT],
)
def test_every_code_that_run_can_return_is_answered(code: int, phrase: str) -> None:
    assert phrase in [row["phrase"] for row in asked(str(code))]


def test_a_crash_has_one_code(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", "--no-python", "sh", "-c", "kill -ABRT $$")
    assert (ran.status, ran.report["phrase"]) == (234, "NativeCrash")


def test_words_find_whole_words_and_phrases_first() -> None:
    phrases = [row["phrase"] for row in asked("oom")]
    assert phrases[0] == "AcceleratorOutOfMemory"
    assert "TooManyOpenFiles" in phrases, "t-oom-any: a part of a word counts last"
    assert phrases.index("HostOutOfMemoryKilled") < phrases.index("TooManyOpenFiles")


@pytest.mark.parametrize("words", [["exits"], ["faults", "list"], ["check", "--list"], ["jobs"], ["config"]])
def test_a_reader_that_left_is_no_error(words: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path)},
        check=False,
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")
