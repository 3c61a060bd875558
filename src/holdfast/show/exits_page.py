"""`docs/exits.md`, made from the catalogue: `python -m holdfast.show.exits_page` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.catalogue.codes import CONTRACT, SIGNALS
from holdfast.catalogue.exits import ExitRow, read_rows
from holdfast.model.exits import Blame, Rerun

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

_NOTES: dict[range, str] = {
    range(1, 3): "1: a bug of holdfast. 2: bad usage, or a job file that cannot be used; no worker was started.",
    SIGNALS: "128 + N: signal N (1 to 31) ended the worker, and nothing says why. A higher signal has 137.",
    CONTRACT: (
        "A worker that ends with one of these speaks for itself, and `run` ends with the same status (phrase"
        " UserException): 200 to 209 say that another attempt may help, 210 to 219 that it cannot."
    ),
}
"""What a block means beside its rows."""

_RERUN = {
    Rerun.NOW: "try again at once",
    Rerun.LATER: "try again after a while",
    Rerun.ELSEWHERE: "try again elsewhere",
    Rerun.NEVER: "trying again is useless",
    Rerun.UNKNOWN: "whether trying again helps is not known",
}


def page(rows: Sequence[ExitRow]) -> str:
    """The whole page: a section a block of codes, a paragraph a phrase."""
    lines = [
        "# Exits",
        "",
        "Every way in which a job can end, as the catalogue has it. The phrase is the identity; phrases of one block",
        "may share a code. `holdfast exits` lists and searches the same, `holdfast exits PHRASE` has its wordings.",
        "",
        "This page is made by `python -m holdfast.show.exits_page`.",
    ]
    for block, title in _BLOCKS:
        inside = sorted((row for row in rows if row.code in block), key=lambda row: (row.code, row.phrase))
        if inside or block in _NOTES:
            lines += ["", f"## {title}"]
        if block in _NOTES:
            lines += ["", *_filled(_NOTES[block])]
        for row in inside:
            lines += ["", f"### {row.phrase}", "", *_paragraph(row)]
    return "\n".join(lines) + "\n"


def _paragraph(row: ExitRow) -> list[str]:
    blame = "" if row.blame is Blame.UNKNOWN else f"; blame: {row.blame.value}"
    what = row.what[:1].upper() + row.what[1:].rstrip(".")
    lines = _filled(f"{what}. Code {row.code}{blame}; {_RERUN[row.rerun]}.")
    # A solution with fields only reads well once they are filled in.
    if row.solution and "{" not in row.solution:
        lines += ["", *_filled(row.solution)]
    return lines


def _filled(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the page of the built-in rows."""
    target = Path(__file__).parents[3] / "docs" / "exits.md"
    target.write_text(page(read_rows()), encoding="utf-8")


if __name__ == "__main__":
    main()
