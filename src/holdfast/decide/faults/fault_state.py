"""What the engine knows, what can be asked of it, and how it survives a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.catalogue.fault_codes import NETWORK_CODES, canonical
from holdfast.decide.faults.circuit_breaker import Breaker, DevicesByRule
from holdfast.decide.faults.code_state import Code
from holdfast.decide.faults.compiled_rules import INF, NOTHING, STEP
from holdfast.decide.faults.engine_snapshot import DeviceState, EngineState, load_track, save_track
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.fault_remedies import is_healthy
from holdfast.decide.faults.fault_track import Track, TrackedDevice
from holdfast.decide.faults.level_changes import Reason
from holdfast.decide.faults.track_alarms import Alarm, Alarms
from holdfast.model.faults import Remedy

LATENESS_S = 600.0


MINUTE = 60_000
_SPOKEN_MOST = 65_536


class FaultState:
    """The standing of every device as of the latest `now`. `FaultEngine` adds what changes it."""

    #: The code of a hold whose reason was not kept.
    AUTOFILL = "AUTOFILLFAULTCODE"

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
        self.devices: dict[str, TrackedDevice | None] = {}
        """None: known, and nothing was ever wrong, or all of it is forgotten."""
        self.refused: Counter[str] = Counter()
        self.taken = DevicesByRule()
        self.clock = 0
        """The latest `now`, in milliseconds."""
        self.ticked = 0
        """Up to here deadlines have been passed. Between ticks a deadline waits: its end may be about to arrive."""
        self._tick = round(tick_s * 1000)
        self._lateness = round(lateness_s * 1000)
        self._codes: dict[str, Code] = {}
        self._spoken: dict[str, Code] = {}
        """By the code as sources spell it."""
        self._alarms = Alarms()
        """The tracks' deadlines, and the ends of what momentary events show."""
        self._alarms_most = 1024
        self._fading: dict[int, list[Track]] = {}
        """Tracks that can perhaps be forgotten, each once, by the minute of `fades`."""
        self._aged = 0
        """When the older sightings were forgotten."""
        self._last_deed = -INF
        """The order of the latest reload or release."""
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
        device = self._device(name)
        device.in_use = in_use
        self._forget_if_unused(device)

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
        found = [track.code.key for track in self._tracks(name) if track.active or track.seen_until > self.clock]
        found += [code.key for code, _ in self._passing(name)]
        return tuple(
            sorted(self.policy.spell(key) for key in found if network is None or network == (key in NETWORK_CODES))
        )

    def active(self, name: str, remedy: Remedy) -> tuple[tuple[float, str], ...]:
        """(since, code) of every code whose own base level is this remedy now."""
        found = [(track.since, track.code.key) for track in self._tracks(name) if track.shown(self.clock) == remedy]
        if remedy is Remedy.NONE:
            found += [(order // STEP, code.key) for code, order in self._passing(name)]
        return tuple((since / 1000, self.policy.spell(key)) for since, key in found)

    def counts(self, name: str) -> dict[str, int]:
        """Occurrences in each code's window, where there are any."""
        found = {track.code.spelled: track.counted(self.clock, track.code.judge) for track in self._tracks(name)}
        return {code: count for code, count in sorted(found.items()) if count}

    def reasons(self, name: str) -> tuple[Reason, ...]:
        """Escalations of the device, sorted as they print."""
        found = []
        for track in self._tracks(name):
            judge = track.code.judge
            label = track.code.spelled
            if track.escalated >= 0:
                kind = "FaultAutofill" if track.code.key == self.AUTOFILL else "FaultFrequency"
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

    def lasts(self, name: str) -> bool:
        """Whether anything but a moment keeps the device where it stands: an active fault, or one that escalated."""
        return any(track.active for track in self._tracks(name)) or any(each.counts for each in self.reasons(name))

    def given_back(self, name: str) -> bool:
        """Whether a person has released it after all that it shows, and nothing of that lasts."""
        released = max((order for order, device in self._releases if device == name), default=-INF)
        return not self.lasts(name) and released >= max((track.order for track in self._tracks(name)), default=INF)

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
        """The whole state, for a later `load`."""
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
            seen={key: {**code.earlier, **code.seen} for key, code in self._codes.items() if code.seen or code.earlier},
        )

    def load(self, state: EngineState) -> None:
        """Take over a state; what this engine knew before is gone."""
        self.policy = state.policy
        self._codes.clear()
        self._spoken.clear()
        self._alarms.clear()
        self._fading.clear()
        self.clock, self.ticked = state.clock, state.ticked
        self.refused = Counter(state.refused)
        self.taken.by_rule = {rule: dict(devices) for rule, devices in state.taken.items()}
        self._reloads, self._releases = list(state.reloads), list(state.releases)
        self._last_deed = max([-INF, *(order for order, *_ in self._reloads), *(order for order, _ in self._releases)])
        self.devices = dict.fromkeys(state.known)
        for name, kept in state.devices.items():
            device = self.devices[name] = TrackedDevice(name, kept.node)
            device.in_use, device.level = kept.in_use, kept.level
            for key, saved in kept.tracks.items():
                code = self._code(key)
                track = device.tracks[key] = load_track(saved, device, code)
                track.due = track.deadline(code.judge)
                self._set_alarms(track)
        for key, seen in state.seen.items():
            self._code(key).seen = seen

    # ---- inside

    def _code(self, key: str) -> Code:
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = Code(key, self.policy)
        return code

    def _meet(self, spelled: str) -> Code:
        """A code in a spelling that is new."""
        if len(self._spoken) >= _SPOKEN_MOST:
            self._spoken.clear()
            used = {track.code.key for device in self.devices.values() if device for track in device.tracks.values()}
            self._codes = {key: code for key, code in self._codes.items() if key in used or code.seen or code.earlier}
        code = self._spoken[spelled] = self._code(canonical(spelled))
        return code

    def _device(self, name: str, node: str = "") -> TrackedDevice:
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = TrackedDevice(name, node)
        return device

    def _forget_if_unused(self, device: TrackedDevice) -> None:
        """Keep no more than the name of a device of which nothing else is left to know."""
        if not device.tracks and not device.in_use and not device.node:
            self.devices[device.name] = None

    def _set_alarms(self, track: Track) -> None:
        """Have a track looked at when something ends by itself, and when it may be forgotten."""
        due = track.due
        shown = track.seen_until - 1
        if shown < due and shown >= self.clock and not track.active and track.code.bases[track.severity] > 0:
            # Who asks for nothing needs no one to notice its end.
            due = shown
        if due < track.wake:
            track.wake = due
            self._alarms.put(due, track)
            if self._alarms.size > self._alarms_most:
                self._alarms.keep(_wanted)
                self._alarms_most = 2 * self._alarms.size + 1024
        if track.fades == INF and not track.active:
            track.fades = track.forgettable(track.code.judge, self._lateness)
            if track.fades < INF:
                self._fade(track)

    def _fade(self, track: Track) -> None:
        minute = track.fades // MINUTE
        waiting = self._fading.get(minute)
        if waiting is None:
            self._fading[minute] = [track]
        else:
            waiting.append(track)

    def _tracks(self, name: str) -> Iterable[Track]:
        device = self.devices.get(name)
        return () if device is None else device.tracks.values()

    def _passing(self, name: str) -> Iterator[tuple[Code, int]]:
        """Codes that the device shows only in passing, each with the order of its event."""
        for code in self._codes.values():
            seen = code.sighting(name)
            if seen is not None and seen[1] > self.clock:
                yield code, seen[0]

    def _levels(self, name: str) -> tuple[int, int]:
        chip = network = NOTHING
        for track in self._tracks(name):
            asked = track.asked(self.clock)
            if track.code.key in NETWORK_CODES:
                network = max(network, asked)
            else:
                chip = max(chip, asked)
        if chip < 0 or network < 0:
            for code, _ in self._passing(name):
                if code.key in NETWORK_CODES:
                    network = max(network, Remedy.NONE)
                else:
                    chip = max(chip, Remedy.NONE)
        return chip, network


def _wanted(alarm: Alarm) -> bool:
    return alarm[-1].wake == alarm[0]


# The last one is that of `NOTHING`. An enum's call is made in Python, and this is asked twice a change.
_REMEDIES: tuple[Remedy | None, ...] = (*Remedy, None)


def remedy_or_none(level: int) -> Remedy | None:
    """A level as a remedy; below every remedy it is none."""
    return _REMEDIES[level]
