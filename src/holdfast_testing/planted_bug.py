"""A bug to be planted in the source: the fault, the text that it replaces, and the tests that notice it.

An equivalent bug changes no behaviour as long as the code around it is correct. It has a proof instead of tests.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


class NotPlanted(ValueError):
    """Raised if the source does not contain the text that a bug replaces, or contains it more than once."""


@dataclass(frozen=True, kw_only=True)
class SourceChange:
    """A text in one function, and its replacement."""

    #: The path of the changed file below `src/holdfast`, such as `decide/agent.py`.
    file: str
    #: The changed function or class, such as `Agent.obey`; empty: the whole file.
    place: str
    #: The original text, which occurs once in `place`.
    right: str
    broken: str

    def planted(self, source: str) -> str:
        """Return the source with the change. Raises `NotPlanted` if the text is missing or occurs more than once."""
        first, end = _span(source, self.place, self.file)
        lines = source.splitlines(keepends=True)
        before, inside, after = "".join(lines[:first]), "".join(lines[first:end]), "".join(lines[end:])
        found = inside.count(self.right)
        if found != 1:
            where = f"{self.place} of {self.file}" if self.place else self.file
            raise NotPlanted(f"{where} has {found or 'no'} {self.right!r}: expected it once")
        changed = before + inside.replace(self.right, self.broken) + after
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise NotPlanted(f"{self.file} is no Python with {self.broken!r}: {error}") from error
        return changed


@dataclass(frozen=True, kw_only=True)
class PlantedBug(SourceChange):
    """A bug, and the tests that should catch it: each of them fails with the bug and passes without it."""

    name: str
    wrong: str
    #: Test ids below `tests/`, without parameters, such as `decide/test_agent.py::test_x`.
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EquivalentBug(SourceChange):
    """A bug that no test can notice, and the reason."""

    name: str
    wrong: str
    proof: str


def _span(source: str, place: str, file: str) -> tuple[int, int]:
    """Return the lines of a function or class: the first, counted from 0, and the one after its last."""
    if not place:
        return 0, len(source.splitlines())
    body: list[ast.stmt] = ast.parse(source).body
    found: ast.FunctionDef | ast.ClassDef | None = None
    for name in place.split("."):
        found = next(
            (each for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == name), None
        )
        if found is None:
            raise NotPlanted(f"{file} has no {place}")
        body = found.body
    assert found is not None, "a place has a name"
    assert found.end_lineno is not None, "it was parsed from a text"
    return found.lineno - 1, found.end_lineno
