"""Finds the place of a mistake in YAML that a person wrote. A parser notices many mistakes only lines later."""

from __future__ import annotations

import msgspec

from holdfast.lazy_pattern import Lazy
from holdfast.safe_text import one_line

_KEY_AND_VALUE = Lazy(r"\s*(?:- +)*[^\s:#][^:]*: +(?P<value>\S)")
_KEY = Lazy(r"(?:- +)*(?P<key>[\w.-]+)")
_NO_BLANK = Lazy(r"-\w")
_MOST_SHOWN = 110


class YamlMistake(msgspec.Struct, frozen=True):
    """A sentence about a mistake, and its place. Lines and columns count from 0."""

    said: str
    line: int
    column: int


def yaml_mistake(text: str, problem: str, at: tuple[int, int], begun: tuple[int, int] | None) -> YamlMistake:
    """Return the probable mistake in this YAML text. `problem`, `at`: as the parser reports them.

    `begun`: where the token or collection begins that the parser could not read.
    """
    lines = text.splitlines() or [""]
    row, column = min(at[0], len(lines) - 1), at[1]
    line = lines[row]
    letter = line[column : column + 1]
    first = begun or (row, column)
    match problem.split():
        case ["mapping", "values", *_]:
            return _too_many_colons(lines, row, column)
        case ["could", "not", "find", "expected", *_]:
            return _without_colon(lines, first[0])
        case ["found", "character", *_] | ["found", "a", "tab", *_] if "\t" in line[: column + 1]:
            return YamlMistake("a tab stands here; YAML takes blanks only", row, line.index("\t"))
        case ["found", "character", *_] if letter:
            return YamlMistake(f"a value that begins with `{letter}` needs quotes", row, column)
        case ["did", "not", "find", "expected", "alphabetic", *_]:
            return YamlMistake(f"a value that begins with `{lines[first[0]][first[1]]}` needs quotes", *first)
        case ["found", "unexpected", "end", *_] if begun is not None:
            return YamlMistake("the quote that begins here has no end", *begun)
        case ["did", "not", "find", "expected", "','", *_] if begun is not None:
            opened = lines[begun[0]][begun[1] : begun[1] + 1]
            return YamlMistake(f"the `{opened}` that opens here is not closed", *begun)
        case ["found", "unknown", "escape", *_]:
            return YamlMistake("a backslash in double quotes begins an escape; use single quotes", row, column)
        case ["did", "not", "find", "expected", "'-'", *_]:
            return YamlMistake(f"expected `- ` as in line {first[0] + 1}, which begins a list", row, column)
        case ["found", "unhashable", *_]:
            return YamlMistake("a text that begins with `{` needs quotes", *first)
        case ["but", "found", "another", *_]:
            return YamlMistake("one document was expected; a second one begins here", row, column)
        case ["did", "not", "find", "expected", "node", *_]:
            return YamlMistake("a value was expected here", row, column)
        case ["did", "not", "find", "expected", "key", *_]:
            return _no_key(lines, row, column)
    return YamlMistake(problem, row, column)


def excerpt(text: str, mistake: YamlMistake) -> str:
    """Return the line with the mistake and its neighbours, with a caret below the place. The text begins with a line
    end.
    """
    lines = text.splitlines() or [""]
    shown = []
    for row in range(max(0, mistake.line - 1), min(len(lines), mistake.line + 2)):
        line = _without_value(lines, row).replace("\t", " ")
        shown.append(f"    {row + 1:>4} | {one_line(line)[:_MOST_SHOWN]}")
        if row == mistake.line and mistake.column < _MOST_SHOWN:
            shown.append(f"         | {' ' * mistake.column}^")
    return "".join(f"\n{line}" for line in shown)


def _too_many_colons(lines: list[str], row: int, column: int) -> YamlMistake:
    line = lines[row]
    if ": " in line[:column]:
        return YamlMistake("a value with `: ` or a colon at its end needs quotes", row, column)
    above = _above(lines, row)
    if above is None:
        return YamlMistake("a key was not expected here", row, column)
    if _KEY_AND_VALUE.match(lines[above]) and _indent(line) > _indent(lines[above]):
        said = f"this line is indented deeper than line {above + 1}, which has a value already"
        return YamlMistake(said, row, _indent(line))
    return _without_colon(lines, above)


def _without_colon(lines: list[str], row: int) -> YamlMistake:
    line = lines[min(row, len(lines) - 1)]
    begin, bare = _indent(line), line.strip()
    if _NO_BLANK.match(bare):
        return YamlMistake("a blank is missing behind `-`", row, begin)
    key = _KEY.match(bare)
    end = begin + (key.end() if key else len(bare))
    if line[end : end + 1] == ":":
        return YamlMistake("a blank is missing behind the colon", row, end + 1)
    return YamlMistake(f"a colon is missing behind `{key['key'] if key else bare}`", row, end)


def _no_key(lines: list[str], row: int, column: int) -> YamlMistake:
    line, begin = lines[row], _indent(lines[row])
    if column > begin and line[:column].rstrip().endswith(("'", '"', "]", "}")):
        return YamlMistake("nothing may follow the end of a value", row, column)
    if column == begin and begin not in {_indent(each) for each in lines[:row] if each.strip()}:
        return YamlMistake("this line's indentation is that of no line above it", row, column)
    if line[begin:].startswith("- "):
        return YamlMistake("a list's `-` stands where a `key: value` was expected", row, begin)
    return YamlMistake("expected a `key: value` here", row, column)


def _above(lines: list[str], row: int) -> int | None:
    """Return the nearest line above that is neither empty nor a comment."""
    return next((at for at in range(row - 1, -1, -1) if lines[at].strip() and lines[at].strip()[0] != "#"), None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _without_value(lines: list[str], row: int) -> str:
    """Return line `row` for an excerpt of the file.

    If the line is below the key `secrets`, omit its values, which must not be displayed.
    """
    tops = [line for line in lines[:row] if line and not line[0].isspace() and line[0] != "#"]
    if not tops or not tops[-1].startswith("secrets") or not lines[row][:1].isspace():
        return lines[row]
    key, colon, _ = lines[row].partition(":")
    return f"{key}: …" if colon else " " * _indent(lines[row]) + "…"
