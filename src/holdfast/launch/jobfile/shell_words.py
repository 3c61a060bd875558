"""Splits a command line of a job file as a shell does. No shell runs the command, so shell syntax is refused."""

from __future__ import annotations

import re
import shlex

from holdfast.lazy_pattern import Lazy

OPERATORS = frozenset("|&;<>()\n")
GLOBS = frozenset("*?")
_OURS = Lazy(r"<%\s*\$[A-Za-z]\w*\.[^\s%]+\s*%>|\$(?:PAI|HOLDFAST)_[\w.-]*|\$\{(?:PAI|HOLDFAST)_[\w.-]*\}")
_HELD = Lazy(r"\0([0-9]+)\0")


def split(line: str) -> list[str]:
    """Return the words of `line`. Raises ValueError that names the first piece of shell syntax, or an open quote."""
    # Names that holdfast expands are not shell syntax: replace each by a placeholder while the line is split.
    ours: list[str] = []

    def held(found: re.Match[str]) -> str:
        ours.append(found[0])
        return f"\0{len(ours) - 1}\0"

    if "\0" not in line:
        line = _OURS.sub(held, line)
    if found := _syntax(line):
        raise ValueError(f"`{found}` is shell syntax, and no shell reads this line")
    try:
        words = shlex.split(line)
    except ValueError:
        raise ValueError("a quotation mark or a backslash at the end is left open") from None
    return [_HELD.sub(lambda found: ours[int(found[1])], word) for word in words] if ours else words


def _syntax(line: str) -> str:
    """Return the first piece that a shell would not take literally; empty if there is none."""
    quote = ""
    at = 0
    while at < len(line):
        char = line[at]
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            at += 1  # the next character is literal
        elif char == "`" or (char == "$" and line[at + 1 : at + 2].isidentifier()) or line[at : at + 2] in ("${", "$("):
            return char if char == "`" else line[at:].split()[0]
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in OPERATORS or char in GLOBS:
            return char.replace("\n", "a line break")
        at += 1
    return ""
