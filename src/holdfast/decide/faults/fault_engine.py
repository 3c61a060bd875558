"""The fault engine turns fault events into changes of device levels. A device's level is its most severe remedy, such
as AVOID.

It reads no clock: callers pass in `now`.

It applies events in the order of the events' own times, so the result does not depend on batches or on the order of
arrival. It inserts a late event by its time, and applies the code's short history again. It refuses and counts events
older than the kept history (`lateness_s`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

from holdfast.catalogue.fault_codes import canonical
from holdfast.decide.faults.code_state import CodeState, TrackedDevice
from holdfast.decide.faults.compiled_rules import (
    INF,
    ONCE,
    SEVERITY_INDEX,
    STEP,
    USER_ACTION,
    Code,
    CompiledRules,
    Entry,
    compiled_rules_of,
    event_order,
    order_of,
)
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.fault_state import (
    LATENESS_S,
    MINUTE,
    ChangeKind,
    FaultState,
    LevelChange,
    Reason,
    remedy_or_none,
)
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity

__all__ = ["FUTURE_S", "LATENESS_S", "ChangeKind", "FaultEngine", "LevelChange", "Reason"]

#: The engine refuses an event that is dated more than this many seconds in the future, because the clock of its source
#: is wrong.
FUTURE_S = 60.0
#: The circuit breaker's window for duration rules: one hour, in milliseconds. Duration rules set no window.
_DURATION_WINDOW = 3_600_000
_OLDEST = -1.0e12
_AT = attrgetter("at")
_KINDS = {Assertion.OCCUR: 0, Assertion.ONCE: 1, Assertion.RECOVER: 2}
_OCCUR, _RECOVER = Assertion.OCCUR, Assertion.RECOVER
_MINOR, _MAJOR, _CRITICAL = Severity.MINOR, Severity.MAJOR, Severity.CRITICAL


class FaultEngine(FaultState):
    """Tracks the level of every device: the most severe remedy that its faults demand.

    Use it from one thread only. A bad event raises no exception.

    `handle`, `tick`, `reload` and `release` return the changes of level that they caused. `next_wake` returns the time
    for the next `tick`. `refused` counts the refused events by reason.
    """

    # ---- methods that apply events

    def check(self, event: FaultEvent, now: float) -> str:
        """Return why `handle` would refuse this event; empty if it would accept the event. Change nothing."""
        if not event.at < now + FUTURE_S:
            return f"its time lies {event.at - now:.0f} s in the future; more than {FUTURE_S:.0f} s is a wrong clock"
        device = self.devices.get(event.device)
        code_state = None if device is None else device.codes.get(canonical(event.code))
        if code_state is not None and code_state.checkpoint is not None:
            order = event_order(round(event.at * 1000), _KINDS[event.assertion], SEVERITY_INDEX[event.severity])
            if order < code_state.checkpoint[-1]:  # type: ignore[operator]  # the snapshot's last field is its order
                return "it is older than what is already settled for this code"
        return ""

    def handle(self, event: FaultEvent, now: float) -> list[LevelChange]:
        """Apply one fault event, which arrives at `now` (seconds)."""
        changes: list[LevelChange] = []
        self._take(event, self._arrive(now), now + FUTURE_S, changes)
        return changes

    def _arrive(self, now: float) -> int:
        """Return `now` in milliseconds. Move the engine's clock forward to it; the clock never goes back."""
        arrived = int(now * 1000 + 0.5)
        if arrived > self.clock:
            self.clock = arrived
        return arrived

    def _take(self, event: FaultEvent, arrived: int, future: float, changes: list[LevelChange]) -> None:
        """Apply one event of a batch. Append the changes of device levels to `changes`; most events cause none."""
        seconds = event.at
        if not _OLDEST < seconds < future:
            self.refused["future"] += 1
            return
        at = int(seconds * 1000 + 0.5)
        # Compare enum members with `is`: a table lookup would compute their hash in Python for each event.
        assertion = event.assertion
        kind = 0 if assertion is _OCCUR else 2 if assertion is _RECOVER else 1
        said = event.severity
        severity = 2 if said is _MAJOR else 3 if said is _CRITICAL else 1 if said is _MINOR else 0
        order = at * STEP + kind * 4 + severity
        code = self._spoken.get(event.code) or self._meet(event.code)
        name = event.device
        device = self.devices.get(name)
        code_state = None if device is None else device.codes.get(code.key)
        if code_state is None:
            if event.node and (device is None or not device.node):
                device = self._device(name)
                device.node = event.node
            if kind == ONCE and code.passing and at <= arrived and order > self._last_user_action:
                code.see(name, order, arrived + self._tick)
                if device is None and name not in self.devices:
                    self.devices[name] = None
                return
            code_state = self._begin(device or self._device(name), code)
        elif event.node and not code_state.device.node:
            code_state.device.node = event.node
        before = code_state.escalated * 2 + code_state.timed_out
        if order >= code_state.order:
            code_state.log.append(order)
            code_state.apply(order, code.rules)
        elif not self._put_late(code_state, order, code.rules):
            self.refused["late"] += 1
            return
        if len(code_state.log) > code_state.full:
            code_state.settle((self.clock - self._lateness) * STEP, code.rules)
        if kind == ONCE:
            until = (at if at > arrived else arrived) + self._tick
            if until > code_state.seen_until:
                code_state.seen_until = until
        self._settle(code_state, before, at, changes)

    def handle_all(self, events: Iterable[FaultEvent], now: float) -> list[LevelChange]:
        """Apply a batch of events in the order of their own times, then the deadlines before `now`."""
        changes: list[LevelChange] = []
        arrived, future, take = self._arrive(now), now + FUTURE_S, self._take
        for event in sorted(events, key=_AT):
            take(event, arrived, future, changes)
        return changes + self.tick(now)

    def tick(self, now: float) -> list[LevelChange]:
        """Apply every deadline before `now` (seconds)."""
        clock = self._arrive(now)
        if clock > self.ticked:
            self.ticked = clock
        changes: list[LevelChange] = []
        alarms = self._alarms
        while (alarm := alarms.first()) is not None and alarm[0] < clock:
            alarms.pop()
            due, code_state = alarm[0], alarm[-1]
            if code_state.wake != due:
                continue
            code_state.wake = INF
            before = code_state.escalated * 2 + code_state.timed_out
            if code_state.due < clock:
                code_state.advance(clock, code_state.code.rules)
            self._settle(code_state, before, due + 1, changes)
        return changes

    def next_wake(self) -> float | None:
        """Return when `tick` is next needed, in seconds; None: not until another call changes something."""
        alarms = self._alarms
        while (alarm := alarms.first()) is not None:
            due = alarm[0]
            if alarm[-1].wake == due:
                return (due + 1) / 1000
            alarms.pop()
        return None

    def reload(self, policy: Policy, now: float) -> list[LevelChange]:
        """Use the rules of `policy` from now on.

        Counts and timers continue under the new rules. Holds (exclusions that outlast the fault) stay.
        """
        at = int(now * 1000 + 0.5)
        self.clock = max(self.clock, at)
        changes = self.tick(now)
        order = at * STEP - 1
        changed: dict[str, tuple[int, tuple[CompiledRules, CompiledRules]]] = {}
        recounted: set[str] = set()
        for code in list(self._codes.values()):
            pair = code.rules, compiled_rules_of(code.key, policy)
            if pair[0] != pair[1]:
                changed[code.key] = order, pair
                if pair[0].only_counts_differ(pair[1]):
                    recounted.add(code.key)
                for name in list(code.shown_after(at)):
                    self._begin(self._device(name), code)
            code.rule(pair[1], policy)
        self._reloads.append((order, self.policy, policy))
        self._note_deed(order)
        self.policy = policy
        for device in self.devices.values():
            if device is None:
                continue
            for key, code_state in device.codes.items():
                user_action = changed.get(key)
                if user_action is None:
                    continue
                old, new = user_action[1]
                before = code_state.escalated * 2 + code_state.timed_out
                if order < code_state.order:
                    self._put_late(code_state, user_action, new)
                else:
                    code_state.log.append(user_action)
                    code_state.order = order
                    if key in recounted:
                        if code_state.uncounted() and code_state.due >= at:
                            continue
                    elif code_state.idle() and old.level == new.level:
                        continue
                    code_state.reloaded(at, old, new)
                self._settle(code_state, before, at, changes)
        return changes

    def release(self, name: str, now: float) -> list[LevelChange]:
        """Release a device for a user: end its holds (exclusions that outlast the fault) and its frequency escalations,
        and restart its counts.
        """
        at = int(now * 1000 + 0.5)
        self.clock = max(self.clock, at)
        changes = self.tick(now)
        order = at * STEP + USER_ACTION * 4
        self._releases.append((order, name))
        self._note_deed(order)
        device = self.devices.get(name)
        for devices in self.taken.by_rule.values():
            devices.pop(name, None)
        if device is None:
            return changes
        for code_state in device.codes.values():
            rules = code_state.code.rules
            before = code_state.escalated * 2 + code_state.timed_out
            if order >= code_state.order:
                code_state.log.append((order, None))
                code_state.advance(at, rules)
                code_state.released(at)
                code_state.due = code_state.deadline(rules)
            else:
                self._put_late(code_state, (order, None), rules)
            self._settle(code_state, before, at, changes)
        return changes

    def hold(self, name: str, code: str, now: float, remedy: Remedy = Remedy.HOLD) -> None:
        """Add a hold (an exclusion that outlasts the fault) or an escalation (a higher remedy) from another system's
        records about the device.

        `code`: `AUTOFILL` if the records have no code.
        """
        device = self._device(name)
        known = self._code(canonical(code))
        code_state = device.codes.get(known.key) or self._begin(device, known)
        code_state.escalated, code_state.escalated_at = int(remedy), int(now * 1000 + 0.5)
        code_state.order = code_state.escalated_at * STEP
        code_state.checkpoint = code_state.snapshot()
        code_state.log.clear()
        device.level = max(device.level, code_state.asked(self.clock))

    def sweep(self) -> int:
        """Delete the code states that no rule needs any more. Return their number.

        Call this method now and then. Its cost grows only with the number of deleted states.
        """
        gone = 0
        clock, now = self.clock, self.clock // MINUTE
        for minute in [minute for minute in self._fading if minute < now]:
            for code_state in self._fading.pop(minute):
                code_state.fades = code_state.forgettable(code_state.code.rules, self._lateness)
                if code_state.fades >= clock:
                    if code_state.fades < INF:
                        self._fade(code_state)
                    continue
                code_state.wake = INF
                del code_state.device.codes[code_state.code.key]
                self._forget_if_unused(code_state.device)
                gone += 1
        if clock - self._aged > self._lateness:
            self._aged = clock
            for code in self._codes.values():
                code.age()
        return gone

    # ---- internal methods

    def _begin(self, device: TrackedDevice, code: Code) -> CodeState:
        """Create the state of a fault code on a device.

        Its log gets the recent reloads, releases and momentary events, because a late event may be older than they are.
        """
        code_state = device.codes[code.key] = CodeState(device, code)
        if self._reloads or self._releases:
            self._add_user_actions(code_state)
        seen = code.sighting(device.name)
        if seen is not None:
            code.forget(device.name)
            if seen[0] >= (self.clock - self._lateness) * STEP:
                code_state.seen_until = seen[1]
                insort(code_state.log, seen[0], key=order_of)
        if code_state.log:
            code_state.refold(code.rules)
        return code_state

    def _settle(self, code_state: CodeState, before: int, at: int, changes: list[LevelChange]) -> None:
        """Finish a change of a code state.

        Check the circuit breaker, set the next alarm of the code state, and report the device's level if it changed.
        """
        rules = code_state.code.rules
        if code_state.escalated > before >> 1:
            self._escalated(code_state, 1, changes)
        if code_state.timed_out and not before & 1 and rules.duration >= Remedy.ISOLATE:
            self._escalated(code_state, 2, changes)
        self._set_alarms(code_state)
        asked = code_state.asked(self.clock)
        if asked == code_state.level:
            return
        code_state.level = asked
        device = code_state.device
        if len(device.codes) > 1:
            asked = max([other.level for other in device.codes.values()])
        told = device.level
        if asked != told:
            device.level = asked
            # A code without a remedy is not worse than no fault, so do not report this change.
            if asked > 0 or told > 0:
                changes.append(
                    LevelChange(
                        device=device.name,
                        node=device.node,
                        before=remedy_or_none(told),
                        after=remedy_or_none(asked),
                        at=at / 1000,
                        code=code_state.code.spelled,
                    )
                )

    def _escalated(self, code_state: CodeState, which: int, changes: list[LevelChange]) -> None:
        """Handle an escalation (a higher remedy) of a code state.

        `which`: 1: by frequency; 2: by duration.

        If the rule is a dry run, only report the escalation. Otherwise the circuit breaker may suppress it.
        """
        device, rules = code_state.device, code_state.code.rules
        if which == 1:
            rule, remedy, at, window, dry = (
                rules.frequency_entry, code_state.escalated, code_state.escalated_at, rules.window, rules.frequency_dry
            )  # fmt: skip
        else:
            rule, remedy, at, window, dry = (
                rules.duration_entry, rules.duration, code_state.timed_at, _DURATION_WINDOW, rules.duration_dry
            )  # fmt: skip
        kind = None
        if dry:
            kind = ChangeKind.WOULD
        elif remedy >= Remedy.ISOLATE and self.breaker is not None:
            allowed = self.breaker.allowed(len(self.devices))
            if not self.taken.take(rule, device.name, at, window, allowed):
                code_state.suppressed |= which
                kind = ChangeKind.BREAKER
        if kind is not None:
            changes.append(
                LevelChange(
                    device=device.name,
                    node=device.node,
                    before=remedy_or_none(device.level),
                    after=Remedy(remedy),
                    at=at / 1000,
                    code=code_state.code.spelled,
                    kind=kind,
                    rule=rule,
                )
            )

    def _put_late(self, code_state: CodeState, entry: Entry, rules: CompiledRules) -> bool:
        """Insert a late entry by its time, and apply the log again. Return False if the entry is older than the log's
        checkpoint.
        """
        if code_state.checkpoint is not None and order_of(entry) < code_state.checkpoint[-1]:  # type: ignore[operator]  # its order
            return False
        escalated_at, suppressed = code_state.escalated_at, code_state.suppressed
        insort(code_state.log, entry, key=order_of)
        code_state.refold(rules)
        if code_state.escalated < 0 or code_state.escalated_at != escalated_at:
            suppressed &= 2
        code_state.suppressed = suppressed & (3 if code_state.timed_out else 1)
        if code_state.due < self.ticked:
            code_state.advance(self.ticked, rules)
        return True

    def _add_user_actions(self, code_state: CodeState) -> None:
        """Add the recent reloads and releases to the log of a new code state. A late event is then judged by the rules
        of its time.
        """
        key, name = code_state.code.key, code_state.device.name
        for when, old, new in self._reloads:
            pair = compiled_rules_of(key, old), compiled_rules_of(key, new)
            if pair[0] != pair[1]:
                code_state.log.append((when, pair))
        code_state.log.extend((when, None) for when, released in self._releases if released == name)
        code_state.log.sort(key=order_of)

    def _note_deed(self, order: int) -> None:
        self._last_user_action = max(self._last_user_action, order)
        oldest = (self.clock - self._lateness) * STEP
        self._reloads = [user_action for user_action in self._reloads if user_action[0] >= oldest]
        self._releases = [user_action for user_action in self._releases if user_action[0] >= oldest]
