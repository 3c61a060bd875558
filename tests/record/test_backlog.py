"""What waits to be written: kept up to a limit, tried more and more rarely, said once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.record.write_backlog import Backlog, Retries


def test_the_pauses_grow_up_to_the_longest() -> None:
    retries = Retries(0.25, 1.0)
    assert retries.due(0.0)
    moments = []
    now = 100.0
    for _ in range(5):
        retries.failed(now)
        assert retries.at is not None and not retries.due(now)
        moments.append(retries.at - now)
        now = retries.at
        assert retries.due(now)
    assert moments == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_only_the_first_failure_is_news() -> None:
    retries = Retries(1.0, 60.0)
    assert [retries.failed(0.0), retries.failed(1.0)] == [True, False]
    retries.worked()
    assert retries.failed(9.0)
    assert retries.at == 10.0, "the pauses begin anew"


def test_one_that_cannot_wait_tries_at_once() -> None:
    retries = Retries(1.0, 60.0)
    retries.failed(5.0)
    retries.at_once()
    assert retries.due(5.0)


def test_what_goes_beyond_the_limit_is_left_out() -> None:
    backlog: Backlog[str] = Backlog(10, 1.0, 60.0)
    assert backlog.keep("a", 6)
    assert not backlog.keep("b", 6)
    assert backlog.keep("report", 6, always=True)
    assert list(backlog) == ["a", "report"]
    backlog.written(1)
    assert backlog.keep("c", 4)


@given(st.lists(st.integers()), st.integers(0, 30))
def test_the_order_stays(items: list[int], count: int) -> None:
    backlog: Backlog[int] = Backlog(1000, 1.0, 60.0)
    for item in items:
        backlog.keep(item)
    first = backlog.first(count)
    backlog.written(len(first))
    assert [*first, *backlog] == items
