"""What several tests of the catalogue ask of it."""

from __future__ import annotations

from holdfast.explain.row_lint import lint


def broken_rules(text: str) -> set[str]:
    """The rules of rows that this file breaks."""
    return {problem.rule for problem in lint(text, "mine.yaml")}
