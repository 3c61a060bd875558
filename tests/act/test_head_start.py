"""Rank 0 begins first, and no rank waits for it longer than a moment."""

from __future__ import annotations

from holdfast.act.worker_starts import LONGEST_HEAD_START_S, HeadStart


def test_the_others_begin_a_moment_after_rank_0_is_up() -> None:
    head = HeadStart(0.03)
    assert not head.holds(0, 10.0)
    assert head.holds(1, 10.0) and head.holds(2, 10.0)
    head.first_is_up(10.2)
    assert head.next_wake() == 10.2 + 0.03
    assert head.take(10.22) == []
    assert head.take(10.3) == [1, 2]
    assert head.next_wake() is None and head.take(11.0) == []


def test_they_begin_without_it_where_it_does_not_come_up() -> None:
    head = HeadStart(0.03)
    assert head.holds(1, 10.0) and head.holds(2, 10.4)
    assert head.next_wake() == 10.0 + LONGEST_HEAD_START_S
    assert head.take(11.0) == [1, 2]
    head.first_is_up(11.1)
    assert head.next_wake() is None


def test_an_attempt_that_is_stopped_before_leaves_nobody_waiting() -> None:
    head = HeadStart(0.03)
    assert head.holds(1, 10.0)
    head.clear()
    assert head.next_wake() is None and head.take(20.0) == []


def test_alone_there_is_nobody_to_wait() -> None:
    head = HeadStart(0.03)
    assert not head.holds(0, 10.0)
    head.first_is_up(10.0)
    assert head.next_wake() is None
