"""A table inside one test tells of every row that is wrong, as tests of their own would."""

from __future__ import annotations

import pytest

from tables import rows


def test_every_wrong_row_is_told_with_its_name_its_line_and_what_came() -> None:
    @rows(("number", "half"), [(2, 1), (4, 3), (6, 3), (0, 0), ("x", 1)], lambda row: f"row of {row[0]}")
    def halves(number: int, half: int) -> None:
        assert number // half == 2, f"{number} and {half}"

    with pytest.raises(pytest.fail.Exception) as caught:
        halves()
    told = str(caught.value)
    assert told.startswith("3 of 5 rows:\nrow of 4: test_tables.py:13: assert number // half == 2")
    assert "4 and 3\n" in told and "assert (4 // 3) == 2" in told
    assert "row of 0: " in told and "ZeroDivisionError: " in told and "row of x: " in told
    assert "row of 2" not in told and "row of 6" not in told


@rows("number", range(3))
def test_fixtures_are_had_once_for_all_rows(number: int, request: pytest.FixtureRequest) -> None:
    assert request.node.name == "test_fixtures_are_had_once_for_all_rows"
