"""How well an explainer explains: every case to its standard input, an answer from its standard output, one table.

    python benchmarks/explain/score.py                        # the explainers of this repository, on the cases `dev`
    python benchmarks/explain/score.py --split test           # on those that nothing was tuned on
    python benchmarks/explain/score.py -- ./my-explainer      # any other program
    python benchmarks/explain/score.py --misses -- python …   # and where it was wrong
    python benchmarks/explain/score.py --write                # all explainers, both splits, into README.md
    python benchmarks/explain/score.py --smoke                # a few cases, for CI

The program is started once a case. It reads one JSON object: `logs` (of each rank: `rank`, `name`, `text`), `exits`
(of each rank whose end is known: `rank`, `code` or `signal`, `by_launcher` where the launcher ended it), `launcher`
(what the launcher printed), `kernel` (lines of the kernel log). It writes one: `phrase` (classes.csv), `blame`,
`culprits` (ranks), `retry` (no, now, later, elsewhere, unknown).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE / "README.md"
BUILT_IN = (
    ("holdfast", "holdfast_explain.py"),
    ("torchrun's first failure", "torchrun_first_failure.py"),
    ("last exception", "last_exception.py"),
    ("first exception", "first_exception.py"),
    ("list of greps", "grep_list.py"),
    ("OpenPAI's patterns", "openpai.py"),
)
#: What a wrong decision costs, in retries that fail at once: a stop costs a night, a healthy machine taken out more.
NEEDLESS_RETRY, NEEDLESS_STOP, WRONG_QUARANTINE = 1.0, 5.0, 10.0
#: Where one of these is to blame, another machine is a fair answer.
HARDWARE = {"hardware", "network", "storage", "platform", "unknown"}
LIMIT_S = 120.0
SMOKE = 6
NOISE_MB = 16


@dataclass(frozen=True)
class Judged:
    """One answer beside the truth."""

    case: dict[str, Any]
    said: dict[str, Any]
    seconds: float
    phrase: bool
    blame: bool
    #: Of the culprits; None where the case has the log of one rank or none: there is nothing to choose.
    f1: float | None
    cost: float
    #: The truth is Unexplained, and so is the answer.
    silent: bool


def classes() -> dict[str, str]:
    with (HERE / "classes.csv").open() as file:
        return {row["phrase"]: row["blame"] for row in csv.DictReader(file)}


def cases(split: str | None) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted((HERE / "cases").glob("*.json"))]
    blames = classes()
    for case in found:
        case["truth"]["blame"] = case["truth"]["blame"] or blames[case["truth"]["phrase"]]
    return [case for case in found if split is None or case["split"] == split]


def asked(case: dict[str, Any]) -> str:
    """What an explainer is given: neither the truth nor where the case comes from."""
    return json.dumps({key: case[key] for key in ("id", "logs", "exits", "launcher", "kernel")} | {"id": "case"})


def answered(words: Sequence[str], text: str) -> tuple[dict[str, Any], float]:
    """A program that fails has said nothing."""
    began = time.perf_counter()
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        said = json.loads(done.stdout)
        assert isinstance(said, dict)
    except (subprocess.TimeoutExpired, ValueError, AssertionError):
        said = {}
    return said, time.perf_counter() - began


def judge(case: dict[str, Any], said: dict[str, Any], seconds: float) -> Judged:
    truth = case["truth"]
    named, culprits = set(said.get("culprits") or ()), set(truth["culprits"])
    # Where all ranks fail alike no rank is the culprit: to name none, or all, is right.
    ranks = {log["rank"] for log in case["logs"]}
    alike = len(culprits) > 1 and len(culprits) == len(ranks)
    f1: float | None
    if len(ranks) < 2:
        f1 = None
    elif alike and named in (set(), culprits):
        f1 = 1.0
    else:
        both = len(named & culprits)
        f1 = 2 * both / (len(named) + len(culprits)) if named or culprits else 1.0
    phrases = {truth["phrase"], *truth["also_right"]}
    blames = {truth["blame"], *(classes()[phrase] for phrase in truth["also_right"])}
    retry, wanted = said.get("retry", "unknown"), truth["retry"]
    again = retry in ("now", "later", "elsewhere")
    cost = 0.0
    if retry == "elsewhere" and truth["blame"] not in HARDWARE:
        cost = WRONG_QUARANTINE
    elif wanted == "no" and again:
        cost = NEEDLESS_RETRY
    elif wanted in ("now", "later", "elsewhere") and retry == "no":
        cost = NEEDLESS_STOP
    return Judged(
        case=case,
        said=said,
        seconds=seconds,
        phrase=said.get("phrase") in phrases,
        blame=said.get("blame") in blames,
        f1=f1,
        cost=cost,
        silent=truth["phrase"] == "Unexplained" == said.get("phrase"),
    )


def run(words: Sequence[str], chosen: Sequence[dict[str, Any]], jobs: int) -> list[Judged]:
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(lambda case: answered(words, asked(case)), chosen)
        return [judge(case, *answer) for case, answer in zip(chosen, answers, strict=True)]


def ms_per_mb(words: Sequence[str]) -> float:
    """A case of one long log of training, less the time of the same case with a short one: the medians of three."""
    line = "2026-11-22 10:00:%02d,%03d [INFO] trainer: step %d loss 2.%04d lr 3.0e-04 tokens/s %d\n"
    many = "".join(line % (n % 60, n % 1000, n, n % 9999, 10000 + n % 777) for n in range(NOISE_MB * 12500))
    end = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\nKeyError: 'labels'\n"

    def seconds(text: str) -> float:
        case = {
            "id": "case",
            "logs": [{"rank": 0, "name": "0.log", "text": text}],
            "exits": [],
            "launcher": "",
            "kernel": [],
        }
        return statistics.median(answered(words, json.dumps(case))[1] for _ in range(3))

    return 1000 * (seconds(many + end) - seconds(end)) / (len(many) / 1e6)


def row(name: str, judged: Sequence[Judged], speed: float | None) -> list[str]:
    total = len(judged)
    blank = [one for one in judged if one.case["truth"]["phrase"] == "Unexplained"]
    told = [one for one in judged if one.case["truth"]["phrase"] != "Unexplained"]
    of_ranks = [one.f1 for one in judged if one.f1 is not None]
    return [
        name,
        f"{100 * sum(one.phrase for one in judged) / total:.0f} %",
        f"{100 * sum(one.blame for one in judged) / total:.0f} %",
        f"{statistics.fmean(of_ranks):.2f}" if of_ranks else "-",
        f"{statistics.fmean(one.cost for one in judged):.2f}",
        f"{sum(one.silent for one in blank)} of {len(blank)}",
        f"{100 * sum(one.said.get('phrase') == 'Unexplained' for one in told) / max(1, len(told)):.0f} %",
        f"{speed:.0f}" if speed is not None else "-",
    ]


HEAD = [
    "explainer",
    "phrase",
    "blame",
    "culprits (F1)",
    "cost of decisions",
    "silent where nothing is told",
    "silent otherwise",
    "ms per MB",
]


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in [HEAD, *rows]) for i in range(len(HEAD))]
    lines = [HEAD, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines
    )


def advice(judged: Sequence[Judged]) -> str:
    """How often a retry was said of a hopeless failure, how often one that cannot help, and a stop of what passes."""
    hopeless = [one for one in judged if one.case["truth"]["retry"] == "no"]
    passing = [one for one in judged if one.case["truth"]["retry"] in ("now", "later", "elsewhere")]
    again = [one for one in hopeless if one.said.get("retry") in ("now", "later", "elsewhere")]
    vain = [
        one
        for one in again
        if one.said.get("retry") != "elsewhere" or one.case["truth"]["blame"] not in HARDWARE - {"unknown"}
    ]
    stopped = sum(one.said.get("retry") == "no" for one in passing)
    return (
        f"retry said of a hopeless failure: {len(again)} of {len(hopeless)}; of these a retry that cannot help: "
        f"{len(vain)}; stop said of a failure that passes: {stopped} of {len(passing)}"
    )


def misses(judged: Sequence[Judged]) -> str:
    found = []
    for one in judged:
        wrong = [
            *([] if one.phrase else [f"phrase {one.said.get('phrase')} for {one.case['truth']['phrase']}"]),
            *([] if one.blame else [f"blame {one.said.get('blame')} for {one.case['truth']['blame']}"]),
            *(
                []
                if one.f1 in (1, None)
                else [f"culprits {one.said.get('culprits')} for {one.case['truth']['culprits']}"]
            ),
            *([] if not one.cost else [f"retry {one.said.get('retry')} for {one.case['truth']['retry']}"]),
        ]
        if wrong:
            found.append(f"{one.case['id']}: {'; '.join(wrong)}")
    return "\n".join(found)


def write(tables: dict[str, str], counts: dict[str, int]) -> None:
    """The part of the README between its two marks."""
    from importlib.metadata import version

    with_what = f"Python {platform.python_version()}, holdfast {version('holdfast-run')}"
    said = [f"Measured on {datetime.now(UTC).date()} with {with_what}.", ""]
    for split, text in tables.items():
        said += [f"**{split}**, {counts[split]} cases:", "", text, ""]
    begin, end = "<!-- results -->\n", "<!-- end of results -->"
    old = README.read_text()
    README.write_text(re.sub(f"{begin}.*{end}", lambda _: begin + "\n" + "\n".join(said) + end, old, flags=re.S))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Score an explainer of failed jobs.", usage="%(prog)s [options] [-- PROGRAM …]"
    )
    parser.add_argument(
        "program", nargs="*", help="what reads a case and writes an answer; none: those of this repository"
    )
    parser.add_argument("--split", choices=["dev", "test"], default="dev")
    parser.add_argument("--misses", action="store_true", help="name each wrong answer")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--write", action="store_true", help="both splits, into README.md")
    parser.add_argument("--smoke", action="store_true", help=f"{SMOKE} cases, without timing")
    chosen = parser.parse_args(arguments)
    programs = (
        [(" ".join(chosen.program), chosen.program)]
        if chosen.program
        else [(name, [sys.executable, str(HERE / "explainers" / file)]) for name, file in BUILT_IN]
    )
    speeds = {name: None if chosen.smoke else ms_per_mb(words) for name, words in programs}
    tables, counts = {}, {}
    for split in ("dev", "test") if chosen.write else (chosen.split,):
        mine = cases(split)
        mine = mine[:: max(1, len(mine) // SMOKE)] if chosen.smoke else mine
        rows = []
        for name, words in programs:
            judged = run(words, mine, chosen.jobs)
            rows.append(row(name, judged, speeds[name]))
            if chosen.misses:
                print(misses(judged))
            if chosen.misses or chosen.program:
                print(f"{name}: {advice(judged)}")
        tables[split], counts[split] = table(rows), len(mine)
        print(f"{split}: {len(mine)} cases\n{tables[split]}")
    if chosen.write:
        write(tables, counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
