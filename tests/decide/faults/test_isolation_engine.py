"""The engine's edges beyond single cases: batches, lateness, the breaker, dry runs, words, and what a job does."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from decide_builders import ONCE, RECOVER, npu_event
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import T
from holdfast.decide.faults.engine_snapshot import EngineState
from holdfast.decide.faults.fault_policy import DurationRule, FrequencyRule, Policy
from holdfast.decide.faults.fault_state import Breaker
from holdfast.decide.faults.isolation import (
    ChangeKind,
    FaultEngine,
    answer_of,
    standing,
    standings,
)
from holdfast.decide.faults.shipped_policy import default_policy
from holdfast.model.faults import Assertion, Remedy, Severity, Standing
from holdfast.model.human_format import natural
from holdfast.model.job_spec import JobKind

HOLD_2 = Policy(
    levels={"80E18005": Remedy.RESET_NOW},
    frequency={"80E18005": FrequencyRule(window_s=100, times=2, remedy=Remedy.HOLD, entry="the rule")},
)
LASTING = Policy(
    levels={"8C204E00": Remedy.RESTART_WORKERS},
    duration={"8C204E00": DurationRule(fault_s=30, recover_s=60, remedy=Remedy.ISOLATE)},
)


def test_a_recovery_that_is_a_moment_late_undoes_the_time_out_it_had_prevented() -> None:
    engine = FaultEngine(LASTING)
    engine.handle(npu_event(0, "8C204E00"), T)
    assert engine.next_wake() == pytest.approx(T + 30.001)
    assert [change.after for change in engine.tick(T + 30.5)] == [Remedy.ISOLATE]
    (undone,) = engine.handle(npu_event(29, "8C204E00", RECOVER), T + 31)
    assert (undone.before, undone.after) == (Remedy.ISOLATE, None)
    assert engine.next_wake() is None


def test_an_event_alone_passes_no_deadline_since_its_end_may_be_about_to_arrive() -> None:
    engine = FaultEngine(LASTING)
    changes = engine.handle_all([npu_event(81, "8C204E00", RECOVER), npu_event(75, "8C204E00")], T + 300)
    assert [change.after for change in changes] == [Remedy.RESTART_WORKERS, None]


def test_milliseconds_count_at_both_edges() -> None:
    engine = FaultEngine(HOLD_2)
    engine.handle(npu_event(0.0, assertion=ONCE), T)
    engine.handle(npu_event(100.001, assertion=ONCE), T + 100.001)
    assert not engine.held("npu0")
    engine.handle(npu_event(200.001, assertion=ONCE), T + 200.001)
    assert engine.held("npu0")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_order_of_arrival_and_any_batches_give_one_state(data: st.DataObject) -> None:
    policy = Policy(
        levels={"A": Remedy.RESET_NOW, "B": Remedy.WATCH},
        frequency={"A": FrequencyRule(window_s=20, times=3, remedy=Remedy.ISOLATE, release_s=15)},
        duration={"A": DurationRule(fault_s=3, recover_s=5, remedy=Remedy.AVOID)},
    )
    story = data.draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from("AB"), st.sampled_from(list(Assertion))),
            max_size=14,
        )
    )
    events = [npu_event(at, code, assertion) for at, code, assertion in story]
    shuffled = data.draw(st.permutations(events))
    seen = []
    for order in (sorted(events, key=lambda each: each.at), shuffled):
        engine = FaultEngine(policy, tick_s=0.001)
        for each in order:
            engine.handle(each, T + 60)
            if data.draw(st.booleans()):
                engine.tick(T + 60)
        engine.tick(T + 100)
        seen.append((engine.level("npu0"), engine.codes("npu0"), engine.counts("npu0"), engine.reasons("npu0")))
    assert seen[0] == seen[1]


def test_the_log_of_a_storm_stays_short_and_what_is_older_is_refused() -> None:
    engine = FaultEngine(HOLD_2, lateness_s=10)
    for number in range(5000):
        engine.handle(npu_event(number, assertion=ONCE), T + number)
    device = engine.devices["npu0"]
    assert device is not None
    assert len(device.codes["80E18005"].log) < 300
    before = msgspec.json.encode(engine.dump())
    assert engine.check(npu_event(10), T + 5000)
    assert engine.handle(npu_event(10), T + 5000) == []
    assert engine.refused == {"late": 1}
    after = msgspec.json.decode(msgspec.json.encode(engine.dump()), type=EngineState)
    assert after.devices == msgspec.json.decode(before, type=EngineState).devices


def test_the_far_future_is_refused_and_changes_nothing() -> None:
    engine = FaultEngine(HOLD_2)
    assert "future" in engine.check(npu_event(61), T)
    assert engine.handle(npu_event(61), T) == []
    assert (engine.refused["future"], engine.devices) == (1, {})
    assert engine.check(npu_event(float("nan")), T)


def test_one_rule_may_not_take_the_fleet() -> None:
    engine = FaultEngine(HOLD_2, breaker=Breaker())
    engine.register(f"npu{number}" for number in range(16))
    changes = []
    for number in range(6):
        for at in (0, 1):
            changes += engine.handle(npu_event(at, assertion=ONCE, device=f"npu{number}"), T + at)
    assert [engine.held(f"npu{number}") for number in range(6)] == [True] * 4 + [False] * 2
    stopped = [change for change in changes if change.kind is ChangeKind.BREAKER]
    assert [change.device for change in stopped] == ["npu4", "npu5"]
    assert "look at the rule" in stopped[0].reason
    engine.release("npu0", T + 5)
    engine.handle(npu_event(6, assertion=ONCE, device="npu6"), T + 6)
    engine.handle(npu_event(7, assertion=ONCE, device="npu6"), T + 7)
    assert engine.held("npu6"), "a released device makes room"


def test_the_breaker_says_nothing_about_few_devices() -> None:
    engine = FaultEngine(HOLD_2, breaker=Breaker())
    for number, at in itertools.product(range(4), (0, 1)):
        engine.handle(npu_event(at, assertion=ONCE, device=f"npu{number}"), T + at)
    assert all(engine.held(f"npu{number}") for number in range(4))


def test_a_dry_run_says_what_it_would_have_done() -> None:
    rule = FrequencyRule(window_s=100, times=2, remedy=Remedy.HOLD, dry_run=True, entry="try me")
    lasting = DurationRule(fault_s=0, recover_s=0, remedy=Remedy.ISOLATE, dry_run=True, entry="and me")
    policy = Policy(levels={"A": Remedy.WATCH, "B": Remedy.WATCH}, frequency={"A": rule}, duration={"B": lasting})
    engine = FaultEngine(policy)
    changes = engine.handle_all([npu_event(0, "A"), npu_event(1, "A"), npu_event(1, "B")], T + 5)
    would = [(change.rule, change.after) for change in changes if change.kind is ChangeKind.WOULD]
    assert would == [("try me", Remedy.HOLD), ("and me", Remedy.ISOLATE)]
    assert (engine.level("npu0"), engine.held("npu0")) == (Remedy.WATCH, False)


def test_sweeping_forgets_what_changes_nothing_and_keeps_the_rest() -> None:
    engine = FaultEngine(HOLD_2, lateness_s=10)
    for name in ("npu0", "npu1"):
        engine.handle(npu_event(0, device=name), T)
    engine.handle(npu_event(1, assertion=RECOVER), T + 1)
    engine.tick(T + 1000)
    assert engine.sweep() == 1
    assert (engine.devices["npu0"], engine.level("npu1")) == (None, Remedy.RESET_NOW)


def test_standings_in_words() -> None:
    engine = FaultEngine(default_policy())
    engine.register(["npu10", "npu2"])
    for at in (0, 10, 20):
        engine.handle(npu_event(at, assertion=ONCE, node="n1"), T + at)
    engine.handle(npu_event(0, "79", device="gpu3"), T)
    engine.tick(T + 60)
    assert [each.device for each in standings(engine)] == ["gpu3", "npu0", "npu2", "npu10"]
    held = standing(engine, "npu0")
    assert (held.standing, held.node, held.since, held.codes) == (Standing.HELD, "n1", T + 20, ("80E18005",))
    assert "3 times within 24 h" in held.reason
    assert "holdfast release npu0" in held.reason
    gone = standing(engine, "gpu3")
    assert (gone.standing, gone.codes) == (Standing.ISOLATED, ("79",))
    assert "fallen off the bus" in gone.reason
    assert standing(engine, "gpu9").standing is Standing.HEALTHY, "a device without any news"


def test_a_release_says_that_quiet_ends_it_too() -> None:
    rule = FrequencyRule(window_s=100, times=1, remedy=Remedy.ISOLATE, release_s=7200)
    engine = FaultEngine(Policy(frequency={"A": rule}))
    engine.handle(npu_event(0, "A", ONCE, severity=Severity.MINOR), T)
    engine.tick(T + 5)
    assert "quiet for longer than 2 h" in standing(engine, "npu0").reason
    assert engine.next_wake() == pytest.approx(T + 7200.001)


@pytest.mark.parametrize(
    ("remedy", "stop", "avoid", "reset"),
    [
        (None, False, False, False),
        (Remedy.NONE, False, False, False),
        (Remedy.WATCH, False, False, False),
        (Remedy.RETRY_REQUEST, True, False, False),
        (Remedy.RESTART_WORKERS, True, False, False),
        (Remedy.RESET_WHEN_IDLE, False, False, True),
        (Remedy.RESET_NOW, True, False, True),
        (Remedy.AVOID, False, True, False),
        (Remedy.ISOLATE, True, True, False),
        (Remedy.HOLD, True, True, False),
    ],
)
def test_what_a_training_job_does(remedy: Remedy | None, stop: bool, avoid: bool, reset: bool) -> None:
    answer = answer_of("npu0", remedy, since=T, now=T + 1000)
    assert (answer.stop, answer.avoid, answer.reset) == (stop, avoid, reset)
    assert bool(answer.why) == (stop or avoid or reset)


def test_an_inference_job_waits_a_minute_with_its_requests() -> None:
    early = answer_of("npu0", Remedy.RETRY_REQUEST, since=T, now=T + 60, kind=JobKind.INFERENCE)
    late = answer_of("npu0", Remedy.RETRY_REQUEST, since=T, now=T + 60.1, kind=JobKind.INFERENCE)
    assert (early.stop, early.wait_until, late.stop, late.avoid) == (False, T + 60, True, True)


def test_subhealth_follows_the_jobs_own_strategy() -> None:
    answers = [
        answer_of("npu0", Remedy.WATCH, since=T, now=T, on_subhealth=how) for how in ("ignore", "grace", "force")
    ]
    assert [(answer.stop, answer.avoid) for answer in answers] == [(False, False), (True, True), (True, True)]
    assert [answer.save for answer in answers[1:]] == [True, False]


def test_numbers_in_names_sort_as_numbers() -> None:
    assert sorted(["gpu10", "gpu2", "node", "gpu"], key=natural) == ["gpu", "gpu2", "gpu10", "node"]
