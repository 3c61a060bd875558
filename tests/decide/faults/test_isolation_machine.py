"""The engine against a second, deliberately naive one, on random timelines with late events, reloads and restarts."""

from __future__ import annotations

import math

import msgspec
from faults_naive import Happening, Naive
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.decide.faults.engine_snapshot import EngineState
from holdfast.decide.faults.fault_engine import FaultEngine, LevelChange
from holdfast.decide.faults.fault_policy import NEVER_S, DurationRule, FrequencyRule, Policy
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity

CODES = ("80E18005", "8C204E00", "81078603", "80FFFFF1")
TWO_NPUS = ("npu0", "npu1")
FIRST_SECOND = 1_700_000_000
LATENESS = 60

remedies = st.sampled_from([remedy for remedy in Remedy if remedy is not Remedy.HOLD])
frequencies = st.builds(
    FrequencyRule,
    window_s=st.integers(1, 40),
    times=st.integers(1, 4),
    remedy=st.sampled_from(list(Remedy)),
    release_s=st.one_of(st.just(NEVER_S), st.integers(1, 30)),
)
durations = st.builds(DurationRule, fault_s=st.integers(0, 12), recover_s=st.integers(0, 12), remedy=remedies)
policies = st.builds(
    Policy,
    levels=st.dictionaries(st.sampled_from(CODES[:3]), remedies),
    frequency=st.dictionaries(st.sampled_from(CODES), frequencies),
    duration=st.dictionaries(st.sampled_from(CODES), durations),
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = FIRST_SECOND
        self.engine = FaultEngine(Policy(), lateness_s=10 * LATENESS)
        self.naive = Naive(Policy())
        self.told: dict[str, Remedy | None] = dict.fromkeys(TWO_NPUS)

    def _hear(self, changes: list[LevelChange]) -> None:
        for change in changes:
            self.told[change.device] = change.after

    @rule(policy=policies)
    def reload(self, policy: Policy) -> None:
        self.naive.history.append(Happening(at=self.now, arrived=self.now, policy=policy))
        self._hear(self.engine.reload(policy, self.now))

    @rule(frequency=st.dictionaries(st.sampled_from(CODES), frequencies))
    def recount(self, frequency: dict[str, FrequencyRule]) -> None:
        """A reload that leaves levels and duration rules as they are."""
        now = self.engine.policy
        self.reload(Policy(levels=now.levels, frequency=frequency, duration=now.duration))

    @rule(
        device=st.sampled_from(TWO_NPUS),
        code=st.sampled_from(CODES),
        assertion=st.sampled_from(list(Assertion)),
        severity=st.sampled_from(list(Severity)),
        late=st.one_of(st.just(0), st.integers(0, LATENESS)),
    )
    def event(self, device: str, code: str, assertion: Assertion, severity: Severity, late: int) -> None:
        at = self.now - late
        self.naive.history.append(
            Happening(at=at, arrived=self.now, device=device, code=code, assertion=assertion, severity=severity)
        )
        event = FaultEvent(device=device, code=code, assertion=assertion, severity=severity, at=float(at))
        self._hear(self.engine.handle(event, self.now))

    @rule(device=st.sampled_from(TWO_NPUS))
    def release(self, device: str) -> None:
        self.naive.history.append(Happening(at=self.now, arrived=self.now, device=device))
        self._hear(self.engine.release(device, self.now))

    @rule(seconds=st.integers(1, 25))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def sleep_until_woken(self) -> None:
        wake = self.engine.next_wake()
        if wake is None or wake > self.now + 100:
            return
        # Nothing may change before the moment that the engine names.
        for device in TWO_NPUS:
            before = self.naive.view(device, self.now)
            for second in range(self.now + 1, math.ceil(wake)):
                after = self.naive.view(device, second)
                assert (after.level or Remedy.NONE, after.reasons) == (before.level or Remedy.NONE, before.reasons)
        self.now = max(self.now, math.ceil(wake))

    @rule()
    def restart(self) -> None:
        data = msgspec.json.encode(self.engine.dump())
        self.engine = FaultEngine(Policy(), lateness_s=10 * LATENESS)
        self.engine.load(msgspec.json.decode(data, type=EngineState))

    @rule()
    def sweep(self) -> None:
        self.engine.sweep()

    @invariant()
    def same(self) -> None:
        self._hear(self.engine.tick(self.now))
        for device in TWO_NPUS:
            want = self.naive.view(device, self.now)
            assert self.engine.plane_levels(device) == (want.chip, want.network)
            assert self.engine.level(device) == want.level
            assert self.engine.codes(device) == want.codes
            assert self.engine.counts(device) == want.counts
            reasons = tuple(f"{r.kind}:{r.code}:{r.remedy.name}" for r in self.engine.reasons(device))
            assert tuple(sorted(reasons)) == want.reasons
            assert (self.told[device] or Remedy.NONE) == (want.level or Remedy.NONE), "a change was not told"


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
