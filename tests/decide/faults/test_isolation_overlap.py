"""Which faults overlapped an attempt, and what a reset clears."""

from __future__ import annotations

from builders import T, fault_event
from holdfast.decide.faults.fault_overlap import MOST, Overlaps, cleared_by_reset
from holdfast.decide.faults.isolation import FaultEngine
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Assertion, FaultEvent, Remedy


def _overlaps_of(*events: FaultEvent) -> tuple[Overlaps, FaultEngine]:
    engine, overlaps = FaultEngine(default_policy()), Overlaps()
    for each in events:
        engine.handle(each, each.at)
        overlaps.note(each, engine)
    return overlaps, engine


def test_faults_of_an_attempt_the_gravest_first_with_their_ranks() -> None:
    overlaps, _ = _overlaps_of(
        fault_event(0, "31", Assertion.ONCE),
        fault_event(50, "31", Assertion.ONCE),
        fault_event(10, "48"),
        fault_event(60, "48", Assertion.RECOVER),
        fault_event(70, "79", device="gpu1"),
    )
    found = overlaps.within(T + 40, T + 65, {"gpu0": (0, 1)})
    assert [(fault.event.code, fault.remedy, fault.ended_at, fault.ranks) for fault in found] == [
        ("48", Remedy.RESET_NOW, T + 60, (0, 1)),
        ("31", Remedy.RESTART_WORKERS, T + 50, (0, 1)),
    ]
    (last,) = overlaps.within(T + 80, T + 90)
    assert (last.event.device, last.ended_at, last.ranks) == ("gpu1", None, ())


def test_an_escalation_counts_as_the_faults_remedy() -> None:
    overlaps, _ = _overlaps_of(*(fault_event(at, "80E18005", Assertion.ONCE, "npu0") for at in (0, 1, 2)))
    assert [fault.remedy for fault in overlaps.within(T, T + 9)] == [Remedy.HOLD, Remedy.RESET_NOW, Remedy.RESET_NOW]


def test_a_storm_is_bounded_and_the_grave_stay() -> None:
    overlaps, _ = _overlaps_of(
        fault_event(0, "79", Assertion.ONCE), *(fault_event(n, "92", Assertion.ONCE) for n in range(3 * MOST))
    )
    found = overlaps.within(T, T + 10**6)
    assert len(found) <= MOST + 1
    assert found[0].event.code == "79"


def test_a_finished_reset_clears_what_was_active_and_no_hold() -> None:
    _, engine = _overlaps_of(fault_event(0, "48"), fault_event(1, "31"), fault_event(0, "79", device="gpu1"))
    cleared = cleared_by_reset(engine, ["gpu0"], T + 30)
    assert {(each.device, each.code) for each in cleared} == {("gpu0", "48"), ("gpu0", "31")}
    engine.handle_all(cleared, T + 30)
    assert (engine.level("gpu0"), engine.level("gpu1")) == (None, Remedy.ISOLATE)
