"""What is defined in the code is used in the code: a name that stands there once is never used."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from places import ROOT

SOURCES = ROOT / "src"

#: Functions and constants that only something outside our code uses. (Fields are part of a format.)
ONCE_ON_PURPOSE: dict[str, str] = {
    "_missing_": "enum calls it",
    "_fields_": "ctypes reads it",
    "_repr_html_": "notebooks call it",
    "ignore_aliases": "yaml calls it",
    "do_HEAD": "http.server calls it",
    "log_message": "http.server calls it",
    "shutdown_request": "socketserver calls it",
    "list_commands": "click calls it",
    "get_command": "click calls it",
    "format_commands": "click calls it",
    "list_": "click calls it: `holdfast faults list`",
    "MEANING": "the page about the gang prints it, and a test compares them",
    "order_of_belief": "the page about explaining prints it, and a test compares them",
    "PROTOCOL": "the first word between two nodes",
    "default_policy": "the policy that most tests of faults begin with",
    "moments_of": "tests ask which fields hold moments",
    "watching": "tests ask a reactor what is left",
    "can_track": "tests ask what the machine allows",
}


def _defined(tree: ast.Module) -> Iterator[str]:
    """Functions, and the constants of a module."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name
            case _:
                pass


def _once(texts: dict[str, str]) -> list[str]:
    seen = Counter(word for text in texts.values() for word in re.findall(r"[A-Za-z_]\w*", text))
    once = {name for name, times in seen.items() if times == 1} - ONCE_ON_PURPOSE.keys()
    return [
        f"{where}: {name}"
        for where, text in texts.items()
        if not once.isdisjoint(re.findall(r"(?:\bdef\s+|^)(\w+)", text, re.MULTILINE))  # parsing takes far longer
        for name in _defined(ast.parse(text))
        if name in once and not name.startswith("__")
    ]


def test_the_finder_sees_what_is_named_once() -> None:
    assert _once({"a": "X = 1\ndef f(): return X\ndef g(): return f()\n", "b": "z = 1\nclass C: y = 1\n"}) == [
        "a: g",
        "b: z",
    ]


def test_nothing_is_defined_and_never_used() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py"))}
    found = _once({str(path.relative_to(SOURCES)): text for path, text in texts.items()})
    assert [each for each in found if not each.startswith("holdfast_testing/")] == [], "the lab's parts are for tests"
