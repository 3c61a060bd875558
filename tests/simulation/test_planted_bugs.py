"""Bugs that are planted in the source: each can be planted, and its nearest tests are there."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from holdfast_testing.mutants import MUTANTS
from holdfast_testing.planted_bug import EquivalentBug, NotPlanted, PlantedBug, SourceChange
from holdfast_testing.planted_bug_runs import SOURCE, SourceCopy, failed_tests, missed
from holdfast_testing.planted_bugs import EQUIVALENT_BUGS, PLANTED_BUGS
from places import TESTS

ALL_BUGS: tuple[PlantedBug | EquivalentBug, ...] = (*PLANTED_BUGS, *EQUIVALENT_BUGS)


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: SourceChange) -> None:
    """Where the source has changed, its row in `planted_bugs` has to change with it."""
    source = (SOURCE / "holdfast" / bug.file).read_text(encoding="utf-8")
    assert bug.planted(source) != source


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_the_nearest_names_in_a_bug_are_there(bug: PlantedBug) -> None:
    assert bug.tests
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert name in names_in(file), test


def test_planted_bugs_have_names_of_their_own() -> None:
    names = [bug.name for bug in (*MUTANTS, *ALL_BUGS)]
    assert len(set(names)) == len(names)


TEXT = """
class Door:
    def opens(self, key):
        return key == 1


def opens(key):
    return key == 1
"""
BUG = PlantedBug(
    name="any-key", wrong="any key", file="door.py", place="Door.opens", right=" == 1", broken="", tests=()
)


def test_a_bug_is_planted_in_its_own_place_only() -> None:
    assert BUG.planted(TEXT) == TEXT.replace(" == 1", "", 1)


@pytest.mark.parametrize(
    ("bug", "why"),
    [
        (replace(BUG, right=" == 2"), "Door.opens of door.py has no ' == 2': expected it once"),
        (replace(BUG, place=""), "door.py has 2 ' == 1': expected it once"),
        (replace(BUG, place="Door.shuts"), "door.py has no Door.shuts"),
        (replace(BUG, broken=" =="), "door.py is no Python with ' =='"),
    ],
)
def test_a_bug_of_another_source_says_so(bug: PlantedBug, why: str) -> None:
    with pytest.raises(NotPlanted) as raised:
        bug.planted(TEXT)
    assert str(raised.value).startswith(why)


def test_failed_tests_are_told_from_errors() -> None:
    output = (
        "FAILED tests/a/test_a.py::test_x[one - two] - assert 1 == 2\n"
        "ERROR tests/a/test_a.py::test_y - no such fixture\n"
        "FAILED tests/b/test_b.py::test_z\n"
    )
    assert failed_tests(output) == {"a/test_a.py::test_x", "b/test_b.py::test_z"}


@pytest.mark.real
def test_a_bug_is_caught_by_its_own_tests_and_by_no_others(tmp_path: Path) -> None:
    copy = SourceCopy(tmp_path)
    bug = next(bug for bug in PLANTED_BUGS if bug.name == "kills-never-lapse")
    (own,) = bug.tests
    other = "act/test_restart_limit.py::test_one_that_came_up_is_started_at_once_a_hundred_times"
    assert missed(bug, copy) == ""
    assert missed(replace(bug, tests=(other,)), copy) == "its tests pass (status 0)"
    assert missed(replace(bug, tests=(own, other)), copy) == f"these did not fail: {other}"
    assert missed(replace(bug, right="nowhere"), copy).endswith("has no 'nowhere': expected it once")
    assert copy.run((own, other))[0] == 0, "the bug is gone again"
