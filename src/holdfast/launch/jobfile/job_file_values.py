"""Readers for values that occur in several places of a job file: commands, variables, sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.launch.jobfile.job_file_mistakes import Mistakes
from holdfast.lazy_pattern import Lazy

SIZE = Lazy(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def command_of(found: Mistakes, where: str, said: list[str] | str) -> tuple[str, ...]:
    """Return the words of a command; empty, with a mistake added, if it is invalid."""
    words = said
    if isinstance(words, str):
        from holdfast.launch.jobfile.shell_words import split  # imported late: most job files have lists

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
    """Return the variables for a process as text; add a mistake for an invalid name."""
    for key, value in said.items():
        if not key or "=" in key or "\0" in key or "\0" in str(value):
            found.add(f"{where}.{key}", "expected a variable's name without `=` and NUL")
    return {key: _text(value) for key, value in said.items()}


def size(value: str | int) -> int | None:
    """Convert `500M`, `16GiB` or `1024` to bytes, with units as powers of 1024; None for any other text."""
    if isinstance(value, int):
        return value
    match = SIZE.fullmatch(value.strip())
    if match is None:
        return None
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
