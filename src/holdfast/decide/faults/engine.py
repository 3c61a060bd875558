"""The fault engine: events in, changes of level out. A fold over event time; `now` comes in, no clock is read.

The same events give the same state whatever their batches. An event that arrives late is put into its place and its
code's short history is folded again; what is older than the kept history (`lateness_s`) is refused and counted.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from holdfast.catalogue.faultcodes import NETWORK_CODES, canonical
from holdfast.decide.faults.breaker import Breaker, Taken
from holdfast.decide.faults.policy import Policy
from holdfast.decide.faults.state import DeviceState, EngineState, load_track, save_track
from holdfast.decide.faults.track import (
    DEED,
    INF,
    NOTHING,
    SEVERITY_INDEX,
    STEP,
    Entry,
    Judge,
    Track,
    event_order,
    judge_of,
)
from holdfast.explain.severity import is_healthy, level_name
from holdfast.model.base import Noun
from holdfast.model.faults import Assertion, FaultEvent, Remedy, Severity

FUTURE_S = 60.0
"""An event from further ahead than this is refused: its source's clock is wrong."""
LATENESS_S = 600.0
_SHORTEN_AT = 64
_DURATION_WINDOW = 3_600_000
"""A duration rule has no window of its own; the circuit breaker looks at one hour."""
_FUTURE = round(FUTURE_S * 1000)
_KINDS = {Assertion.OCCUR: 0, Assertion.ONCE: 1, Assertion.RECOVER: 2}
_OCCUR, _RECOVER = Assertion.OCCUR, Assertion.RECOVER
_MINOR, _MAJOR, _CRITICAL = Severity.MINOR, Severity.MAJOR, Severity.CRITICAL
_SPOKEN_MOST = 65_536


class ChangeKind(enum.StrEnum):
    LEVEL = "level"
    WOULD = "would"
    """A dry-run rule escalated: what it would have done."""
    BREAKER = "breaker"
    """A rule has taken its share of devices: it did not take this one, a person must look."""


class Change(Noun, frozen=True, kw_only=True):
    """A device's level is another. `before` and `after` are None where nothing is wrong."""

    device: str
    node: str
    before: Remedy | None
    after: Remedy | None
    at: float
    code: str = ""
    """The code whose event or deadline it was."""
    kind: ChangeKind = ChangeKind.LEVEL
    rule: str = ""

    @property
    def reason(self) -> str:
        """One sentence for a person."""
        was, now = level_name(self.before), level_name(self.after)
        match self.kind:
            case ChangeKind.LEVEL:
                return f"{self.device}: {was} → {now}" + (f" ({self.code})" if self.code else "")
            case ChangeKind.WOULD:
                return f"{self.device}: the dry-run rule {self.rule} would have made it {now} ({self.code})"
            case ChangeKind.BREAKER:
                return (
                    f"{self.device}: the rule {self.rule} asks for {now} ({self.code}), but has taken its share of the "
                    "devices already; nothing is done, look at the rule and at what the devices have in common"
                )


class Reason(Noun, frozen=True, kw_only=True):
    """Why a device stands higher than the base level of its codes."""

    kind: str
    """FaultFrequency, FaultDuration, FaultAutofill"""
    code: str
    remedy: Remedy
    at: float
    counts: bool = True
    """False: a dry run, or stopped by the circuit breaker."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}:{level_name(self.remedy)}"


class Device:
    """A device or node that had events. A healthy one has no tracks."""

    __slots__ = ("in_use", "level", "node", "tracks")

    def __init__(self, node: str = "") -> None:
        self.node = node
        self.tracks: dict[str, Track] = {}
        self.level = NOTHING
        """As last told; a momentary NONE is not worth telling."""
        self.in_use = False


class FaultEngine:
    """The standing of every device. One thread; every method is total, nothing raises on bad events.

    `handle`, `tick`, `reload` and `release` return the changes of level they caused. `next_wake` says when `tick` has
    something to do. `refused` counts events that were not taken, by reason.
    """

    AUTOFILL = "AUTOFILLFAULTCODE"
    """The code of a hold whose reason nobody kept."""

    def __init__(
        self,
        policy: Policy,
        *,
        tick_s: float = 1.0,
        lateness_s: float = LATENESS_S,
        breaker: Breaker | None = None,
    ) -> None:
        self.policy = policy
        self.breaker = breaker
        self.devices: dict[str, Device | None] = {}
        """None: known, and nothing was ever wrong, or all of it is forgotten."""
        self.refused: Counter[str] = Counter()
        self.taken = Taken()
        self.clock = 0
        """The latest `now`, in milliseconds."""
        self.ticked = 0
        """Up to here deadlines have been passed. Between ticks a deadline waits: its end may be about to arrive."""
        self._tick = round(tick_s * 1000)
        self._lateness = round(lateness_s * 1000)
        self._judges: dict[str, Judge] = {}
        self._spoken: dict[str, tuple[str, Judge]] = {}
        """A code as sources spell it → (canonical, its rules)."""
        self._heap: list[tuple[int, str, str]] = []
        self._heap_most = 1024
        self._reloads: list[tuple[int, Policy, Policy]] = []
        """(order, before, after) within the lateness: for codes first heard of by a late event."""
        self._releases: list[tuple[int, str]] = []

    # ---- what comes in

    def register(self, devices: Iterable[str]) -> None:
        """Devices that exist. The circuit breaker counts its share over what is known."""
        for name in devices:
            self.devices.setdefault(name, None)

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
        at = int(event.at * 1000 + 0.5)
        arrived = int(now * 1000 + 0.5)
        if arrived > self.clock:
            self.clock = arrived
        if at >= arrived + _FUTURE:
            self.refused["future"] += 1
            return []
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

    def set_in_use(self, name: str, in_use: bool) -> None:
        """Whether work runs on the device: it decides only whether AVOID counts as unhealthy."""
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device()
        device.in_use = in_use

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

    # ---- what can be asked

    def level(self, name: str) -> Remedy | None:
        """The device's level as of the latest `now`: the highest of both planes. None: no fault."""
        return _remedy(max(self._levels(name)))

    def plane_levels(self, name: str) -> tuple[Remedy | None, Remedy | None]:
        """(chip, network)."""
        chip, network = self._levels(name)
        return _remedy(chip), _remedy(network)

    def codes(self, name: str, *, network: bool | None = None) -> tuple[str, ...]:
        """Active codes of one plane, or of both."""
        return tuple(
            sorted(
                self.policy.spell(code)
                for code, track in self._tracks(name)
                if (track.active or track.seen_until > self.clock)
                and (network is None or network == (code in NETWORK_CODES))
            )
        )

    def active(self, name: str, remedy: Remedy) -> tuple[tuple[float, str], ...]:
        """(since, code) of every code whose own base level is this remedy now."""
        return tuple(
            (track.since / 1000, self.policy.spell(code))
            for code, track in self._tracks(name)
            if track.shown(self.clock, self._judge(code)) == remedy
        )

    def counts(self, name: str) -> dict[str, int]:
        """Occurrences in each code's window, where there are any."""
        found = {
            self.policy.spell(code): track.counted(self.clock, self._judge(code)) for code, track in self._tracks(name)
        }
        return {code: count for code, count in sorted(found.items()) if count}

    def reasons(self, name: str) -> tuple[Reason, ...]:
        """Escalations of the device, sorted as they print."""
        found = []
        for code, track in self._tracks(name):
            judge = self._judge(code)
            label = self.policy.spell(code)
            if track.escalated >= 0:
                kind = "FaultAutofill" if code == self.AUTOFILL else "FaultFrequency"
                found.append(
                    Reason(
                        kind=kind,
                        code=label,
                        remedy=Remedy(track.escalated),
                        at=track.escalated_at / 1000,
                        counts=not (judge.frequency_dry or track.suppressed & 1),
                    )
                )
            if track.timed_out:
                found.append(
                    Reason(
                        kind="FaultDuration",
                        code=label,
                        remedy=Remedy(judge.duration),
                        at=track.timed_at / 1000,
                        counts=not (judge.duration_dry or track.suppressed & 2),
                    )
                )
        return tuple(sorted(found, key=str))

    def held(self, name: str) -> bool:
        """Whether only a person (or a code's own release window) can give the device back."""
        return any(reason.remedy is Remedy.HOLD and reason.counts for reason in self.reasons(name))

    def healthy(self, name: str) -> tuple[bool, bool]:
        """The seed's health of both planes: (chip, network)."""
        device = self.devices.get(name)
        in_use = device is not None and device.in_use
        chip, network = self.plane_levels(name)
        return is_healthy(chip, in_use), is_healthy(network, in_use)

    # ---- what survives

    def dump(self) -> EngineState:
        """The whole state, for a later `load`. Tracks about which nothing is left to know are left out."""
        return EngineState(
            policy=self.policy,
            clock=self.clock,
            ticked=self.ticked,
            devices={
                name: DeviceState(
                    node=device.node,
                    in_use=device.in_use,
                    level=device.level,
                    tracks={code: save_track(track) for code, track in device.tracks.items()},
                )
                for name, device in self.devices.items()
                if device is not None
            },
            known=tuple(name for name, device in self.devices.items() if device is None),
            taken={rule: dict(devices) for rule, devices in self.taken.by_rule.items()},
            refused=dict(self.refused),
            reloads=list(self._reloads),
            releases=list(self._releases),
        )

    def load(self, state: EngineState) -> None:
        """Take over a state; what this engine knew before is gone."""
        self.policy = state.policy
        self._judges.clear()
        self._spoken.clear()
        self.clock, self.ticked = state.clock, state.ticked
        self.refused = Counter(state.refused)
        self.taken.by_rule = {rule: dict(devices) for rule, devices in state.taken.items()}
        self._reloads, self._releases = list(state.reloads), list(state.releases)
        self._heap.clear()
        self.devices = dict.fromkeys(state.known)
        for name, kept in state.devices.items():
            device = self.devices[name] = Device(kept.node)
            device.in_use, device.level = kept.in_use, kept.level
            for code, saved in kept.tracks.items():
                track = device.tracks[code] = load_track(saved)
                track.due = track.deadline(self._judge(code))
                due = track.due
                if track.seen_until > self.clock:
                    due = min(due, track.seen_until - 1)
                if due < INF:
                    track.wake = due
                    self._heap.append((due, name, code))
        heapify(self._heap)

    # ---- inside

    def _meet(self, spelled: str) -> tuple[str, Judge]:
        if len(self._spoken) >= _SPOKEN_MOST:
            self._spoken.clear()
        code = canonical(spelled)
        known = self._spoken[spelled] = code, self._judge(code)
        return known

    def _judge(self, code: str) -> Judge:
        judge = self._judges.get(code)
        if judge is None:
            judge = self._judges[code] = judge_of(code, self.policy)
        return judge

    def _track(self, name: str, code: str) -> Track | None:
        device = self.devices.get(name)
        return None if device is None else device.tracks.get(code)

    def _tracks(self, name: str) -> Sequence[tuple[str, Track]]:
        device = self.devices.get(name)
        return () if device is None else tuple(device.tracks.items())

    def _levels(self, name: str) -> tuple[int, int]:
        chip = network = NOTHING
        for code, track in self._tracks(name):
            asked = track.asked(self.clock, self._judge(code))
            if code in NETWORK_CODES:
                network = max(network, asked)
            else:
                chip = max(chip, asked)
        return chip, network

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
                        before=_remedy(told),
                        after=_remedy(asked),
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
                    before=_remedy(device.level),
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


def _remedy(level: int) -> Remedy | None:
    return None if level < 0 else Remedy(level)
