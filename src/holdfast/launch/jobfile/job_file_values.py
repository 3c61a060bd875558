"""Reads values of a job file: commands, variables, and texts as they were written.

A command line is split as a shell splits it. No shell runs the command, so shell syntax is refused. Some values keep
the text that the user wrote: `0.10` is the number 0.1 in YAML, but a command needs the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.launch.jobfile.job_file_mistakes import Mistakes
from holdfast.lazy_pattern import Lazy
from holdfast.untrusted import yaml_nodes

if TYPE_CHECKING:
    import yaml

OPERATORS = frozenset("|&;<>()\n")
GLOBS = frozenset("*?")
_OURS = Lazy(r"<%\s*\$[A-Za-z]\w*\.[^\s%]+\s*%>|\$(?:PAI|HOLDFAST)_[\w.-]*|\$\{(?:PAI|HOLDFAST)_[\w.-]*\}")
_HELD = Lazy(r"\0([0-9]+)\0")


def command_of(found: Mistakes, where: str, said: list[str] | str) -> tuple[str, ...]:
    """Return the words of a command in the file (`said`, at the path `where`). If the command is invalid, add a mistake
    to `found` and return ().
    """
    words = said
    if isinstance(words, str):
        try:
            words = split(words)
        except ValueError as error:
            lists = "[" + ", ".join(("sh", "-c", repr(said))) + "]"
            found.add(where, f"{error}; to have it run by a shell, write {lists}")
            return ()
    if not words or not words[0]:
        found.add(where, "expected a command, as in [python, train.py]")
        return ()
    if any("\0" in word for word in words):
        found.add(where, "expected words without NUL characters")
    return tuple(words)


def env_of(found: Mistakes, where: str, said: Mapping[str, str | float | bool]) -> dict[str, str]:
    """Return the variables for a process (`said`, at the path `where`) as text. Add a mistake to `found` for an invalid
    name."""
    for key, value in said.items():
        if not key or "=" in key or "\0" in key or "\0" in str(value):
            found.add(f"{where}.{key}", "expected a variable's name without `=` and NUL")
    return {key: _text(value) for key, value in said.items()}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def split(line: str) -> list[str]:
    """Return the words of `line`. Raises ValueError, whose message names the first piece of shell syntax, or an open
    quote."""
    # Names that holdfast expands are not shell syntax. So replace each name by a placeholder while the line is split.
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
    """Return the first piece of the text that a shell would not take literally, or "" if there is none."""
    quote = ""
    at = 0
    while at < len(line):
        char = line[at]
        if quote == "'":
            quote = "" if char == "'" else quote
        elif char == "\\":
            at += 1  # skip the next character, which is literal
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


def written(text: bytes, section: str) -> dict[str, str]:
    """Return each name of a section with the text of its value. Nested values are named by their path: `a.b`, `a[0]`.

    Raises `Malformed`.
    """
    top = yaml_nodes(text)
    whole: dict[str, str] = {}
    for key, value in _pairs(top):
        if key == section:
            for name, inner in _pairs(value):
                _flat(whole, name, inner)
    return whole


def _flat(whole: dict[str, str], name: str, node: yaml.Node) -> None:
    if isinstance(node.value, str):
        whole[name] = "" if node.tag.endswith(":null") else node.value
    elif node.tag.endswith(":map"):
        for key, inner in _pairs(node):
            _flat(whole, f"{name}.{key}", inner)
    else:
        for i, inner in enumerate(node.value):
            _flat(whole, f"{name}[{i}]", inner)


def _pairs(node: Any) -> list[tuple[str, yaml.Node]]:
    """Return the pairs of a mapping. Pairs that are merged by `<<` come first, so that the mapping's own pairs override
    them."""
    if node is None or not node.tag.endswith(":map"):
        return []
    merged: list[tuple[str, yaml.Node]] = []
    own: list[tuple[str, yaml.Node]] = []
    for key, value in node.value:
        if key.tag.endswith(":merge"):
            for each in [value] if value.tag.endswith(":map") else value.value:
                merged += _pairs(each)
        elif isinstance(key.value, str):
            own.append((key.value, value))
    return merged + own
