"""A command line of a job file, split as a shell splits it. No shell runs it, so a shell's syntax is refused."""

from __future__ import annotations

import shlex

OPERATORS = frozenset("|&;<>()\n")
GLOBS = frozenset("*?")


def split(line: str) -> list[str]:
    """The words of `line`. Raises ValueError with what stands there, where only a shell would know what it means."""
    if found := _syntax(line):
        raise ValueError(f"`{found}` is shell syntax, and no shell reads this line")
    try:
        return shlex.split(line)
    except ValueError:
        raise ValueError("a quotation mark or a backslash at the end is left open") from None


def _syntax(line: str) -> str:
    """The first piece that a shell would not take literally; empty where there is none."""
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
