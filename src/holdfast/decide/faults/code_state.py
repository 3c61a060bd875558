"""The state of one code on one device, computed from its events: frequency, duration, hold and release.

Events change a code state through `occur`, `once` and `recover`, and `advance` applies its deadlines. It has no
other input. Times are whole milliseconds. A deadline `due` fires at the first moment later than `due`.

Without a duration rule every occurrence of the code counts for the frequency rule. With a duration rule an occurrence
counts when the fault times out. A fault that ends and returns within `recover` counts once:

    healthy ──lasts longer than fault──▶ timed out ──gone for longer than recover──▶ healthy
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter

from holdfast.decide.faults.compiled_rules import (
    INF,
    NOTHING,
    OCCUR,
    ONCE,
    STEP,
    USER_ACTION,
    Code,
    CompiledRules,
    Entry,
    order_of,
)
from holdfast.model.faults import Remedy

#: `settle` shortens a code state's log only if it has more entries than this.
SHORT = 64


class TrackedDevice:
    """A device (or node) with its node, its use, and the states of its fault codes (`codes`). Of other devices the
    engine keeps only the name.
    """

    __slots__ = ("codes", "in_use", "level", "name", "node")

    def __init__(self, name: str, node: str = "") -> None:
        self.name = name
        self.node = node
        self.codes: dict[str, CodeState] = {}
        #: The last reported level of the device (its most severe remedy). A momentary event without a remedy is not
        #: reported as a change.
        self.level = NOTHING
        self.in_use = False


class CodeState:
    """The state of one fault code on one device."""

    __slots__ = (
        "active",
        "checkpoint",
        "code",
        "counts",
        "device",
        "due",
        "escalated",
        "escalated_at",
        "fades",
        "full",
        "last_fault",
        "last_recover",
        "level",
        "log",
        "order",
        "pending",
        "quiet",
        "recovering",
        "seen_until",
        "severity",
        "since",
        "suppressed",
        "timed_at",
        "timed_out",
        "wake",
    )

    #: The fields that are computed from the events, in the order of a snapshot. All other fields are derived from
    #: these, or set by the engine.
    FOLDED = (
        "active",
        "since",
        "severity",
        "counts",
        "escalated",
        "escalated_at",
        "last_fault",
        "last_recover",
        "quiet",
        "pending",
        "timed_out",
        "timed_at",
        "recovering",
        "order",
    )

    def __init__(self, device: TrackedDevice, code: Code) -> None:
        self.device = device
        self.code = code
        self.active = False
        #: When the present or latest occurrence of the fault began.
        self.since = 0
        self.severity = 0
        self.counts: tuple[int, ...] = ()
        #: The remedy that the frequency rule demands while its escalation lasts; else `NOTHING`.
        self.escalated = NOTHING
        self.escalated_at = 0
        self.last_fault = 0
        self.last_recover = 0
        #: Whether the fault has ended since its last counted occurrence. The release window then counts from
        #: `last_recover`.
        self.quiet = False
        #: When the present fault began, while its duration is still below the duration rule's limit; else `NOTHING`.
        self.pending = NOTHING
        self.timed_out = False
        self.timed_at = 0
        #: When the fault ended, while its recovery time runs; else `NOTHING`. Only a fault longer than the duration
        #: rule's limit has a recovery time.
        self.recovering = NOTHING
        #: The order (see `event_order`) of the latest change. An event with a lower order has come late.
        self.order = NOTHING

        #: A momentary event counts as active until this time.
        self.seen_until = 0
        #: Bits for the escalations that the circuit breaker has suppressed: 1: by frequency; 2: by duration.
        self.suppressed = 0
        self.level = NOTHING
        self.due = INF
        #: The time of the engine's alarm for this code state; never later than its next deadline.
        self.wake = INF
        #: When the engine next tries to delete this code state; `INF` while a rule needs it.
        self.fades = INF
        #: The code state's events since the checkpoint, in the order of time.
        self.log: list[Entry] = []
        #: The code state's snapshot just before the first entry of the log; None: the code state was still new.
        self.checkpoint: tuple[object, ...] | None = None
        #: `settle` moves old entries of the log into the checkpoint when the log has more entries than this.
        self.full = SHORT

    def snapshot(self) -> tuple[object, ...]:
        return _folded(self)

    def restore(self, state: tuple[object, ...] | None) -> None:
        for name, value in zip(self.FOLDED, state or _BLANK, strict=True):
            setattr(self, name, value)
        self.counts = tuple(self.counts)

    def occur(self, at: int, severity: int, rules: CompiledRules) -> bool:
        """Apply an event: the fault has begun, or still lasts.

        Return True if the remedy rose (an escalation). `at`: the event's time (milliseconds). `severity`: an index in
        `SEVERITIES`.
        """
        if not self.active:
            self.active = True
            self.since = at
        self.severity = severity
        if rules.fault < 0:
            return self._count(at, at, rules) if rules.times else False
        if self.timed_out:
            self.recovering = NOTHING
        elif self.pending < 0:
            self.pending = at
        return False

    def once(self, at: int, severity: int, rules: CompiledRules) -> bool:
        """Apply a momentary event, which never gets an end event.

        Return True if the remedy rose (an escalation). `at`: the event's time (milliseconds). `severity`: an index in
        `SEVERITIES`.
        """
        self.severity = severity
        if not self.active:
            self.since = at
        if rules.fault >= 0:
            # The duration rule does not count a momentary event, because the event has no duration. But the event
            # restarts the recovery time.
            if self.recovering >= 0:
                self.recovering = at
            return False
        if not rules.times:
            return False
        escalated = self._count(at, at, rules)
        if not self.active:
            self.last_recover = at
            self.quiet = True
        return escalated

    def recover(self, at: int, rules: CompiledRules) -> None:
        """Apply an event: the fault has ended."""
        was_active = self.active
        self.active = False
        if rules.fault >= 0:
            if self.timed_out:
                if self.recovering < 0:
                    self.recovering = at
                return
            if self.pending >= 0:
                self.pending = NOTHING
                return
            # The fault began before the duration rule existed. It was counted at once and has no timer.
        if was_active:
            self.last_recover = at
            self.quiet = True

    def deadline(self, rules: CompiledRules) -> int:
        """Return the next time at which the code state changes without an event; `INF`: never."""
        due = INF
        if rules.fault >= 0:
            if self.timed_out:
                if self.recovering >= 0:
                    due = self.recovering + rules.recover
            elif self.pending >= 0:
                due = self.pending + rules.fault
        if self.escalated >= 0 and self.quiet and rules.release < INF:
            due = min(due, self.last_recover + rules.release)
        return due

    def advance(self, to: int, rules: CompiledRules, floor: int = 0) -> bool:
        """Apply every deadline before `to`, in the order of time.

        Return True if the remedy rose (an escalation). `floor`: when these rules came into force. No change gets an
        earlier time, even if its deadline is earlier.
        """
        escalated = False
        while True:
            due = self.deadline(rules)
            if due >= to:
                self.due = due
                return escalated
            moment = max(due + 1, floor)
            if rules.fault >= 0 and not self.timed_out and self.pending >= 0 and due == self.pending + rules.fault:
                self.pending = NOTHING
                self.timed_out = True
                self.timed_at = due
                if rules.times:
                    escalated |= self._count(due, moment, rules)
            elif (
                rules.fault >= 0 and self.timed_out and self.recovering >= 0 and due == self.recovering + rules.recover
            ):
                self.timed_out = False
                self.suppressed &= 1
                self.recovering = NOTHING
                self.last_recover = due
                self.quiet = True
            else:
                self.end_escalation()
            self.order = max(self.order, moment * STEP)

    def _count(self, at: int, now: int, rules: CompiledRules) -> bool:
        self.last_fault = at
        self.quiet = False
        if self.escalated >= 0:
            return False
        self.forget_before(now - rules.window)
        self.counts += (at,)
        return self.judge_counts(at, rules)

    def judge_counts(self, at: int, rules: CompiledRules) -> bool:
        """Escalate (raise the remedy) if the fault has occurred as often as the frequency rule says. Then restart the
        count. Return True if the remedy rose.
        """
        if len(self.counts) < rules.times:
            return False
        self.escalated = rules.frequency
        self.escalated_at = at
        self.counts = ()
        return True

    def forget_before(self, moment: int) -> None:
        """Forget the occurrences of the fault before `moment`, and keep one exactly at `moment`."""
        counts = self.counts
        if counts and counts[0] < moment:
            self.counts = counts[bisect_left(counts, moment) :]

    def counted(self, now: int, rules: CompiledRules) -> int:
        """Return how often the fault occurred within the frequency rule's window, which ends at `now`."""
        if not rules.times:
            return 0
        return len(self.counts) - bisect_left(self.counts, now - rules.window)

    def end_escalation(self) -> None:
        self.escalated = NOTHING
        self.escalated_at = 0
        self.suppressed &= 2

    def released(self, at: int) -> None:
        """A user has released the device: end the frequency escalation, and restart the count."""
        self.end_escalation()
        self.counts = ()
        self.order = max(self.order, at * STEP + USER_ACTION * 4)

    def reloaded(self, at: int, old: CompiledRules, new: CompiledRules) -> bool:
        """Apply new rules. Return True if the remedy rose (an escalation).

        Counts and timers continue under the new rules. If a rule was removed, its counts and escalations end; only a
        hold stays.
        """
        if self.due < at:
            self.advance(at, old)
        held = self.escalated == Remedy.HOLD
        if old.times and not new.times:
            self.counts = ()
            if not held:
                self.end_escalation()
        elif old.times and self.escalated >= 0 and not held:
            self.escalated = new.frequency
        if old.times:
            self.forget_before(at - old.window)
        if old.fault >= 0 and new.fault < 0:
            if self.timed_out and not self.active:
                # The new rules have no duration rule. The fault has already ended, so it needs no recovery time.
                self.last_recover = self.recovering if self.recovering >= 0 else at
                self.quiet = True
            self.timed_out = False
            self.pending = NOTHING
            self.recovering = NOTHING
        escalated = False
        if new.times and self.escalated < 0:
            self.forget_before(at - new.window)
            if self.counts:
                escalated = self.judge_counts(self.counts[-1], new)
        self.order = max(self.order, at * STEP - 1)
        return self.advance(at, new, floor=at) or escalated

    def refold(self, rules: CompiledRules) -> None:
        """Apply the log again from the checkpoint on, because an event was inserted before the latest one."""
        self.restore(self.checkpoint)
        then_in_force = self._first_rules(rules)
        self.due = self.deadline(then_in_force)
        for entry in self.log:
            if isinstance(entry, int):
                self.apply(entry, then_in_force)
                continue
            order, user_action = entry
            if user_action is None:
                at = order // STEP
                self.advance(at, then_in_force)
                self.released(at)
            else:
                self.reloaded((order + 1) // STEP, *user_action)
                then_in_force = user_action[1]
        self.due = self.deadline(rules)

    def _first_rules(self, rules: CompiledRules) -> CompiledRules:
        """Return the rules that were in force at the first entry of the log. `rules`: the rules in force now."""
        return next((entry[1][0] for entry in self.log if not isinstance(entry, int) and entry[1]), rules)

    def settle(self, oldest: int, rules: CompiledRules) -> None:
        """Move old entries of the log into the checkpoint. The engine accepts no events that old any more.

        `oldest`: the order (see `event_order`) of the oldest entry to keep.
        """
        settled = bisect_left(self.log, oldest, key=order_of)
        if settled:
            past = CodeState(self.device, self.code)
            past.checkpoint, past.log = self.checkpoint, self.log[:settled]
            past.refold(self._first_rules(rules))
            self.checkpoint = past.snapshot()
            del self.log[:settled]
        self.full = max(SHORT, 2 * len(self.log))

    def apply(self, order: int, rules: CompiledRules) -> None:
        """Apply one event in the order of time. `order`: the event's time, kind and severity as one number (see
        `event_order`).
        """
        at = order // STEP
        if self.due < at:
            self.advance(at, rules)
        kind = order % STEP >> 2
        if kind == OCCUR:
            self.occur(at, order & 3, rules)
        elif kind == ONCE:
            self.once(at, order & 3, rules)
        else:
            self.recover(at, rules)
        self.order = order
        if rules.fault >= 0 or self.escalated >= 0:
            self.due = self.deadline(rules)

    def uncounted(self) -> bool:
        """Return whether the code state has no counts and no frequency escalation."""
        return not self.counts and self.escalated < 0

    def idle(self) -> bool:
        """Return whether the code state has no counts, no timer and no escalation."""
        return self.uncounted() and self.pending < 0 and not self.timed_out

    def forgettable(self, rules: CompiledRules, lateness: int) -> int:
        """Return the time after which the code state has no effect and can be deleted; `INF`: it is still needed.
        `lateness`: how old a late event may be, in milliseconds.
        """
        if self.active or self.timed_out or self.escalated >= 0:
            return INF
        moment = self.order // STEP + lateness
        if self.seen_until > moment:
            moment = self.seen_until
        if self.counts and rules.times and self.counts[-1] + rules.window > moment:
            moment = self.counts[-1] + rules.window
        return moment

    def shown(self, now: int) -> int:
        """Return the code's base level while the fault counts as active; else `NOTHING`. A momentary event counts as
        active for a short time.
        """
        return self.code.bases[self.severity] if self.active or self.seen_until > now else NOTHING

    def asked(self, now: int) -> int:
        """Return the level (remedy) that the code state demands: the highest of its base level and its effective
        escalations.
        """
        code = self.code
        rules = code.rules
        level = code.bases[self.severity] if self.active or self.seen_until > now else NOTHING
        if self.escalated > level and not self.suppressed & 1 and not rules.frequency_dry:
            level = self.escalated
        if self.timed_out and rules.duration > level and not self.suppressed & 2 and not rules.duration_dry:
            level = rules.duration
        return level


_folded: Callable[[CodeState], tuple[object, ...]] = attrgetter(*CodeState.FOLDED)
#: The snapshot of a code state without history.
_BLANK = (False, 0, 0, (), NOTHING, 0, 0, 0, False, NOTHING, False, 0, NOTHING, NOTHING)
