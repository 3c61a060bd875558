"""`python -m holdfast.report.failure_pages`: writes `docs/reference/failures/` from the catalogue.

There is one page for each failure class, and a list of all classes. Reports have the address of the page.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.catalogue.exit_codes import CONTRACT, SIGNALS
from holdfast.catalogue.exit_rows import ExitRow, Wording, read_rows
from holdfast.model.exit_report import Blame, Rerun

_BLOCKS: tuple[tuple[range, str], ...] = (
    (range(1), "Success"),
    (range(1, 3), "1 and 2: holdfast itself"),
    (SIGNALS, "129–159: signals"),
    (range(160, 180), "160–179: hardware"),
    (range(180, 190), "180–189: network, storage, external"),
    (range(190, 200), "190–199: platform"),
    (CONTRACT, "200–219: the worker's own contract"),
    (range(220, 250), "220–249: workload"),
    (range(250, 251), "250: stopped by an operator"),
    (range(251, 255), "251–254: platform"),
    (range(255, 256), "255: unexplained"),
)

#: Codes → the explanation of this block of codes, shown above its rows.
_NOTES: dict[range, str] = {
    range(1, 3): (
        "1: an internal error of holdfast. 2: wrong usage, or a job file that cannot be used; no worker was started."
    ),
    SIGNALS: "128 + N: signal N (1 to 31) ended the worker, and the cause is unknown. A higher signal has 137.",
    CONTRACT: (
        "A worker chooses these codes itself, and `run` exits with the same code (class UserException). 200 to 209 ask"
        " for another attempt; 210 to 219 say that another attempt cannot help."
    ),
}

_RERUN = {
    Rerun.NOW: "yes, at once",
    Rerun.LATER: "yes, after a wait",
    Rerun.ELSEWHERE: "yes, on another node or device",
    Rerun.NEVER: "no: it would fail again",
    Rerun.UNKNOWN: "not known: holdfast tries again while the budget lasts",
}

_FAULT = {
    Blame.WORKLOAD: "the program, its data or its configuration",
    Blame.HARDWARE: "a device or a machine",
    Blame.NETWORK: "the network",
    Blame.STORAGE: "storage",
    Blame.PLATFORM: "the platform that runs the job",
    Blame.EXTERNAL: "a service outside of the job",
    Blame.OPERATOR: "a person stopped the job",
    Blame.UNKNOWN: "not known",
}

_MADE = "<!-- Made by `python -m holdfast.report.failure_pages`. -->"
_SAMPLES_SHOWN = 12
_SAMPLE_CHARACTERS = 200


def pages(rows: Sequence[ExitRow]) -> dict[str, str]:
    """Return the text of every page by its file name: `index.md`, and one page for each failure class."""
    return {"index.md": _index(rows), **{f"{row.phrase}.md": _page(row) for row in rows}}


def _index(rows: Sequence[ExitRow]) -> str:
    lines = [
        "# Failure classes",
        "",
        _MADE,
        "",
        "Every way in which a job can end. A report names one class of this list; the class decides whether holdfast",
        "tries again. Classes of one block may share an exit code. In a terminal: `holdfast exits` lists the classes,",
        "`holdfast exits WORDS` searches them, and `holdfast exits CLASS` shows one.",
    ]
    for block, title in _BLOCKS:
        inside = sorted((row for row in rows if row.code in block), key=lambda row: (row.code, row.phrase))
        if inside or block in _NOTES:
            lines += ["", f"## {title}"]
        if block in _NOTES:
            lines += ["", *_filled(_NOTES[block])]
        if inside:
            lines += ["", "| code | class | what happened | try again |", "|---|---|---|---|"]
        lines += [
            f"| {row.code} | [{row.phrase}]({row.phrase}.md) | {row.what.rstrip('.')} | {_again(row)} |"
            for row in inside
        ]
    return "\n".join(lines) + "\n"


def _page(row: ExitRow) -> str:
    what = row.what[:1].upper() + row.what[1:].rstrip(".")
    lines = [
        f"# {row.phrase}",
        "",
        _MADE,
        "",
        *_filled(f"{what}."),
        "",
        "| | |",
        "|---|---|",
        f"| exit code | {row.code} |",
        f"| fault | {_FAULT[row.blame]} (`{row.blame}`) |",
        f"| does another attempt help? | {_again(row)} (`{row.rerun}`) |",
    ]
    if row.solution:
        lines += ["", "## What to do", "", *_filled(_without_fields(row.solution))]
    samples = list(_samples(row.wordings))
    if samples:
        lines += ["", "## How a log shows it", "", "Lines of this kind lead to this class:", "", "```text"]
        lines += [*samples[:_SAMPLES_SHOWN], "```"]
        if len(row.wordings) > _SAMPLES_SHOWN:
            lines += ["", f"`holdfast exits {row.phrase}` lists all {len(row.wordings)} patterns by name."]
    lines += ["", "[All failure classes](index.md)"]
    return "\n".join(lines) + "\n"


def _again(row: ExitRow) -> str:
    """Return a text on whether another attempt helps, for the row of a failure class."""
    if row.code == 0:
        return "not needed"
    if row.blame is Blame.OPERATOR:
        return "no: a person asked for the end"
    return _RERUN[row.rerun]


def _samples(wordings: Sequence[Wording]) -> Iterator[str]:
    """Yield a sample line for each pattern: the first line that the pattern matches in its first sample.

    A long line is cut.
    """
    for wording in wordings:
        if not wording.samples:
            continue
        lines = wording.samples[0].splitlines()
        line = next((line for line in lines if re.search(wording.pattern, line)), lines[0])
        yield line if len(line) <= _SAMPLE_CHARACTERS else line[:_SAMPLE_CHARACTERS] + " …"


def _without_fields(text: str) -> str:
    """Replace fields such as `{device}` by DEVICE, because only a report has values for them."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda field: field[1].upper(), text)


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the pages of the built-in rows, and remove the pages of removed rows."""
    folder = Path(__file__).parents[3] / "docs" / "reference" / "failures"
    made = pages(read_rows())
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
