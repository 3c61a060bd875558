"""What the fault engine keeps is bounded by windows, not by history; and what it no longer keeps was of no use."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

from decide_builders import OCCUR, ONCE, RECOVER, npu_event

from builders import DAY_S, T
from holdfast.decide.faults.fault_policy import FrequencyRule, Policy
from holdfast.decide.faults.fault_state import Breaker
from holdfast.decide.faults.isolation import FaultEngine
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Remedy

NPUS = [f"npu{number}" for number in range(12)]


def objects_kept(engine: FaultEngine) -> int:
    """How many objects hang on an engine, its rules aside."""
    seen = {id(engine.policy), id(engine.breaker)}
    waiting: list[object] = [engine]
    found = 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(thing))
        found += 1
        waiting += gc.get_referents(thing)
    return found


def a_day(engine: FaultEngine, start: float) -> None:
    """Every code of a bad day on every device, over and over."""
    for minute in range(0, 24 * 60, 20):
        at = start + minute * 60
        for number, device in enumerate(NPUS):
            engine.handle(npu_event(at, "80E21007", ONCE, device), T + at)
            engine.handle(npu_event(at + 1, "31", ONCE, device), T + at + 1)
            engine.handle(npu_event(at + 2, "8C0E4E00", OCCUR, device), T + at + 2)
            engine.handle(npu_event(at + 3, "81078603", OCCUR, device), T + at + 3)
            engine.handle(npu_event(at + 8 + number * 2, "81078603", RECOVER, device), T + at + 40)
            engine.handle(npu_event(at + 45, "8C0E4E00", RECOVER, device), T + at + 45)
            engine.tick(T + at + 50)
        engine.sweep()


def test_what_is_kept_does_not_grow_with_the_days() -> None:
    engine = FaultEngine(default_policy(), breaker=Breaker())
    engine.register(NPUS)
    sizes = []
    for day in range(24):
        a_day(engine, day * DAY_S)
        engine.release(NPUS[-1], T + (day + 1) * DAY_S)
        sizes.append(objects_kept(engine))
    # A code's history is shortened now and then, so that the size goes up and down over some days.
    assert max(sizes[12:]) <= 1.02 * max(sizes[:12]), sizes


def test_when_all_is_over_nothing_is_kept_but_names() -> None:
    engine = FaultEngine(default_policy())
    engine.register(NPUS)
    fresh = objects_kept(engine)
    a_day(engine, 0)
    assert objects_kept(engine) > 2 * fresh
    for name in NPUS:
        engine.release(name, T + DAY_S)
    for hours in range(1, 24 * 12):
        engine.tick(T + DAY_S + hours * 3600)
        engine.sweep()
    assert set(engine.devices.values()) == {None}
    codes = 4
    assert objects_kept(engine) <= fresh + len(NPUS) * 4 + codes * 20, "the releases of ten minutes, and what a code is"


def test_alarms_that_are_no_longer_wanted_do_not_pile_up() -> None:
    rule = FrequencyRule(window_s=60, times=1, remedy=Remedy.ISOLATE, release_s=864_000)
    engine = FaultEngine(Policy(levels={"A": Remedy.WATCH}, frequency={"A": rule}), lateness_s=10)
    sizes = []
    for second in range(0, 40_000, 2):
        engine.handle(npu_event(second, "A", ONCE), T + second)
        engine.tick(T + second)
        sizes.append(objects_kept(engine) if second % 5000 == 0 else 0)
    assert max(sizes) < 20_000
    assert engine.next_wake() == T + 40_000 - 2 + 1


def test_a_code_seen_in_passing_has_no_track_and_still_its_place_in_time() -> None:
    policy = Policy(levels={"A": Remedy.NONE})
    engine = FaultEngine(policy)
    engine.handle(npu_event(0, "A", ONCE), T)
    engine.handle(npu_event(10, "A", ONCE), T + 10)
    assert engine.devices == {"npu0": None}
    assert (engine.codes("npu0"), engine.level("npu0")) == (("A",), Remedy.NONE)
    engine.handle(npu_event(5, "A", OCCUR), T + 20)
    assert engine.active("npu0", Remedy.NONE) == ((T + 5, "A"),)
    engine.handle(npu_event(12, "A", RECOVER), T + 20)
    assert engine.codes("npu0") == ()


def test_a_rule_that_is_new_counts_nothing_that_passed_before() -> None:
    plain = Policy(levels={"A": Remedy.NONE})
    rule = FrequencyRule(window_s=600, times=2, remedy=Remedy.HOLD)
    engine = FaultEngine(plain)
    for at in range(5):
        engine.handle(npu_event(at, "A", ONCE), T + at)
    engine.reload(Policy(levels={"A": Remedy.NONE}, frequency={"A": rule}), T + 10)
    engine.handle(npu_event(11, "A", ONCE), T + 11)
    engine.handle(npu_event(3, "A", ONCE), T + 12)
    assert (engine.counts("npu0"), engine.held("npu0")) == ({"A": 1}, False)
    engine.handle(npu_event(13, "A", ONCE), T + 13)
    assert engine.held("npu0")


def test_a_code_that_shows_is_judged_at_once_by_new_rules() -> None:
    engine = FaultEngine(Policy(levels={"A": Remedy.NONE}))
    engine.handle(npu_event(0, "A", ONCE), T)
    (change,) = engine.reload(Policy(levels={"A": Remedy.ISOLATE}), T + 0.5)
    assert (change.before, change.after) == (None, Remedy.ISOLATE)
    assert [change.after for change in engine.tick(T + 5)] == [None]


def test_an_escalation_by_moments_that_ask_for_nothing_is_told() -> None:
    rule = FrequencyRule(window_s=60, times=1, remedy=Remedy.WATCH)
    engine = FaultEngine(Policy(levels={"A": Remedy.NONE}, frequency={"A": rule}))
    assert [change.after for change in engine.handle(npu_event(0, "A", ONCE), T)] == [Remedy.WATCH]


def test_deadlines_of_one_moment_pass_by_name_in_whatever_order_they_were_set() -> None:
    engine = FaultEngine(default_policy())
    for name in ("npu2", "npu0", "npu1"):
        engine.handle(npu_event(0, "31", ONCE, name), T)
    assert [change.device for change in engine.tick(T + 5)] == ["npu0", "npu1", "npu2"]
