"""Formats a table of words, as `holdfast jobs` prints it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: A word that is shortened keeps at least this many letters.
_LEAST = 8


def table(rows: list[tuple[str, ...]], paint: Callable[[int, str, str], str] | None = None) -> str:
    """Format rows as a table. Each column is as wide as its widest word, and two blanks separate the columns.

    `paint(column, word, padded)` returns the padded word in colour.
    """
    wide = _widths(rows)
    shown = paint or (lambda _column, _word, padded: padded)
    return "\n".join(
        "  ".join(shown(at, word, f"{word:<{wide[at]}}") for at, word in enumerate(line)).rstrip() for line in rows
    )


def fitted(
    rows: list[tuple[str, ...]], width: int, *, drop: Sequence[str], cut: Sequence[str]
) -> list[tuple[str, ...]]:
    """Make the table's rows fit into `width` characters. First drop the columns in `drop`, in order. Then shorten words
    in the columns of `cut`.

    `drop` and `cut` name columns by their titles in the first row. A row that still does not fit stays wider.
    """
    for title in drop:
        if _total(rows) <= width:
            break
        if title in rows[0]:
            at = rows[0].index(title)
            rows = [(*line[:at], *line[at + 1 :]) for line in rows]
    places = [rows[0].index(title) for title in cut if title in rows[0]]
    while places and (over := _total(rows) - width) > 0:
        wide = _widths(rows)
        at = max(places, key=lambda place: wide[place])
        if wide[at] <= _LEAST:
            break
        # Shorten the widest column first, until it is as wide as the second widest.
        others = [wide[place] for place in places if place != at and wide[place] < wide[at]]
        size = max(_LEAST, wide[at] - over, *(others or [0]))
        rows = [(*line[:at], _cut(line[at], size), *line[at + 1 :]) for line in rows]
        if size == wide[at]:
            break
    return rows


def _cut(word: str, size: int) -> str:
    return word if len(word) <= size else f"{word[: size - 1]}…"


def _widths(rows: list[tuple[str, ...]]) -> list[int]:
    return [max(len(line[column]) for line in rows) for column in range(len(rows[0]))]


def _total(rows: list[tuple[str, ...]]) -> int:
    wide = _widths(rows)
    return sum(wide) + 2 * (len(wide) - 1)
