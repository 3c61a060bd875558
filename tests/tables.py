"""Many rows in one test: each row is tried, and one failure tells of all rows that are wrong."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]
_OURS = str(Path(__file__).parent)


def rows(
    names: str | tuple[str, ...], table: Iterable[Any], ids: Callable[[Any], object] = repr
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize` does, with one test for the whole table; its fixtures are made once for all rows.

    For tables of which a row costs less than a test of its own, above all those with hundreds of rows.
    """
    of_a_row = (names,) if isinstance(names, str) else names
    every = list(table)

    def tabled(test: Test) -> Test:
        @wraps(test)
        def whole(**fixtures: Any) -> None:
            wrong = []
            for row in every:
                values = (row,) if isinstance(names, str) else row
                try:
                    test(**fixtures, **dict(zip(of_a_row, values, strict=True)))
                except (Exception, pytest.fail.Exception) as why:
                    wrong.append(f"{ids(row)}: {_told(why)}")
            if wrong:
                pytest.fail(f"{len(wrong)} of {len(every)} rows:\n" + "\n".join(wrong), pytrace=False)

        signature = inspect.signature(test)
        left = [param for name, param in signature.parameters.items() if name not in of_a_row]
        whole.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # what pytest asks for
        return whole

    return tabled


def _told(why: BaseException) -> str:
    frames = traceback.extract_tb(why.__traceback__)
    [*_, at] = [frame for frame in frames if frame.filename.startswith(_OURS)] or frames
    kind = "" if isinstance(why, AssertionError) else f"{type(why).__name__}: "
    return f"{Path(at.filename).name}:{at.lineno}: {at.line}\n    " + f"{kind}{why}".replace("\n", "\n    ")
