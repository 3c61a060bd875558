"""A second fault engine, deliberately naive: it walks the whole history second by second, from the start, every time.

Times are whole seconds. It shares nothing with the real engine but the policy and the nouns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.decide.faults.fault_policy import NEVER_S, Policy
from holdfast.model.faults import Assertion, Remedy, Severity

NETWORK = {"81078603", "81078607"}
KIND_RANK = {Assertion.OCCUR: 0, Assertion.ONCE: 1, Assertion.RECOVER: 2}
SEVERITY_RANK = {Severity.INFO: 0, Severity.MINOR: 1, Severity.MAJOR: 2, Severity.CRITICAL: 3}


@dataclass
class Happening:
    """An event, a reload or a release, with the moment it is about and the moment it became known."""

    at: int
    arrived: int
    device: str = ""
    code: str = ""
    assertion: Assertion | None = None
    severity: Severity = Severity.MAJOR
    policy: Policy | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        if self.policy is not None:
            return self.at, -1, 0
        if self.assertion is None:
            return self.at, 3, 0
        return self.at, KIND_RANK[self.assertion], SEVERITY_RANK[self.severity]


@dataclass
class Code:
    """Everything about one code on one device, as lists that are never shortened but by the rules."""

    active: bool = False
    severity: Severity = Severity.MAJOR
    shown_until: int = -1
    occurrences: list[int] = field(default_factory=list)
    escalated: Remedy | None = None
    fault_times: list[int] = field(default_factory=list)
    quiet_since: int | None = None
    began: int | None = None
    timed_out: bool = False
    gone_since: int | None = None


@dataclass
class View:
    level: Remedy | None
    chip: Remedy | None
    network: Remedy | None
    codes: tuple[str, ...]
    counts: dict[str, int]
    reasons: tuple[str, ...]


class Naive:
    def __init__(self, policy: Policy) -> None:
        self.first = policy
        self.history: list[Happening] = []

    def view(self, device: str, now: int) -> View:
        policy = self.first
        codes: dict[str, Code] = {}
        story = sorted(
            (item for item in self.history if item.device in ("", device) and item.at <= now), key=lambda item: item.key
        )
        start = min([item.at for item in story], default=now)
        index = 0
        for second in range(start, now + 1):
            for name, code in codes.items():
                self._timers(name, code, second, policy)
            while index < len(story) and story[index].at == second:
                item = story[index]
                index += 1
                if item.policy is not None:
                    for name, code in codes.items():
                        self._reload(name, code, second, policy, item.policy)
                    policy = item.policy
                elif item.assertion is None:
                    for code in codes.values():
                        code.escalated = None
                        code.occurrences = []
                else:
                    self._event(codes.setdefault(item.code, Code()), item, policy)
        return self._look(codes, now, policy)

    def _timers(self, name: str, code: Code, now: int, policy: Policy) -> None:
        lasting, counted = policy.duration.get(name), policy.frequency.get(name)
        while True:
            # Of two deadlines that have passed the earlier goes first; a time-out before a release.
            passed: list[tuple[int, int]] = []
            if lasting and not code.timed_out and code.began is not None and now - code.began > lasting.fault_s:
                passed.append((code.began + lasting.fault_s, 0))
            if lasting and code.timed_out and code.gone_since is not None and now - code.gone_since > lasting.recover_s:
                passed.append((code.gone_since + lasting.recover_s, 1))
            if (
                counted
                and code.escalated is not None
                and counted.release_s < NEVER_S
                and code.quiet_since is not None
                and now - code.quiet_since > counted.release_s
            ):
                passed.append((code.quiet_since + counted.release_s, 2))
            if not passed:
                return
            moment, what = min(passed)
            if what == 0:
                code.began, code.timed_out = None, True
                if counted:
                    self._count(name, code, moment, max(moment + 1, 0), now, policy)
            elif what == 1:
                code.timed_out, code.gone_since, code.quiet_since = False, None, moment
            else:
                code.escalated = None

    def _count(self, name: str, code: Code, at: int, judged: int, _now: int, policy: Policy) -> None:
        rule = policy.frequency[name]
        code.quiet_since = None
        if code.escalated is not None:
            return
        code.occurrences.append(at)
        if len([when for when in code.occurrences if when >= judged - rule.window_s]) >= rule.times:
            code.escalated = rule.remedy
            code.occurrences = []

    def _event(self, code: Code, item: Happening, policy: Policy) -> None:
        lasting = item.code in policy.duration
        counted = item.code in policy.frequency
        at = item.at
        if item.assertion is Assertion.OCCUR:
            code.active, code.severity = True, item.severity
            if lasting and code.timed_out:
                code.gone_since = None
            elif lasting and code.began is None:
                code.began = at
            elif counted and not lasting:
                self._count(item.code, code, at, at, at, policy)
        elif item.assertion is Assertion.ONCE:
            code.severity = item.severity
            code.shown_until = max(code.shown_until, max(at, item.arrived) + 1)
            if lasting and code.gone_since is not None:
                code.gone_since = at
            elif counted and not lasting:
                self._count(item.code, code, at, at, at, policy)
                if not code.active:
                    code.quiet_since = at
        else:
            was_active, code.active = code.active, False
            if lasting and code.timed_out:
                code.gone_since = at if code.gone_since is None else code.gone_since
            elif lasting and code.began is not None:
                code.began = None
            elif was_active:
                code.quiet_since = at

    def _reload(self, name: str, code: Code, now: int, old: Policy, new: Policy) -> None:
        before, after = old.frequency.get(name), new.frequency.get(name)
        if (before, old.duration.get(name)) == (after, new.duration.get(name)):
            return
        if before:
            code.occurrences = [when for when in code.occurrences if when >= now - before.window_s]
        if before and not after:
            code.occurrences = []
            if code.escalated is not Remedy.HOLD:
                code.escalated = None
        elif before and after and code.escalated not in (None, Remedy.HOLD):
            code.escalated = after.remedy
        if name in old.duration and name not in new.duration:
            if code.timed_out and not code.active:
                code.quiet_since = code.gone_since if code.gone_since is not None else now
            code.timed_out, code.began, code.gone_since = False, None, None
        if after and code.escalated is None:
            code.occurrences = [when for when in code.occurrences if when >= now - after.window_s]
            if len(code.occurrences) >= after.times:
                code.escalated, code.occurrences = after.remedy, []
        self._late_timers(name, code, now, new)

    def _late_timers(self, name: str, code: Code, now: int, policy: Policy) -> None:
        # What the new rules say has passed long ago happens now: the window is judged from now.
        rule, lasting = policy.frequency.get(name), policy.duration.get(name)
        if lasting and not code.timed_out and code.began is not None and now - code.began > lasting.fault_s:
            at = code.began + lasting.fault_s
            code.began, code.timed_out = None, True
            if rule:
                self._count(name, code, at, now, now, policy)
        self._timers(name, code, now, policy)

    def _look(self, codes: dict[str, Code], now: int, policy: Policy) -> View:
        chip: list[Remedy] = []
        network: list[Remedy] = []
        reasons, shown, counts = [], [], {}
        for name, code in codes.items():
            plane = network if name in NETWORK else chip
            if code.active or code.shown_until > now:
                shown.append(name)
                mild = code.severity in (Severity.INFO, Severity.MINOR)
                plane.append(policy.levels.get(name, Remedy.NONE if mild else Remedy.ISOLATE))
            if code.escalated is not None:
                plane.append(code.escalated)
                reasons.append(f"FaultFrequency:{name}:{code.escalated.name}")
            lasting = policy.duration.get(name)
            if lasting and code.timed_out:
                plane.append(lasting.remedy)
                reasons.append(f"FaultDuration:{name}:{lasting.remedy.name}")
            rule = policy.frequency.get(name)
            if rule:
                inside = [when for when in code.occurrences if when >= now - rule.window_s]
                if inside:
                    counts[name] = len(inside)
        return View(
            level=max(chip + network, default=None),
            chip=max(chip, default=None),
            network=max(network, default=None),
            codes=tuple(sorted(shown)),
            counts=counts,
            reasons=tuple(sorted(reasons)),
        )
