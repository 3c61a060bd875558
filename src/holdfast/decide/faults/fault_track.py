"""One code on one device: the fold over its events. Frequency, duration, hold and release live here.

A track is a value with four ways to change it (`occur`, `once`, `recover`, and `advance` past its deadlines) and no
other input. Times are whole milliseconds. A deadline `due` fires for every moment strictly later than itself.

Where a code has no duration rule every occurrence counts. Where it has one, an occurrence counts when the fault times
out, and a flap inside `recover` counts no second time:

    healthy ──longer than fault──▶ timed out ──gone for longer than recover──▶ healthy
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import attrgetter

from holdfast.decide.faults.code_state import Code
from holdfast.decide.faults.compiled_rules import DEED, INF, NOTHING, OCCUR, ONCE, STEP, CompiledRules, Entry, order_of
from holdfast.model.faults import Remedy

#: Entries of a log that are not worth shortening.
SHORT = 64


class TrackedDevice:
    """A device or node of which something is left to know: its node, that it is in use, or what its codes did."""

    __slots__ = ("in_use", "level", "name", "node", "tracks")

    def __init__(self, name: str, node: str = "") -> None:
        self.name = name
        self.node = node
        self.tracks: dict[str, Track] = {}
        self.level = NOTHING
        """As last told; a momentary NONE is not worth telling."""
        self.in_use = False


class Track:
    """The state of one code on one device."""

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

    #: What the fold of events makes, in the order of a snapshot. The rest follows from it or belongs to the engine.
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
        self.since = 0
        """First occurrence of the spell that is active, or of the latest one."""
        self.severity = 0
        self.counts: tuple[int, ...] = ()
        self.escalated = NOTHING
        """The remedy that the frequency rule asks for, while it does."""
        self.escalated_at = 0
        self.last_fault = 0
        self.last_recover = 0
        self.quiet = False
        """Recovered since the last counted occurrence; the release window runs from `last_recover`."""
        self.pending = NOTHING
        """Start of a fault that has not timed out yet (duration rule)."""
        self.timed_out = False
        self.timed_at = 0
        self.recovering = NOTHING
        """When a timed-out fault went away."""
        self.order = NOTHING
        """The place in time of the latest change: an event before it is late."""

        self.seen_until = 0
        """A momentary event shows until then."""
        self.suppressed = 0
        """What the circuit breaker stopped: 1 the escalation by frequency, 2 the one by duration."""
        self.level = NOTHING
        self.due = INF
        self.wake = INF
        """The deadline that the engine has set an alarm for; never later than `due`."""
        self.fades = INF
        """When the engine will see whether this track can be forgotten; `INF`: something holds it."""
        self.log: list[Entry] = []
        """What happened since the checkpoint, in order."""
        self.checkpoint: tuple[object, ...] | None = None
        """The state before the first entry of the log; None: blank."""
        self.full = SHORT
        """So long may the log become before it is looked at for what is settled."""

    def snapshot(self) -> tuple[object, ...]:
        return _folded(self)

    def restore(self, state: tuple[object, ...] | None) -> None:
        for name, value in zip(self.FOLDED, state or _BLANK, strict=True):
            setattr(self, name, value)
        self.counts = tuple(self.counts)

    def occur(self, at: int, severity: int, judge: CompiledRules) -> bool:
        """The fault began, or was said again. True where it escalated."""
        if not self.active:
            self.active = True
            self.since = at
        self.severity = severity
        if judge.fault < 0:
            return self._count(at, at, judge) if judge.times else False
        if self.timed_out:
            self.recovering = NOTHING
        elif self.pending < 0:
            self.pending = at
        return False

    def once(self, at: int, severity: int, judge: CompiledRules) -> bool:
        """The fault came and went in one moment. True where it escalated."""
        self.severity = severity
        if not self.active:
            self.since = at
        if judge.fault >= 0:
            # Of zero length: it never times out, and so never counts; but the code was not quiet.
            if self.recovering >= 0:
                self.recovering = at
            return False
        if not judge.times:
            return False
        escalated = self._count(at, at, judge)
        if not self.active:
            self.last_recover = at
            self.quiet = True
        return escalated

    def recover(self, at: int, judge: CompiledRules) -> None:
        """The fault is over."""
        was_active = self.active
        self.active = False
        if judge.fault >= 0:
            if self.timed_out:
                if self.recovering < 0:
                    self.recovering = at
                return
            if self.pending >= 0:
                self.pending = NOTHING
                return
            # Active without a timer: it began before there was a duration rule, and was counted at once.
        if was_active:
            self.last_recover = at
            self.quiet = True

    def deadline(self, judge: CompiledRules) -> int:
        """The moment after which something changes by itself; `INF` if nothing does."""
        due = INF
        if judge.fault >= 0:
            if self.timed_out:
                if self.recovering >= 0:
                    due = self.recovering + judge.recover
            elif self.pending >= 0:
                due = self.pending + judge.fault
        if self.escalated >= 0 and self.quiet and judge.release < INF:
            due = min(due, self.last_recover + judge.release)
        return due

    def advance(self, to: int, judge: CompiledRules, floor: int = 0) -> bool:
        """Pass every deadline before `to`, in the order of their times. True where it escalated.

        `floor`: nothing happens earlier than this, also with an earlier deadline (rules that are new at `floor`).
        """
        escalated = False
        while True:
            due = self.deadline(judge)
            if due >= to:
                self.due = due
                return escalated
            moment = max(due + 1, floor)
            if judge.fault >= 0 and not self.timed_out and self.pending >= 0 and due == self.pending + judge.fault:
                self.pending = NOTHING
                self.timed_out = True
                self.timed_at = due
                if judge.times:
                    escalated |= self._count(due, moment, judge)
            elif (
                judge.fault >= 0 and self.timed_out and self.recovering >= 0 and due == self.recovering + judge.recover
            ):
                self.timed_out = False
                self.suppressed &= 1
                self.recovering = NOTHING
                self.last_recover = due
                self.quiet = True
            else:
                self.end_escalation()
            self.order = max(self.order, moment * STEP)

    def _count(self, at: int, now: int, judge: CompiledRules) -> bool:
        self.last_fault = at
        self.quiet = False
        if self.escalated >= 0:
            return False
        self.forget_before(now - judge.window)
        self.counts += (at,)
        return self.judge_counts(at, judge)

    def judge_counts(self, at: int, judge: CompiledRules) -> bool:
        """Escalate where there are enough occurrences. The counter restarts from zero."""
        if len(self.counts) < judge.times:
            return False
        self.escalated = judge.frequency
        self.escalated_at = at
        self.counts = ()
        return True

    def forget_before(self, moment: int) -> None:
        """Drop occurrences that have left the window; one at its very edge stays."""
        counts = self.counts
        if counts and counts[0] < moment:
            self.counts = counts[bisect_left(counts, moment) :]

    def counted(self, now: int, judge: CompiledRules) -> int:
        """Occurrences in the window that ends now."""
        if not judge.times:
            return 0
        return len(self.counts) - bisect_left(self.counts, now - judge.window)

    def end_escalation(self) -> None:
        self.escalated = NOTHING
        self.escalated_at = 0
        self.suppressed &= 2

    def released(self, at: int) -> None:
        """A person gave the device back: every escalation by frequency ends, counting begins again from zero."""
        self.end_escalation()
        self.counts = ()
        self.order = max(self.order, at * STEP + DEED * 4)

    def reloaded(self, at: int, old: CompiledRules, new: CompiledRules) -> bool:
        """New rules. Counts and timers go on and are judged by them at once; a removed rule's are gone, holds excepted.

        True where it escalated.
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
                # Gone already, and now nothing waits for the end of a recovery time.
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

    def refold(self, judge: CompiledRules) -> None:
        """Fold the log again from its checkpoint: something was put into it that is not the latest."""
        self.restore(self.checkpoint)
        rules = self._first_rules(judge)
        self.due = self.deadline(rules)
        for entry in self.log:
            if isinstance(entry, int):
                self.apply(entry, rules)
                continue
            order, deed = entry
            if deed is None:
                at = order // STEP
                self.advance(at, rules)
                self.released(at)
            else:
                self.reloaded((order + 1) // STEP, *deed)
                rules = deed[1]
        self.due = self.deadline(judge)

    def _first_rules(self, judge: CompiledRules) -> CompiledRules:
        """The rules at the log's beginning; those in force are `judge`."""
        return next((entry[1][0] for entry in self.log if not isinstance(entry, int) and entry[1]), judge)

    def settle(self, oldest: int, judge: CompiledRules) -> None:
        """Make a checkpoint of the log's part before the order `oldest`: nothing can arrive there any more."""
        settled = bisect_left(self.log, oldest, key=order_of)
        if settled:
            past = Track(self.device, self.code)
            past.checkpoint, past.log = self.checkpoint, self.log[:settled]
            past.refold(self._first_rules(judge))
            self.checkpoint = past.snapshot()
            del self.log[:settled]
        self.full = max(SHORT, 2 * len(self.log))

    def apply(self, order: int, judge: CompiledRules) -> None:
        """One event in its turn."""
        at = order // STEP
        if self.due < at:
            self.advance(at, judge)
        kind = order % STEP >> 2
        if kind == OCCUR:
            self.occur(at, order & 3, judge)
        elif kind == ONCE:
            self.once(at, order & 3, judge)
        else:
            self.recover(at, judge)
        self.order = order
        if judge.fault >= 0 or self.escalated >= 0:
            self.due = self.deadline(judge)

    def uncounted(self) -> bool:
        """Whether a frequency rule has nothing to judge here."""
        return not self.counts and self.escalated < 0

    def idle(self) -> bool:
        """Whether rules have nothing to judge here: no count, no timer, no escalation."""
        return self.uncounted() and self.pending < 0 and not self.timed_out

    def forgettable(self, judge: CompiledRules, lateness: int) -> int:
        """The moment after which forgetting this track changes nothing, as far as can be said now; `INF`: not yet."""
        if self.active or self.timed_out or self.escalated >= 0:
            return INF
        moment = self.order // STEP + lateness
        if self.seen_until > moment:
            moment = self.seen_until
        if self.counts and judge.times and self.counts[-1] + judge.window > moment:
            moment = self.counts[-1] + judge.window
        return moment

    def shown(self, now: int) -> int:
        """The base level while the code is active or was just seen, else `NOTHING`."""
        return self.code.bases[self.severity] if self.active or self.seen_until > now else NOTHING

    def asked(self, now: int) -> int:
        """The highest of the base level and the escalations that count."""
        code = self.code
        judge = code.judge
        level = code.bases[self.severity] if self.active or self.seen_until > now else NOTHING
        if self.escalated > level and not self.suppressed & 1 and not judge.frequency_dry:
            level = self.escalated
        if self.timed_out and judge.duration > level and not self.suppressed & 2 and not judge.duration_dry:
            level = judge.duration
        return level


_folded: Callable[[Track], tuple[object, ...]] = attrgetter(*Track.FOLDED)
#: The snapshot of a track without any history.
_BLANK = (False, 0, 0, (), NOTHING, 0, 0, 0, False, NOTHING, False, 0, NOTHING, NOTHING)
