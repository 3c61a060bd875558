"""Graceful tolerance: notify, wait, stop, reset, isolate, and that no reset runs under a process."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decide.faults.fault_policy import GraceTimes
from holdfast.decide.faults.graceful_tolerance import (
    ClearFaults,
    GroupBusy,
    GroupIdle,
    Isolate,
    LevelChanged,
    Moment,
    Notify,
    Reset,
    ResetEnded,
    RestartWorkers,
    StopGroup,
    Tolerance,
    ToleranceAction,
    ToleranceEvent,
    TolerancePhase,
    ToleranceSnapshot,
)
from holdfast.model.faults import Remedy

GROUP = ("npu0", "npu1")
GRACE_TIMES = GraceTimes(save_s=30, reset_s=150, heal_s=15)


def level(remedy: Remedy | None, device: str = "npu0") -> LevelChanged:
    return LevelChanged(device=device, remedy=remedy)


def action_kinds(actions: list[ToleranceAction]) -> list[type[ToleranceAction]]:
    return [type(action) for action in actions]


def test_the_whole_way_of_a_reset() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    (notify,) = group.handle(level(Remedy.RESET_NOW), 100.0)
    assert isinstance(notify, Notify)
    assert (notify.devices, notify.seconds, group.next_wake()) == (GROUP, 30.0, 130.0)
    (reset,) = group.handle(GroupIdle(), 110.0)
    assert reset == Reset(devices=GROUP, attempt=1, seconds=150.0)
    assert group.next_wake() == 260.0
    assert group.handle(ResetEnded(attempt=1, ok=True), 120.0) == [ClearFaults(devices=GROUP)]
    assert (group.phase, group.next_wake()) == (TolerancePhase.IDLE, None)


def test_workers_that_do_not_leave_are_stopped_and_only_then_is_reset() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    group.handle(level(Remedy.RESET_NOW), 0.0)
    assert group.handle(Moment(), 29.9) == []
    assert action_kinds(group.handle(Moment(), 30.0)) == [StopGroup]
    assert (group.next_wake(), group.handle(Moment(), 99.0)) == (None, [])
    assert action_kinds(group.handle(GroupIdle(), 31.0)) == [Reset]


def test_an_idle_group_is_reset_at_once_and_a_busy_one_when_its_work_ends() -> None:
    assert action_kinds(Tolerance(GROUP, GRACE_TIMES).handle(level(Remedy.RESET_WHEN_IDLE), 0.0)) == [Reset]
    assert action_kinds(Tolerance(GROUP, GRACE_TIMES).handle(level(Remedy.RESET_NOW), 0.0)) == [Reset]
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    assert group.handle(level(Remedy.RESET_WHEN_IDLE), 0.0) == []
    assert action_kinds(group.handle(GroupIdle(), 9.0)) == [Reset]
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    group.handle(level(Remedy.RESET_WHEN_IDLE), 0.0)
    assert action_kinds(group.handle(level(Remedy.RESET_NOW, "npu1"), 1.0)) == [Notify], (
        "the graver fault does not wait"
    )


def test_a_fault_that_heals_by_itself_disturbs_nobody() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    assert group.handle(level(Remedy.RESTART_WORKERS), 0.0) == []
    assert group.next_wake() == 15.0
    assert group.handle(level(Remedy.RESTART_WORKERS, "npu1"), 5.0) == []
    assert group.next_wake() == 15.0, "a second such fault gives no new time"
    group.handle(level(None, "npu1"), 6.0)
    group.handle(level(None), 10.0)
    assert (group.phase, group.next_wake()) == (TolerancePhase.IDLE, None)


def test_a_fault_that_does_not_heal_restarts_the_workers_without_a_reset() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    group.handle(level(Remedy.RESTART_WORKERS), 0.0)
    assert action_kinds(group.handle(Moment(), 15.0)) == [Notify]
    assert action_kinds(group.handle(GroupIdle(), 20.0)) == [RestartWorkers]


def retried(now: float = 0.0, *, resettable: bool = True) -> Tolerance:
    """A group that works again, restarted for a fault that is still there; its time to heal begins at `now`."""
    group = Tolerance(GROUP, GRACE_TIMES, busy=True, resettable=resettable)
    group.handle(level(Remedy.RESTART_WORKERS), now - 30.0)
    group.handle(Moment(), now - 15.0)
    assert action_kinds(group.handle(GroupIdle(), now - 10.0)) == [RestartWorkers]
    assert (group.phase, group.next_wake()) == (TolerancePhase.RETRIED, None), "nothing is measured while nothing runs"
    group.handle(GroupBusy(), now)
    return group


def test_a_fault_that_outlives_the_restart_asks_for_a_reset() -> None:
    group = retried(100.0)
    assert group.next_wake() == 115.0
    assert action_kinds(group.handle(Moment(), 115.0)) == [Notify]
    assert action_kinds(group.handle(GroupIdle(), 120.0)) == [Reset]
    assert action_kinds(group.handle(ResetEnded(attempt=1, ok=True), 130.0)) == [ClearFaults]
    assert group.handle(level(None), 130.0) == []
    group.handle(GroupBusy(), 140.0)
    assert (group.phase, group.next_wake()) == (TolerancePhase.PROVING, 155.0)
    assert group.handle(Moment(), 155.0) == []
    assert (group.phase, group.next_wake()) == (TolerancePhase.IDLE, None)
    assert group.handle(level(Remedy.RESTART_WORKERS), 900.0) == []
    assert group.phase is TolerancePhase.HEALING, "a later fault begins at the first step"


def test_a_fault_that_comes_back_soon_after_such_a_reset_asks_for_isolation() -> None:
    group = retried(100.0)
    group.handle(Moment(), 115.0)
    group.handle(GroupIdle(), 120.0)
    group.handle(ResetEnded(attempt=1, ok=True), 130.0)
    group.handle(GroupBusy(), 140.0)
    [isolate] = group.handle(level(Remedy.RESTART_WORKERS), 150.0)
    assert isinstance(isolate, Isolate)
    assert "came back within 15 s" in isolate.reason


def test_where_no_reset_is_possible_isolation_follows_the_restart() -> None:
    assert action_kinds(retried(100.0, resettable=False).handle(Moment(), 115.0)) == [Isolate]


def test_a_fault_that_ends_after_the_restart_is_forgotten() -> None:
    group = retried(100.0)
    group.handle(level(None), 105.0)
    assert (group.phase, group.next_wake()) == (TolerancePhase.IDLE, None)


def test_workers_that_end_by_themselves_while_a_fault_may_heal_are_restarted_by_that() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    group.handle(level(Remedy.RESTART_WORKERS), 0.0)
    assert group.handle(GroupIdle(), 5.0) == []
    assert (group.phase, group.next_wake()) == (TolerancePhase.RETRIED, None)


@pytest.mark.parametrize("fail", ["ended", "too long"])
def test_resets_are_tried_again_and_then_the_device_is_isolated(fail: str) -> None:
    group = Tolerance(GROUP, GRACE_TIMES, attempts=3)
    now, tried = 0.0, action_kinds(group.handle(level(Remedy.RESET_NOW), 0.0))
    for attempt in (1, 2, 3):
        if fail == "ended":
            actions = group.handle(ResetEnded(attempt=attempt, ok=False, why="exit status 3"), now)
        else:
            now += 150.0
            actions = group.handle(Moment(), now)
        tried += action_kinds(actions)
    assert tried == [Reset, Reset, Reset, Isolate]
    assert isinstance(actions[0], Isolate)
    assert "3 resets did not help" in actions[0].reason
    assert group.phase is TolerancePhase.ISOLATED
    group.handle(level(None), now + 1)
    assert action_kinds(group.handle(level(Remedy.RESET_NOW), now + 2)) == [Reset], "a clear device is trusted again"


def test_the_end_of_an_older_reset_is_ignored() -> None:
    group = Tolerance(GROUP, GRACE_TIMES)
    group.handle(level(Remedy.RESET_NOW), 0.0)
    group.handle(Moment(), 150.0)
    assert group.handle(ResetEnded(attempt=1, ok=True), 151.0) == []
    assert group.phase is TolerancePhase.RESETTING


def test_a_process_that_came_back_is_stopped_before_the_next_try() -> None:
    group = Tolerance(GROUP, GRACE_TIMES)
    group.handle(level(Remedy.RESET_NOW), 0.0)
    group.handle(GroupBusy(), 1.0)
    assert action_kinds(group.handle(ResetEnded(attempt=1, ok=False), 2.0)) == [StopGroup]
    assert action_kinds(group.handle(GroupIdle(), 3.0)) == [Reset]


def test_processes_that_keep_coming_back_do_not_buy_more_resets() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, attempts=2)
    group.handle(level(Remedy.RESET_WHEN_IDLE), 0.0)
    for attempt in (1, 2):
        group.handle(GroupBusy(), 0.0)
        assert action_kinds(group.handle(ResetEnded(attempt=attempt, ok=False), 1.0)) == [StopGroup]
        last = group.handle(GroupIdle(), 2.0)
    assert action_kinds(last) == [Isolate]
    assert group.phase is TolerancePhase.ISOLATED


def test_a_fault_that_went_away_by_itself_takes_its_failed_resets_along() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, attempts=1)
    group.handle(level(Remedy.RESET_NOW), 0.0)
    group.handle(GroupBusy(), 0.0)
    group.handle(ResetEnded(attempt=1, ok=False), 1.0)
    group.handle(level(None), 2.0)
    assert action_kinds(group.handle(GroupIdle(), 3.0)) == [RestartWorkers]
    assert action_kinds(group.handle(level(Remedy.RESET_NOW), 900.0)) == [Reset]


def test_other_devices_and_other_levels_are_not_this_groups_work() -> None:
    group = Tolerance(GROUP, GRACE_TIMES, busy=True)
    assert group.handle(level(Remedy.RESET_NOW, "npu9"), 0.0) == []
    for remedy in (Remedy.WATCH, Remedy.RETRY_REQUEST, Remedy.AVOID, Remedy.ISOLATE, Remedy.HOLD):
        assert (group.handle(level(remedy), 0.0), group.phase) == ([], TolerancePhase.IDLE)


_tolerance_events: st.SearchStrategy[ToleranceEvent] = st.one_of(
    st.builds(LevelChanged, device=st.sampled_from(GROUP), remedy=st.one_of(st.none(), st.sampled_from(list(Remedy)))),
    st.just(GroupIdle()),
    st.just(GroupBusy()),
    st.builds(ResetEnded, attempt=st.integers(1, 5), ok=st.booleans()),
    st.just(Moment()),
)


@settings(max_examples=400, deadline=None)
@given(story=st.lists(st.tuples(st.floats(0, 100), _tolerance_events), max_size=40))
def test_never_a_reset_under_a_process_and_never_without_end(story: list[tuple[float, ToleranceEvent]]) -> None:
    group = Tolerance(GROUP, GRACE_TIMES, attempts=3)
    now, since = 0.0, 0
    for wait, event in story:
        now += wait
        twin = Tolerance(GROUP, GRACE_TIMES, attempts=3)
        twin.restore(msgspec.json.decode(msgspec.json.encode(group.snapshot()), type=ToleranceSnapshot))
        actions = group.handle(event, now)
        assert twin.handle(event, now) == actions, "a restart in between changes nothing"
        for action in actions:
            if isinstance(action, Reset):
                assert not group.busy
                since += 1
                assert since <= 3
            elif isinstance(action, ClearFaults | Isolate):
                since = 0
        if group.phase in (TolerancePhase.NOTIFIED, TolerancePhase.RESETTING, TolerancePhase.HEALING):
            assert group.next_wake() is not None, "what waits by the clock is woken"
        if group.phase is TolerancePhase.IDLE and not group.levels:
            since = 0 if group.attempt == 0 else since
