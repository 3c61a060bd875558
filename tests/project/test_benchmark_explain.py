"""The benchmark of explaining: its cases are whole, its halves apart, its scores what the page says."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from places import ROOT
from tables import rows

PLACE = ROOT / "benchmarks" / "explain"
BENCHMARK_CASES: list[dict[str, Any]] = [
    json.loads(path.read_text()) for path in sorted((PLACE / "cases").glob("*.json"))
]
with (PLACE / "classes.csv").open() as file:
    PHRASES = {row["phrase"] for row in csv.DictReader(file)}


def all_text(case: dict[str, Any]) -> str:
    return "".join([*(log["text"] for log in case["logs"]), case["launcher"], "\n".join(case["kernel"])])


def test_there_are_enough_cases_of_each_sort() -> None:
    how = [case["provenance"]["how"] for case in BENCHMARK_CASES]
    assert len(BENCHMARK_CASES) >= 250
    assert how.count("provoked") >= 150
    assert sum(bool(case["kernel"]) for case in BENCHMARK_CASES) >= 15
    assert all(sum(case["split"] == split for case in BENCHMARK_CASES) >= 100 for split in ("dev", "test"))


def test_no_kind_stands_on_both_sides() -> None:
    sides = defaultdict(set)
    for case in BENCHMARK_CASES:
        sides[case["provenance"]["kind"].removesuffix("-alike")].add(case["split"])
    assert [kind for kind, found in sides.items() if len(found) > 1] == []


@rows("case", BENCHMARK_CASES, lambda case: case["id"])
def test_a_case_is_whole(case: dict[str, Any]) -> None:
    truth, readers = case["truth"], case["readers"]
    assert {truth["phrase"], *truth["also_right"], readers["second"]} <= PHRASES
    assert truth["retry"] in ("no", "now", "later", "elsewhere", "unknown")
    assert all(word in all_text(case) for word in truth["decisive"])
    assert readers["agreed"] == (readers["second"] in {truth["phrase"], *truth["also_right"]})
    if case["provenance"]["how"] == "public":
        assert case["provenance"]["where"].startswith("https://")
        assert len(all_text(case)) < 1800, "only the lines that decide are quoted"
    else:
        ended = {one["rank"] for one in case["exits"] if one["code"] or one["signal"]}
        assert set(truth["culprits"]) <= {log["rank"] for log in case["logs"]} | ended
        assert case["launcher"] or ended or truth["phrase"] == "CollectiveMismatch"


def test_an_explainer_that_knows_the_truth_is_always_right(tmp_path: Path) -> None:
    """It finds each case by its logs; nothing else is given to it."""
    teller = tmp_path / "teller.py"
    teller.write_text(
        "import json, sys, pathlib\nasked = json.load(sys.stdin)\n"
        f"for path in pathlib.Path({str(PLACE / 'cases')!r}).glob('*.json'):\n"
        "    case = json.loads(path.read_text())\n"
        "    if all(case[key] == asked[key] for key in ('logs', 'launcher', 'kernel', 'exits')):\n"
        "        assert 'truth' not in asked and asked['id'] == 'case'\n"
        "        print(json.dumps(case['truth']))\n        break\n"
    )
    words = [sys.executable, str(PLACE / "score.py"), "--smoke", "--misses", "--", sys.executable, str(teller)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    row = [cell.strip() for cell in done.stdout.splitlines()[-1].strip("|").split("|")]
    assert row[1] == "100 %"
    assert row[4] == "0.00"


def test_the_second_reader_sees_neither_the_truth_nor_the_name() -> None:
    words = [sys.executable, str(PLACE / "readers.py"), "blind", "x"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.count("\n") > len(BENCHMARK_CASES)
    for case in BENCHMARK_CASES[:: len(BENCHMARK_CASES) // 20]:
        assert case["id"] not in told
    assert "also_right" not in told
    assert "provenance" not in told


def test_the_same_log_in_another_form_keeps_its_class() -> None:
    words = [sys.executable, str(PLACE / "paraphrases.py"), "--every", "40"]
    found = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert found[0] == found[1]  # a seed draws always the same
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()[2:]]
    assert len(lines) == 14
    assert all(int(total) >= 1 for _, total, *_ in lines)
    name, total, lost, _ = lines[-1]
    assert (name, int(total) > 150) == ("all", True)
    assert int(lost) <= 0.03 * int(total)
