"""Helpers of tests are written once: no two test files define the same thing under one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from places import DATA, TESTS


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines; none for a test."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [] if name.startswith(("test_", "Test")) else [name]
        case ast.Assign(targets=targets):
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            names = [name]
        case _:
            return []
    return [name for name in names if name not in ("pytestmark", "__all__")]


def _body(node: ast.stmt) -> str:
    """The code without its comments, docstrings and layout."""
    copy = ast.parse(ast.unparse(node))
    for each in ast.walk(copy):
        match each:
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
                if ast.get_docstring(each) is not None:
                    del body[0]
    return ast.unparse(copy)


def _helpers(text: str) -> Iterator[tuple[str, str]]:
    for node in ast.parse(text).body:
        body = _body(node)
        yield from ((name, body) for name in _names(node))


def _twice(texts: dict[str, str]) -> list[str]:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for place, text in texts.items():
        for helper in dict.fromkeys(_helpers(text)):
            places[helper].append(place)
    return [f"{name}: {', '.join(found)}" for (name, _), found in places.items() if len(found) > 1]


def test_no_two_test_files_define_the_same_helper() -> None:
    """Put it in the helper module of its folder, or in tests/builders.py where several folders use it."""
    files = [path for path in sorted(TESTS.rglob("*.py")) if not path.is_relative_to(DATA)]
    found = _twice({str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in files})
    assert found == [], "\n".join(found)


def test_a_copy_of_a_helper_is_found_whatever_its_comments_and_layout() -> None:
    one = 'def wait(what):\n    """It comes."""\n    return what(1,  2)\n\n\nLIMIT_S = 3\n'
    other = "def wait(what):\n    return what(\n        1,\n        2,  # twice\n    )\n\n\nLIMIT_S = 4\n"
    assert _twice({"a": one, "b": other}) == ["wait: a, b"]
    assert _twice({"a": one, "b": other.replace("1,", "3,")}) == []
    assert _twice({"a": one.replace("wait", "test_wait"), "b": other.replace("wait", "test_wait")}) == []
