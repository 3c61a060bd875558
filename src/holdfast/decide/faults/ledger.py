"""What the engine knows, what can be asked of it, and how it survives a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify

from holdfast.catalogue.faultcodes import NETWORK_CODES
from holdfast.decide.faults.breaker import Breaker, Taken
from holdfast.decide.faults.changes import Reason
from holdfast.decide.faults.judge import INF, NOTHING, Judge, judge_of
from holdfast.decide.faults.policy import Policy
from holdfast.decide.faults.state import DeviceState, EngineState, load_track, save_track
from holdfast.decide.faults.track import Track
from holdfast.explain.severity import is_healthy
from holdfast.model.faults import Remedy

LATENESS_S = 600.0


class Device:
    """A device or node that had events. A healthy one has no tracks."""

    __slots__ = ("in_use", "level", "node", "tracks")

    def __init__(self, node: str = "") -> None:
        self.node = node
        self.tracks: dict[str, Track] = {}
        self.level = NOTHING
        """As last told; a momentary NONE is not worth telling."""
        self.in_use = False


class Ledger:
    """The standing of every device as of the latest `now`. `FaultEngine` adds what changes it."""

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

    # ---- what is known without any fault

    def register(self, devices: Iterable[str]) -> None:
        """Devices that exist. The circuit breaker counts its share over what is known."""
        for name in devices:
            self.devices.setdefault(name, None)

    def set_in_use(self, name: str, in_use: bool) -> None:
        """Whether work runs on the device: it decides only whether AVOID counts as unhealthy."""
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = Device()
        device.in_use = in_use

    # ---- what can be asked

    def level(self, name: str) -> Remedy | None:
        """The device's level as of the latest `now`: the highest of both planes. None: no fault."""
        return remedy_or_none(max(self._levels(name)))

    def plane_levels(self, name: str) -> tuple[Remedy | None, Remedy | None]:
        """(chip, network)."""
        chip, network = self._levels(name)
        return remedy_or_none(chip), remedy_or_none(network)

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


def remedy_or_none(level: int) -> Remedy | None:
    """A level as a remedy; below every remedy it is none."""
    return None if level < 0 else Remedy(level)
