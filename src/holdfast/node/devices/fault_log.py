"""The machine's fault log: the stored entries, and the fault engine with the state that follows from them.

An entry is first written and then fed to the engine. Entries of other processes are fed in the log's order too, so all
processes compute the same states of devices (standings).

A snapshot has the whole state, so older entries can be removed. But another version of holdfast may be unable to read
the snapshot. So the log alone must still contain every hold and every lasting fault: it gets a `PrunedRemainder`.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.decide.faults.compiled_rules import SEVERITIES
from holdfast.decide.faults.engine_snapshot import FORMAT, EngineState
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.isolation import Breaker, FaultEngine, LevelChange, standing, standings
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.codec import encode
from holdfast.model.faults import Assertion, DeviceStanding, FaultEvent, Remedy
from holdfast.model.noun_base import Noun
from holdfast.node.devices.fault_event_lines import event_refusal
from holdfast.node.devices.policy_files import load_policy
from holdfast.record.database import FILE_NAME
from holdfast.record.device_standings import BUSY_MS, RowKind, StandingRow, Standings, StandingsUnusable
from holdfast.record.local_time import local
from holdfast.untrusted import Malformed, json_as

SNAPSHOT_EVERY = 500
HEARD_MOST = 1000


class Release(Noun, frozen=True, kw_only=True):
    """A user's release of a device: the user, the reason, and why the device was held."""

    device: str
    who: str
    reason: str
    was: str = ""


class FaultLog:
    """The fault engine, and the stored entries from which its state follows. Use it from one thread, and `close()` it.

    Raises `StandingsUnusable` if the state directory cannot be used. A log that is opened for reading judges faults by
    `policy` and does not store it.

    `home`: the state directory. `writable`: open the log for writing. `keep`: keep the stored rules, and use `policy`
    only if there are none; a report of a fault then leaves the rules of a run unchanged. `since`: `missed` has the
    changes by entries from this time on. `busy_ms`: the longest wait for another writer, in milliseconds.

    `heard`: the latest events from the log, until the caller removes them. `missed`: the changes of devices' levels
    (required remedies) that the opening has found.
    """

    def __init__(
        self,
        home: Path,
        policy: Policy,
        now: float,
        *,
        writable: bool,
        since: float = math.inf,
        busy_ms: int = BUSY_MS,
        keep: bool = False,
    ) -> None:
        _own(home)
        self.engine = FaultEngine(Policy(), breaker=Breaker())
        self.policy = policy
        self.store = Standings.for_writing(home, busy_ms=busy_ms) if writable else Standings.for_reading(home)
        self.heard: deque[FaultEvent] = deque(maxlen=HEARD_MOST)
        self.missed: list[LevelChange] = []
        self._seq = 0
        self._snapshot_seq = 0
        try:
            self._start()
            for row in self.store.after(self._seq):
                if row.seq <= self._seq:
                    continue
                changes = self._fold(row)
                if row.now >= since:
                    self.missed += changes
                else:
                    self.heard.clear()
            self.missed += self.engine.tick(now)
            if keep and self.engine.policy != Policy():
                policy = self.policy = self.engine.policy
            if self.engine.policy != policy:
                if writable:
                    # `missed` must also have the changes by entries that other processes have written since the read
                    # above.
                    self.missed += self._write(now, RowKind.POLICY, [encode(policy)])
                else:
                    self.engine.reload(policy, now)
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> FaultLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self, now: float) -> list[LevelChange]:
        """Apply the entries that other processes wrote to the fault log, and the deadlines before `now`."""
        changes: list[LevelChange] = []
        for row in self.store.after(self._seq):
            if row.seq > self._seq:
                changes += self._fold(row)
        changes += self.engine.tick(now)
        return changes

    def report(self, event: FaultEvent, now: float) -> list[LevelChange]:
        """Write one fault event to the log, and apply the fault rules to it. Raises `BadUsage` if the event is refused,
        and then only counts the refusal.
        """
        return self.report_all([event], now)

    def report_all(self, events: Iterable[FaultEvent], now: float) -> list[LevelChange]:
        """Write all these fault events to the log, and apply the fault rules to them. If one is refused, write none and
        raise `BadUsage`.
        """
        changes = self.sync(now)
        batch = sorted(events, key=lambda event: event.at)
        for event in batch:
            why = event_refusal(event, now) or self.engine.check(event, now)
            if why:
                self.store.count_refused(_kind_of(why))
                raise BadUsage(f"the event is refused: {why}", hint="holdfast faults report --help")
        changes += self._write(now, RowKind.EVENT, [encode(event) for event in batch])
        return changes

    def take(self, events: Iterable[FaultEvent], now: float) -> tuple[list[LevelChange], list[FaultEvent], list[str]]:
        """Write the events of the fault sources to the log, and count the refused events. Return (changes of devices'
        levels, accepted events, reasons for refusals).

        If the write fails, `missed` has the changes by entries of other processes.
        """
        changes = self.sync(now)
        taken: list[FaultEvent] = []
        said: list[str] = []
        refused: Counter[str] = Counter()
        for event in sorted(events, key=lambda event: event.at):
            why = event_refusal(event, now) or self.engine.check(event, now)
            if why:
                refused[_kind_of(why)] += 1
                said.append(f"a fault of {event.device[:40]} ({event.source}) is refused: {why}")
            else:
                taken.append(event)
        for kind, count in refused.items():
            self.store.count_refused(kind, count)
        if taken:
            try:
                changes += self._write(now, RowKind.EVENT, [encode(event) for event in taken])
            except HoldfastError:
                self.missed += changes
                raise
        return changes, taken, said

    def reload(self, policy: Policy, now: float) -> list[LevelChange]:
        """Apply these fault rules from now on. Counts and timers continue. Raises `StandingsUnusable`."""
        changes = self.sync(now)
        self.policy = policy
        if self.engine.policy != policy:
            changes += self._write(now, RowKind.POLICY, [encode(policy)])
        return changes

    def release(self, device: str, who: str, reason: str, now: float) -> list[LevelChange]:
        """Release a device. `who`: the user who releases it. Raises `BadUsage` for an unknown device. `reason`: why, in
        the user's words.
        """
        changes = self.sync(now)
        if device not in self.engine.devices:
            raise BadUsage(f"no device `{device}` is known here", hint="holdfast devices")
        was = self.standing(device).reason
        note = Release(device=device, who=who, reason=reason, was=was)
        changes += self._write(now, RowKind.RELEASE, [encode(note)])
        return changes

    def releases(self) -> Iterator[tuple[float, Release]]:
        """Yield every stored release with its time."""
        for row in self.store.after(0):
            if row.kind is RowKind.RELEASE:
                yield row.now, json_as(row.body, Release)

    def standings(self) -> tuple[DeviceStanding, ...]:
        return standings(self.engine, local)

    def standing(self, device: str) -> DeviceStanding:
        """Return one device's state (its standing). The reason in it has times of this machine's zone."""
        return standing(self.engine, device, local)

    def close(self) -> None:
        """Close the log file. Save a snapshot first if many entries were written since the last one."""
        if self.store.writable and self._seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self._save_snapshot()
        self.store.close()

    def _start(self) -> bool:
        """Load the newest snapshot. Return False if no snapshot is usable."""
        found = self.store.snapshot()
        if found is None:
            return False
        seq, data = found
        try:
            state = json_as(data, EngineState)
        except Malformed:
            # Another version of holdfast wrote the snapshot. The log alone still has everything that must not be lost.
            return False
        if state.format != FORMAT or seq <= self._seq:
            return False
        known = tuple(self.engine.devices)
        self.engine.load(state)
        self.engine.register(known)
        self._seq = self._snapshot_seq = seq
        return True

    def _catch_up(self, row: StandingRow) -> list[LevelChange]:
        """Load the newest snapshot, or else the stored remainder (`row`), because another process has removed entries
        that this process had not read.
        """
        engine = self.engine
        before = {name: engine.level(name) for name in engine.devices}
        if not self._start():
            put_back(engine, json_as(row.body, PrunedRemainder), row.now)
        return [
            LevelChange(
                device=name, node=device.node if device else "", before=was, after=level, at=engine.clock / 1000
            )
            for name, device in engine.devices.items()
            if (level := engine.level(name)) is not (was := before.get(name))
        ]

    def _write(self, now: float, kind: RowKind, bodies: list[bytes]) -> list[LevelChange]:
        self.store.append(now, kind, bodies)
        changes = self.sync(now)
        if self._seq - self._snapshot_seq >= SNAPSHOT_EVERY * 4:
            self._save_snapshot()
        return changes

    def _save_snapshot(self) -> None:
        engine = self.engine
        engine.sweep()
        state = engine.dump()
        if self.store.save_snapshot(self._seq, encode(state)):
            self.store.prune(
                self._seq,
                before=engine.clock / 1000 - KEEP_S,
                most=KEEP_MOST,
                at_a_time=AT_A_TIME,
                left=encode(left_of(engine, state)),
            )
        self._snapshot_seq = self._seq

    def _fold(self, row: StandingRow) -> list[LevelChange]:
        engine = self.engine
        try:
            if row.kind is RowKind.LEFT:
                changes = self._catch_up(row)
                self._seq = max(self._seq, row.seq)
                return changes
            self._seq = row.seq
            match row.kind:
                case RowKind.EVENT:
                    changes = engine.tick(row.now)
                    event = json_as(row.body, FaultEvent)
                    self.heard.append(event)
                    return changes + engine.handle(event, row.now)
                case RowKind.RELEASE:
                    note = json_as(row.body, Release)
                    return engine.release(note.device, row.now)
                case RowKind.POLICY:
                    # The first stored rules apply from time 0, so that they also judge an event with the same
                    # timestamp.
                    since = row.now if engine.policy != Policy() else 0.0
                    return engine.reload(json_as(row.body, Policy), since)
        except Malformed as error:
            raise StandingsUnusable(
                f"entry {row.seq} of the fault log in {self.store.path} is damaged: {error}"
            ) from error


def judged_standings(home: Path, rules: bytes | None, now: float) -> list[DeviceStanding]:
    """Return the states of the devices with a lasting fault. `rules`: the encoded fault rules in force; None: the
    built-in rules.
    """
    try:
        policy = json_as(rules, Policy) if rules is not None else load_policy(None, None).policy
    except Malformed:
        # Use the built-in rules, because another version of holdfast wrote the stored ones.
        policy = load_policy(None, None).policy
    with FaultLog(home, policy, now, writable=False) as log:
        # Exclude a device only for a lasting fault, because a momentary one may come from the last job's crash.
        return [each for each in log.standings() if log.engine.lasts(each.device)]


def _kind_of(why: str) -> str:
    """Return the group of `why`, the reason for which this node refused a fault event. Refusals are counted by
    group.
    """
    return next((words for words in ("in the future", "days old", "already settled") if words in why), "malformed")


def _own(home: Path) -> None:
    """Raise BadUsage if the stored states of devices belong to another user, because only their owner may report or
    release.
    """
    file = home / FILE_NAME
    try:
        owner = file.stat().st_uid
    except OSError:
        return
    if owner != os.geteuid():
        raise BadUsage(
            f"the standings in {file} belong to another user (uid {owner}); only that user reads, reports or releases "
            "there",
            hint=f"sudo -u '#{owner}' env HOLDFAST_HOME={home} holdfast devices",
        )


#: Maximum age of kept log entries, in seconds: the widest window of any rule (10 days), plus an hour for late events.
KEEP_S = 864_000.0 + 3600.0
#: Beyond this many entries the oldest are removed, however young they are. Otherwise a day with many faults would keep
#: a huge file for ten days.
KEEP_MOST = 20_000
AT_A_TIME = 20_000


class Escalated(Noun, frozen=True, kw_only=True):
    """A fault of a device that now requires a more severe remedy, because of a frequency rule or a hold."""

    device: str
    code: str
    remedy: Remedy
    at: float


class PrunedRemainder(Noun, frozen=True, kw_only=True):
    """The facts in removed log entries that must not be lost: lasting faults, and escalations that are in effect.
    (Escalations by duration are left out.)
    """

    lasting: tuple[FaultEvent, ...] = ()
    escalated: tuple[Escalated, ...] = ()


def left_of(engine: FaultEngine, state: EngineState) -> PrunedRemainder:
    """Return the part of the fault engine's state that must not be lost: its lasting faults, and its escalations that
    are in effect.
    """
    lasting = [
        FaultEvent(
            device=name,
            code=engine.policy.spell(code),
            assertion=Assertion.OCCUR,
            at=code_state.since / 1000,
            node=device.node,
            severity=SEVERITIES[code_state.severity],
            source="fault log",
        )
        for name, device in engine.devices.items()
        if device is not None and name in state.devices
        for code, code_state in device.codes.items()
        if code_state.active
    ]
    escalated = [
        Escalated(device=name, code=reason.code, remedy=reason.remedy, at=reason.at)
        for name in state.devices
        for reason in engine.reasons(name)
        if reason.kind != "FaultDuration" and reason.counts
    ]
    return PrunedRemainder(lasting=tuple(lasting), escalated=tuple(escalated))


def put_back(engine: FaultEngine, left: PrunedRemainder, now: float) -> None:
    """Load the remainder of removed log entries (`left`) into the fault engine."""
    for event in left.lasting:
        engine.handle(event, max(now, event.at))
    for one in left.escalated:
        engine.hold(one.device, one.code, one.at, one.remedy)
