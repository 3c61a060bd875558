"""The README on PyPI's page: its links lead to pages, its report is a real one, its figures are measured.

`HOLDFAST_WRITE_DOCS=1 pytest tests/project/test_readme.py` writes report and figures anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

import pytest

from conftest import Holdfast
from places import ROOT

README = ROOT / "README.md"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
LAUNCHERS = ("holdfast cold", "holdfast warm", "torchrun fresh store", "ft_launcher", "dlrover-run")
OVER_NODES = ("holdfast", "holdfast warm", "torchrun", "ft_launcher", "")
README_HEAD = ("", "holdfast", "holdfast --warm", "torchrun", "NVRx (ft_launcher)", "DLRover (dlrover-run)", "command")
#: Of each row of the comparison: its words, where its table begins on the page of benchmarks, and the column.
README_ROWS = (
    ("a rank is killed: until the next step, 2 ranks", "**kill, 2 ranks**", "death → common step"),
    ("the same, 8 ranks", "**kill, 8 ranks**", "death → common step"),
    ("the same, a peer ignores SIGTERM", "**stubborn, 2 ranks**", "death → common step"),
    ("two ranks die: the first one is named", "**double, 2 ranks**", "rank 1 named"),
    ("a rank hangs: the job recovers", "**hang, 2 ranks**", "recovered"),
    ("memory of the launcher", "**none, 2 ranks**", "of the launcher"),
    ("3 nodes, one loses power: the next step on 2", "<!-- begin nodes -->", "power cut → common step, 2 of 3 nodes"),
)  # fmt: skip


def _figures(begin: str, column: str) -> dict[str, str]:
    """By launcher, the medians of one column."""
    page = (ROOT / "docs" / "internals" / "benchmarks.md").read_text(encoding="utf-8")
    lines = page[page.index(begin) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    at = table[0].index(column)
    return {row[0]: re.sub(r" \([^)]*\)", "", row[at]) for row in table[2:]}


def _compared() -> str:
    lines = ["| " + " | ".join(README_HEAD) + " |", "|" + "---|" * len(README_HEAD)]
    for words, begin, column in README_ROWS:
        nodes = "nodes" in begin
        found = _figures(begin, column)
        cells = [found.get(name, "not measured") for name in (OVER_NODES if nodes else LAUNCHERS)]
        lines.append(f"| {words} | {' | '.join(cells)} | `python bench/{'nodes' if nodes else 'launchers'}.py` |")
    return "\n".join(lines)


def _report() -> str:
    """What the first tutorial shows, up to the list of its attempts."""
    page = (ROOT / "docs" / "tutorials" / "first-failure.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ holdfast show train[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown is not None
    lines = shown[1].splitlines()
    end = next((number for number, line in enumerate(lines) if line.startswith("  attempts ")), len(lines))
    return "\n".join(["```", *lines[:end], "```"])


@pytest.mark.parametrize(("name", "made"), [("report", _report), ("compared", _compared)])
def test_what_the_readme_shows_is_what_was_measured(name: str, made: object) -> None:
    assert callable(made)
    text = README.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, _, rest = text.partition(begin)
    shown, _, after = rest.partition(end)
    wanted = f"{made()}\n"
    if os.environ.get("HOLDFAST_WRITE_DOCS"):
        README.write_text(f"{before}{begin}{wanted}{end}{after}", encoding="utf-8")
        return
    assert shown == wanted, "make it anew: HOLDFAST_WRITE_DOCS=1 pytest tests/project/test_readme.py"


#: Of the output of a run: what differs from run to run, and what stands for it here.
DIFFERS = (
    (r"\d{8}-\d{4}-\w{4}", "JOB"),
    (r"logs in \S+/jobs/", "logs in HOME/jobs/"),
    (r"\(pid \d+\)", "(pid N)"),
    (r" on [\w.-]+(?=[:,])", " on NODE"),
    (r"(?<=, )(?:\d+ min )?\d+(?:\.\d)? s\b", "N s"),
    (r"from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "from TIME"),
)
#: A rank that is stopped before or while it prints its traceback is missing in that line, or has one of its own.
FOLDED = re.compile(
    r"\[worker-[0-9, ]+\] (ConnectionResetError: .*|a traceback without its end) "
    r"\(after the exit of rank 1; whole text in the logs\)"
)


@pytest.mark.real
def test_the_first_job_of_the_readme_prints_what_the_readme_shows(holdfast: Holdfast) -> None:
    text = README.read_text(encoding="utf-8")
    shown = re.search(r"<!-- begin first -->\n```\n(.*?)```\n<!-- end first -->", text, re.DOTALL)
    typed = re.search(r"\.venv/bin/holdfast (run .*)$", text, re.MULTILINE)
    assert shown is not None
    assert typed is not None
    *options, script = typed[1].split()
    ran = subprocess.run(
        [holdfast.python, "-m", "holdfast", *options, str(ROOT / script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**holdfast.env, "HOLDFAST_UTC": "1"},
        cwd=holdfast.dir,
        timeout=120,
        check=True,
    )

    def known(output: str) -> list[str]:
        for pattern, word in DIFFERS:
            output = re.sub(pattern, word, output)
        return output.splitlines()

    def folded(lines: list[str]) -> list[str]:
        return [line for line in lines if FOLDED.fullmatch(line)]

    def of(writer: str, lines: list[str]) -> list[str]:
        """On a busy machine a worker's line may come after one of holdfast's that was printed later."""
        return [line for line in lines if line.startswith("[worker-") == (writer == "workers")]

    here, there = known(ran.stdout), known(shown[1])
    for writer in ("workers", "holdfast"):
        told, printed = ([line for line in of(writer, lines) if line not in folded(lines)] for lines in (there, here))
        assert printed == told
    assert len(folded(there)) == 1
    assert len(folded(here)) <= 2, "one line of all ranks, and one of those that were stopped while they printed"


def test_every_link_of_the_readme_works_on_another_site_and_leads_to_a_page_that_is_there() -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8")):
        page, _, anchor = target.partition("#")
        if page.startswith(URLS["Documentation"]):
            name = page.removeprefix(URLS["Documentation"]).strip("/")
            places = [ROOT / "docs" / f"{name}.md", ROOT / "docs" / name / "index.md"]
            found = [place for place in places if place.is_file()]
            titles = re.findall(r"^#+ (.+)$", found[0].read_text(encoding="utf-8"), re.MULTILINE) if found else []
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            if not found or (anchor and anchor not in anchors):
                broken.append(target)
        elif page.startswith(f"{URLS['Source']}/blob/main/"):
            if not (ROOT / page.removeprefix(f"{URLS['Source']}/blob/main/")).exists():
                broken.append(target)
        elif not page.startswith("https://"):
            broken.append(target)
    assert broken == []
