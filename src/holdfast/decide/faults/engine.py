"""The fault engine: events in, changes of level out. A fold over event time; `now` comes in, no clock is read.

The same events give the same state whatever their batches. An event that arrives late is put into its place and its
code's short history is folded again; what is older than the kept history (`lateness_s`) is refused and counted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from holdfast.catalogue.faultcodes import canonical
from holdfast.decide.faults.changes import Change, ChangeKind, Reason
from holdfast.decide.faults.judge import DEED, INF, NOTHING, SEVERITY_INDEX, STEP, Judge, judge_of
from holdfast.decide.faults.ledger import LATENESS_S, Device, Ledger, remedy_or_none
from holdfast.decide.faults.policy import Policy
from holdfast.decide.faults.track import Entry, Track, event_order
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity

__all__ = ["FUTURE_S", "LATENESS_S", "Change", "ChangeKind", "FaultEngine", "Reason"]

FUTURE_S = 60.0
"""An event from further ahead than this is refused: its source's clock is wrong."""
_SHORTEN_AT = 64
_DURATION_WINDOW = 3_600_000
"""A duration rule has no window of its own; the circuit breaker looks at one hour."""
_OLDEST = -1.0e12
_KINDS = {Assertion.OCCUR: 0, Assertion.ONCE: 1, Assertion.RECOVER: 2}
_OCCUR, _RECOVER = Assertion.OCCUR, Assertion.RECOVER
_MINOR, _MAJOR, _CRITICAL = Severity.MINOR, Severity.MAJOR, Severity.CRITICAL
_SPOKEN_MOST = 65_536


class FaultEngine(Ledger):
    """The standing of every device. One thread; every method is total, nothing raises on bad events.

    `handle`, `tick`, `reload` and `release` return the changes of level they caused. `next_wake` says when `tick` has
    something to do. `refused` counts events that were not taken, by reason.
    """

    # ---- what comes in

    def check(self, event: FaultEvent, now: float) -> str:
        """Why an event would be refused; empty where it would be taken. Changes nothing."""
        if not event.at < now + FUTURE_S:
            return f"its time lies {event.at - now:.0f} s in the future; more than {FUTURE_S:.0f} s is a wrong clock"
        track = self._track(event.device, canonical(event.code))
        if track is not None and track.checkpoint is not None:
            order = event_order(round(event.at * 1000), _KINDS[event.assertion], SEVERITY_INDEX[event.severity])
            if order < track.checkpoint[-1]:  # type: ignore[operator]  # the snapshot's last field is its order
                return "it is older than what is already settled for this code"
        return ""

    def handle(self, event: FaultEvent, now: float) -> list[Change]:
        """One event, which arrives at `now` (seconds)."""
        arrived = int(now * 1000 + 0.5)
        if arrived > self.clock:
            self.clock = arrived
        seconds = event.at
        if not _OLDEST < seconds < now + FUTURE_S:
            self.refused["future"] += 1
            return []
        at = int(seconds * 1000 + 0.5)
        name = event.device
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device(event.node)
        elif event.node and not device.node:
            device.node = event.node
        known = self._spoken.get(event.code)
        if known is None:
            known = self._meet(event.code)
        code, judge = known
        # Identity, not a table: an enum's hash is computed in Python each time.
        assertion = event.assertion
        kind = 0 if assertion is _OCCUR else 2 if assertion is _RECOVER else 1
        said = event.severity
        severity = 2 if said is _MAJOR else 3 if said is _CRITICAL else 1 if said is _MINOR else 0
        order = at * STEP + kind * 4 + severity
        track = device.tracks.get(code)
        if track is None:
            track = device.tracks[code] = Track()
            if self._reloads or self._releases:
                self._add_deeds(track, name, code)
        before = track.escalated * 2 + track.timed_out
        if order >= track.order:
            log = track.log
            log.append((order, arrived))
            if not len(log) % _SHORTEN_AT:
                self._shorten(track)
            if track.due < at:
                track.advance(at, judge)
            if kind == 0:
                track.occur(at, severity, judge)
            elif kind == 1:
                track.once(at, severity, judge)
            else:
                track.recover(at, judge)
            track.order = order
            if judge.fault >= 0 or track.escalated >= 0:
                track.due = track.deadline(judge)
        elif not self._put_late(track, (order, arrived), judge):
            self.refused["late"] += 1
            return []
        if kind == 1:
            until = (at if at > arrived else arrived) + self._tick
            if until > track.seen_until:
                track.seen_until = until
                # Who asks for nothing needs no one to notice its end.
                if judge.level == 0 and track.level <= 0 and track.due == INF:
                    return []
        if track.due >= track.wake and track.escalated < 0 and not track.timed_out and not before & 1 and before < 0:
            base = judge.level
            if base < 0:
                base = judge.base(severity)
            asked = base if track.active or track.seen_until > self.clock else NOTHING
            if asked == track.level and (kind != 1 or track.active or track.wake < INF):
                return []
        return self._settle(name, device, code, track, judge, before, at)

    def handle_all(self, events: Iterable[FaultEvent], now: float) -> list[Change]:
        """A batch that has arrived together: ordered by the events' own time, then the deadlines before `now` pass."""
        changes: list[Change] = []
        for event in sorted(events, key=_at):
            changes += self.handle(event, now)
        return changes + self.tick(now)

    def tick(self, now: float) -> list[Change]:
        """Pass every deadline before `now`."""
        clock = int(now * 1000 + 0.5)
        if clock > self.clock:
            self.clock = clock
        if clock > self.ticked:
            self.ticked = clock
        changes: list[Change] = []
        heap = self._heap
        while heap and heap[0][0] < clock:
            due, name, code = heappop(heap)
            device = self.devices.get(name)
            track = device.tracks.get(code) if device is not None else None
            if device is None or track is None or track.wake != due:
                continue
            track.wake = INF
            judge = self._judge(code)
            before = track.escalated * 2 + track.timed_out
            track.advance(clock, judge)
            changes += self._settle(name, device, code, track, judge, before, due + 1)
        return changes

    def next_wake(self) -> float | None:
        """When `tick` has something to do next, in seconds; None: never, unless something comes in."""
        heap = self._heap
        while heap:
            due, name, code = heap[0]
            track = self._track(name, code)
            if track is not None and track.wake == due:
                return (due + 1) / 1000
            heappop(heap)
        return None

    def reload(self, policy: Policy, now: float) -> list[Change]:
        """New rules: counts and timers go on, and are judged by them at once. Holds stay."""
        at = int(now * 1000 + 0.5)
        self.clock = max(self.clock, at)
        changes = self.tick(now)
        old, self.policy = self.policy, policy
        self._judges.clear()
        self._spoken.clear()
        order = at * STEP - 1
        self._reloads.append((order, old, policy))
        self._forget_deeds()
        pairs: dict[str, tuple[Judge, Judge]] = {}
        for name, device in self.devices.items():
            if device is None:
                continue
            for code, track in device.tracks.items():
                pair = pairs.get(code)
                if pair is None:
                    pair = pairs[code] = (judge_of(code, old), judge_of(code, policy))
                if pair[0] == pair[1]:
                    continue
                before = track.escalated * 2 + track.timed_out
                if order >= track.order:
                    track.log.append((order, pair))
                    track.reloaded(at, *pair)
                    track.due = track.deadline(pair[1])
                else:
                    self._put_late(track, (order, pair), pair[1])
                changes += self._settle(name, device, code, track, pair[1], before, at)
        return changes

    def release(self, name: str, now: float) -> list[Change]:
        """A person gives the device back: holds and other escalations by frequency end, counting begins from zero."""
        at = int(now * 1000 + 0.5)
        self.clock = max(self.clock, at)
        changes = self.tick(now)
        order = at * STEP + DEED * 4
        self._releases.append((order, name))
        self._forget_deeds()
        device = self.devices.get(name)
        for devices in self.taken.by_rule.values():
            devices.pop(name, None)
        if device is None:
            return changes
        for code, track in list(device.tracks.items()):
            judge = self._judge(code)
            before = track.escalated * 2 + track.timed_out
            if order >= track.order:
                track.log.append((order, None))
                track.advance(at, judge)
                track.released(at)
                track.due = track.deadline(judge)
            else:
                self._put_late(track, (order, None), judge)
            changes += self._settle(name, device, code, track, judge, before, at)
        return changes

    def hold(self, name: str, code: str, now: float, remedy: Remedy = Remedy.HOLD) -> None:
        """Take over an escalation that another record says of the device (`AUTOFILL` where it says no code)."""
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device()
        key = canonical(code)
        track = device.tracks.setdefault(key, Track())
        track.escalated, track.escalated_at = int(remedy), int(now * 1000 + 0.5)
        track.order = track.escalated_at * STEP
        track.checkpoint = track.snapshot()
        device.level = max(device.level, track.asked(self.clock, self._judge(key)))

    def sweep(self) -> int:
        """Forget codes about which nothing is left to know; call it now and then. How many were forgotten."""
        gone = 0
        oldest = (self.clock - self._lateness) * STEP
        for name, device in self.devices.items():
            if device is None:
                continue
            for code in [
                code
                for code, track in device.tracks.items()
                if track.order < oldest and track.blank(self.clock, self._judge(code))
            ]:
                del device.tracks[code]
                gone += 1
            if not device.tracks and not device.in_use and not device.node:
                self.devices[name] = None
        if gone:
            self._compact()
        return gone

    # ---- inside

    def _meet(self, spelled: str) -> tuple[str, Judge]:
        if len(self._spoken) >= _SPOKEN_MOST:
            self._spoken.clear()
        code = canonical(spelled)
        known = self._spoken[spelled] = code, self._judge(code)
        return known

    def _settle(
        self, name: str, device: Device, code: str, track: Track, judge: Judge, before: int, at: int
    ) -> list[Change]:
        """After a track changed: the breaker, its next deadline, and whether the device's level is another."""
        changes: list[Change] = []
        if track.escalated > before >> 1:
            self._escalated(name, device, code, track, judge, 1, changes)
        if track.timed_out and not before & 1 and judge.duration >= Remedy.ISOLATE:
            self._escalated(name, device, code, track, judge, 2, changes)
        clock = self.clock
        asked = track.asked(clock, judge)
        due = track.due
        if asked > 0 and track.seen_until > clock and not track.active:
            due = min(due, track.seen_until - 1)
        if due < track.wake:
            track.wake = due
            heap = self._heap
            heappush(heap, (due, name, code))
            if len(heap) > self._heap_most:
                self._compact()
        if asked == track.level:
            return changes
        track.level = asked
        tracks = device.tracks
        if len(tracks) > 1:
            asked = max([other.level for other in tracks.values()])
        told = device.level
        if asked != told:
            device.level = asked
            # A momentary NONE, or its end, concerns nobody.
            if asked > 0 or told > 0:
                changes.append(
                    Change(
                        device=name,
                        node=device.node,
                        before=remedy_or_none(told),
                        after=remedy_or_none(asked),
                        at=at / 1000,
                        code=self.policy.spell(code),
                    )
                )
        return changes

    def _compact(self) -> None:
        """Rid the heap of deadlines that were replaced by earlier ones: one is left a track."""
        self._heap = [
            (track.wake, name, code)
            for name, device in self.devices.items()
            if device is not None
            for code, track in device.tracks.items()
            if track.wake < INF
        ]
        heapify(self._heap)
        self._heap_most = 2 * len(self._heap) + 1024

    def _escalated(
        self, name: str, device: Device, code: str, track: Track, judge: Judge, which: int, changes: list[Change]
    ) -> None:
        """A rule escalated (1: frequency, 2: duration). Dry runs are told; the breaker may stop it."""
        if which == 1:
            rule, remedy, at, window, dry = (
                judge.frequency_entry, track.escalated, track.escalated_at, judge.window, judge.frequency_dry
            )  # fmt: skip
        else:
            rule, remedy, at, window, dry = (
                judge.duration_entry, judge.duration, track.timed_at, _DURATION_WINDOW, judge.duration_dry
            )  # fmt: skip
        kind = None
        if dry:
            kind = ChangeKind.WOULD
        elif remedy >= Remedy.ISOLATE and self.breaker is not None:
            allowed = self.breaker.allowed(len(self.devices))
            if not self.taken.take(rule, name, at, window, allowed):
                track.suppressed |= which
                kind = ChangeKind.BREAKER
        if kind is not None:
            changes.append(
                Change(
                    device=name,
                    node=device.node,
                    before=remedy_or_none(device.level),
                    after=Remedy(remedy),
                    at=at / 1000,
                    code=self.policy.spell(code),
                    kind=kind,
                    rule=rule,
                )
            )

    def _put_late(self, track: Track, entry: Entry, judge: Judge) -> bool:
        """Put an entry where it belongs in time and fold again. False where that place is already settled."""
        if track.checkpoint is not None and entry[0] < track.checkpoint[-1]:  # type: ignore[operator]  # its order
            return False
        escalated_at, suppressed = track.escalated_at, track.suppressed
        track.mark = None
        insort(track.log, entry, key=_order_of)
        track.refold(judge)
        if track.escalated < 0 or track.escalated_at != escalated_at:
            suppressed &= 2
        track.suppressed = suppressed & (3 if track.timed_out else 1)
        if track.due < self.ticked:
            track.advance(self.ticked, judge)
        return True

    def _shorten(self, track: Track) -> None:
        """Drop the part of the log before which nothing can arrive any more."""
        oldest = (self.clock - self._lateness) * STEP
        if track.mark is not None and track.log[track.mark[0]][0] < oldest:
            kept, track.checkpoint = track.mark
            del track.log[:kept]
            track.mark = None
        if track.mark is None:
            # The newest entry is in the log already, but not in the state.
            track.mark = (len(track.log) - 1, track.snapshot())

    def _add_deeds(self, track: Track, name: str, code: str) -> None:
        """A code first heard of now: what people did lately belongs into its history, for later and late events."""
        for when, old, new in self._reloads:
            pair = judge_of(code, old), judge_of(code, new)
            if pair[0] != pair[1]:
                track.log.append((when, pair))
        track.log.extend((when, None) for when, released in self._releases if released == name)
        if track.log:
            track.log.sort(key=_order_of)
            track.order = track.log[-1][0]

    def _forget_deeds(self) -> None:
        oldest = (self.clock - self._lateness) * STEP
        self._reloads = [deed for deed in self._reloads if deed[0] >= oldest]
        self._releases = [deed for deed in self._releases if deed[0] >= oldest]


def _at(event: FaultEvent) -> float:
    return event.at


def _order_of(entry: Entry) -> int:
    return entry[0]
