"""Phrases that the code speaks of are an enum, and rows of the catalogue: a slip of the pen would match nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.catalogue.exit_rows import load
from holdfast.model.phrases import Phrase
from places import SRC
from tables import rows

KNOWN = {row.phrase for row in load().rows}

#: Phrases that are no rows: what holdfast says of its own code, a planted bug; and words of Kubernetes' own.
OF_ITS_OWN = {
    "catalogue/exit_codes.py": {"AskedByComponent", "HoldfastBug", "BadUsage"},
    "holdfast_testing/broken_owners.py": {"RestartsUsedUp"},
    "platforms/kubernetes/objects/api_records.py": {"Succeeded"},
    "platforms/kubernetes/objects/pod_failures.py": {"DeletionByTaintManager", "Evicted", "Preempted"},
}


def _is_phrase(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "phrase"


def _literals(*nodes: ast.AST) -> Iterator[str]:
    leaves = (leaf for node in nodes for leaf in ast.walk(node) if isinstance(leaf, ast.Constant))
    return (leaf.value for leaf in leaves if isinstance(leaf.value, str) and leaf.value)


def _spelled(tree: ast.Module) -> Iterator[str]:
    """Strings that stand for a phrase: those that are one, and those that something's `phrase` is compared with."""
    yield from (text for text in _literals(tree) if text in KNOWN)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(_is_phrase, (left, *others))):
                yield from _literals(left, *others)
            case ast.Call(func=ast.Attribute(attr="row"), args=[ast.Constant(value=str(text)), *_]):
                yield text
            case ast.keyword(arg="phrase", value=ast.Constant(value=str(text))) if text:
                yield text


def test_the_finder_sees_phrases_comparisons_rows_and_arguments() -> None:
    code = (
        'if cause.phrase == "AlphaBeta" or phrase in ("GammaDelta", "EpsilonZeta"):\n    catalogue.row("EtaTheta")\n'
        'f(phrase="IotaKappa", other="LambdaMu")\ng = {"HungWorker": ""}\n'
    )
    assert set(_spelled(ast.parse(code))) == {
        "AlphaBeta", "GammaDelta", "EpsilonZeta", "EtaTheta", "IotaKappa", "HungWorker",
    }  # fmt: skip


@rows("phrase", Phrase)
def test_each_phrase_of_the_code_stands_in_the_catalogue(phrase: Phrase) -> None:
    assert phrase in KNOWN
    assert phrase.name == "".join(f"_{c}" if c.isupper() else c.upper() for c in phrase.value).strip("_")


def _may_spell_one(text: str) -> bool:
    """Parsing takes a hundred times as long: a file without these words has none of what `_spelled` finds."""
    return re.search(r"\bphrase\b|\brow\b", text) is not None or any(phrase in text for phrase in KNOWN)


def test_the_code_spells_no_phrase() -> None:
    wrong = {}
    for path in sorted(SRC.rglob("*.py")):
        name, text = str(path.relative_to(SRC)), path.read_text(encoding="utf-8")
        if name != "model/phrases.py" and _may_spell_one(text):
            wrong[name] = sorted(set(_spelled(ast.parse(text))) - OF_ITS_OWN.get(name, set()))
    spelled = [f"{name}: {found}" for name, found in wrong.items() if found]
    assert not spelled, "\n".join(["the code names a phrase as a member of `Phrase`", *spelled])


def test_the_enum_has_no_phrase_that_the_code_does_not_use() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    assert [phrase for phrase in Phrase if f"Phrase.{phrase.name}" not in code] == []
