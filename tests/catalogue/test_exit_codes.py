"""The blocks of final codes: what may be a row's, what `holdfast exits N` answers, and that no failure ends with 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue_builders import broken_rules
from click.testing import CliRunner
from msgspec.structs import replace

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

#: The codes around each end of each block.
CODE_EDGES = sorted(
    {end + beside for blocks in exit_codes.BLOCKS.values() for block in blocks for end in (block.start, block.stop)
     for beside in (-1, 0)} | {-1, 0, 1, 128, 300}
)  # fmt: skip


def row_of_code(code: int, *, phrase: str = "Mine", blame: str = "workload", solution: str = "do") -> str:
    return ROW.format(phrase=phrase, code=code, blame=blame, solution=solution)


def exits_listed(*words: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(command, [*words, "--json"])
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)["exits"]
    return found


@pytest.mark.parametrize("code", [-1, 0, 1, 2, 127, 134, 165, 185, 198, 200, 205, 219, 250, 255, 256, 300])
def test_a_workload_row_outside_its_block_is_refused(code: int) -> None:
    assert broken_rules(row_of_code(code)) == {"bad-code"}


@pytest.mark.parametrize("blame", [blame for blame in Blame if blame is not Blame.WORKLOAD])
def test_each_blame_has_its_block(blame: Blame) -> None:
    allowed = {code for block in exit_codes.BLOCKS[blame] for code in block}
    [row] = exit_rows.parse_rows(row_of_code(221, blame=blame.value))
    assert {code for code in range(-1, 301) if not exit_codes.misfits(replace(row, code=code))} == allowed
    each = [row_of_code(code, phrase=f"Mine{code}", blame=blame.value) for code in CODE_EDGES]
    refused = [problem.where for problem in lint("".join(each), "mine.yaml") if problem.rule == "bad-code"]
    assert refused == [f"row {n} (Mine{code})" for n, code in enumerate(CODE_EDGES, 1) if code not in allowed]


def test_a_row_without_a_solution_is_refused() -> None:
    assert broken_rules(row_of_code(221, solution=" ")) == {"empty-solution"}


def test_a_row_that_adds_to_a_built_in_phrase_keeps_its_code() -> None:
    assert broken_rules(row_of_code(252, phrase="CheckFailed", blame="hardware")) == set()
    assert broken_rules(row_of_code(253, phrase="CheckFailed", blame="hardware")) == {"bad-code"}


def test_the_built_in_rows_keep_to_the_blocks() -> None:
    own = {"Succeeded", "KilledBySignal", "Unexplained", "CheckFailed", "KilledByDiskCleaner"}
    wrong = {row.phrase: exit_codes.misfits(row) for row in exit_rows.load().rows if row.phrase not in own}
    assert {phrase: why for phrase, why in wrong.items() if why} == {}


@pytest.mark.real
def test_refused_rows_are_not_loaded_and_the_job_fails(holdfast: Holdfast) -> None:
    refused = {"Zero": 0, "Beyond": 300, "Hardware": 165, "Contract": 205}
    file = holdfast.script("".join(row_of_code(code, phrase=phrase) for phrase, code in refused.items()), "mine.yaml")
    script = holdfast.script("import sys\nprint('zzz one')\nsys.exit(1)\n")
    ran = holdfast.run("--max-restarts", "0", "--exits", file, script)
    assert (ran.status, ran.report["code"]) == (255, 255)
    for number, (phrase, code) in enumerate(refused.items(), 1):
        assert f"row {number} ({phrase}) is skipped: code {code} " in ran.err


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
    assert phrase in [row["phrase"] for row in exits_listed(str(code))]


@pytest.mark.real
def test_a_crash_has_one_code(holdfast: Holdfast) -> None:
    ran = holdfast.run("--max-restarts", "0", "--no-python", "sh", "-c", "kill -ABRT $$")
    assert (ran.status, ran.report["phrase"]) == (234, "NativeCrash")


def test_words_find_whole_words_and_phrases_first() -> None:
    phrases = [row["phrase"] for row in exits_listed("oom")]
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
