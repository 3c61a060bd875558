"""Phrases that the code compares or looks up are phrases of the catalogue: a slip of the pen would match nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.catalogue.exits import load

SRC = Path(__file__).parent.parent / "src" / "holdfast"
PHRASE = re.compile(r"[A-Z][A-Za-z0-9]+")


def _is_phrase(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "phrase"


def _literals(node: ast.AST) -> Iterator[str]:
    return (leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str))


def _phrases(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(_is_phrase, (left, *others))):
                yield from (text for other in (left, *others) for text in _literals(other))
            case ast.Call(func=ast.Attribute(attr="row"), args=[ast.Constant(value=str(text)), *_]):
                yield text
            case ast.keyword(arg="phrase", value=value):
                yield from _literals(value)
            case ast.Assign(targets=[ast.Tuple(elts=[first, *_])], value=ast.Tuple(elts=[value, *_])) if _is_phrase(
                first
            ):
                yield from _literals(value)


def test_the_finder_sees_comparisons_rows_and_arguments() -> None:
    code = (
        'if cause.phrase == "AlphaBeta" or phrase in ("GammaDelta", "EpsilonZeta"):\n    catalogue.row("EtaTheta")\n'
        'f(phrase="IotaKappa")\nphrase, code = "LambdaMu", 3\n'
    )
    assert set(_phrases(ast.parse(code))) == {
        "AlphaBeta", "GammaDelta", "EpsilonZeta", "EtaTheta", "IotaKappa", "LambdaMu",
    }  # fmt: skip


@pytest.mark.parametrize("station", ["explain", "decide", "loop", "record", "act", "show"])
def test_each_phrase_in_the_code_stands_in_the_catalogue(station: str) -> None:
    known = {row.phrase for row in load().rows}
    wrong = [
        f"{path.relative_to(SRC)}: {text}"
        for path in sorted((SRC / station).rglob("*.py"))
        for text in _phrases(ast.parse(path.read_text(encoding="utf-8")))
        if PHRASE.fullmatch(text) and text not in known
    ]
    assert wrong == []
