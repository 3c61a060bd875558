"""When a guard starts a killed child again: at once, after a pause, or never."""

from __future__ import annotations

from holdfast.act.guarded_children import MOST_SETTLED_STARTS, PAUSES_S, WINDOW_S, RestartLimit


def test_one_that_does_not_come_up_is_started_after_longer_and_longer_pauses_and_then_abandoned() -> None:
    limit, starts = RestartLimit(), list[float | None]()
    for kill in range(6):
        next_start = limit.next_start(10.0 * kill, settled=False)
        starts.append(None if next_start is None else next_start - 10.0 * kill)
    assert starts == [0.0, 0.0, 1.0, 2.0, 4.0, None]
    assert tuple(starts[:-1]) == PAUSES_S


def test_one_that_came_up_is_started_at_once_a_hundred_times() -> None:
    limit = RestartLimit()
    assert [limit.next_start(float(kill), settled=True) for kill in range(MOST_SETTLED_STARTS)] == [
        float(kill) for kill in range(MOST_SETTLED_STARTS)
    ]
    assert limit.next_start(float(MOST_SETTLED_STARTS), settled=True) is None


def test_one_that_came_up_before_has_all_its_pauses_left() -> None:
    limit = RestartLimit()
    for kill in range(20):
        assert limit.next_start(float(kill), settled=True) == float(kill)
    assert limit.next_start(20.0, settled=False) == 20.0 + PAUSES_S[0]
    assert limit.next_start(21.0, settled=False) == 21.0 + PAUSES_S[1]
    assert limit.next_start(22.0, settled=False) == 22.0 + PAUSES_S[2]


def test_kills_of_long_ago_do_not_count() -> None:
    limit = RestartLimit()
    for kill in range(5):
        limit.next_start(float(kill), settled=False)
    assert limit.next_start(4.0 + WINDOW_S, settled=False) == 4.0 + WINDOW_S
