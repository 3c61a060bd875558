"""The figures of the source tree count what they say."""

from __future__ import annotations

from pathlib import Path

from holdfast_testing.house import SourceFile, circles, figures, table, walked_files, wide_constructors

CODE = '''"""A docstring
of two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.b import thing  # a comment beside code

if TYPE_CHECKING:
    from holdfast.c import Other


class Wide:
    # A comment.
    def __init__(self, a, b, c, d, *, e, f, g, h):
        """Words."""
        from holdfast.node import d as late

        self.text = """
        two lines of text
        """
'''
A = SourceFile(Path("node/a.py"), CODE)
B = SourceFile(Path("b.py"), "def thing():\n    from holdfast.node import a\n\n\nclass Wide:\n    pass\n")


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert A.code_lines == 11
    assert B.code_lines == 4


def test_imports_at_the_top_inside_functions_and_for_types_are_told_apart() -> None:
    assert list(A.imports(lazy=False)) == ["holdfast.b.thing"]
    assert list(A.imports(lazy=True)) == ["holdfast.node.d"]


def test_a_circle_is_one_of_imports_at_the_top() -> None:
    assert circles([A, B]) == 0, "b imports a when it is called"
    eager = SourceFile(Path("b.py"), "from holdfast.node import a\n")
    assert circles([A, eager]) == 1


def test_eight_parameters_are_many() -> None:
    assert wide_constructors([A, B]) == 1
    assert wide_constructors([SourceFile(A.place, CODE.replace(", h", ""))]) == 0


def test_the_walk_s_files_are_those_of_its_stations() -> None:
    assert walked_files([A, B], "1. `node/a.py` `Wide`: words\n\nSee also `b.py`.\n") == [A]


def test_each_figure_has_a_row() -> None:
    rows = dict(figures([A, B], ""))
    assert rows["files"] == "2" and rows["class names that are used twice"] == "1"
    assert table(rows.items()).count("\n") == len(rows) + 1
