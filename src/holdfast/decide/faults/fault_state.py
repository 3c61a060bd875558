"""The state of the fault engine, with queries, and its dump and load for a restart."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.catalogue.fault_codes import NETWORK_CODES, canonical
from holdfast.decide.faults.code_alarms import Alarm, Alarms
from holdfast.decide.faults.code_state import CodeState, TrackedDevice
from holdfast.decide.faults.compiled_rules import INF, NOTHING, STEP, Code
from holdfast.decide.faults.engine_snapshot import DeviceState, EngineState, load_code_state, save_code_state
from holdfast.decide.faults.fault_policy import Policy
from holdfast.decide.faults.fault_remedies import is_healthy, level_name
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Noun

#: Default maximum share of all devices that one rule may exclude.
DEFAULT_SHARE = 0.25
#: With fewer devices than this the circuit breaker sets no limit, because a share of so few is meaningless.
FEWEST = 8


class Breaker(Noun, frozen=True, kw_only=True):
    """The circuit breaker's limit: within its window, one rule may exclude at most `share` of the known devices."""

    share: float = DEFAULT_SHARE
    fewest: int = FEWEST

    def allowed(self, population: int) -> int | None:
        """Return how many devices one rule may exclude if `population` devices are known; None: no limit."""
        return None if population < self.fewest else max(1, int(self.share * population))


class DevicesByRule:
    """The devices that each rule has excluded, with the time of each exclusion (milliseconds)."""

    __slots__ = ("by_rule",)

    def __init__(self) -> None:
        self.by_rule: dict[str, dict[str, int]] = {}

    def take(self, rule: str, device: str, at: int, window: int, allowed: int | None) -> bool:
        """Record that the rule excludes the device at the time `at`. Return False if the rule has already excluded
        `allowed` devices within `window`.
        """
        devices = self.by_rule.setdefault(rule, {})
        for name in [name for name, when in devices.items() if when < at - window]:
            del devices[name]
        if allowed is not None and device not in devices and len(devices) >= allowed:
            return False
        devices[device] = at
        return True

    def open(self, rule: str, allowed: int | None) -> bool:
        """Return whether the rule has excluded as many devices as it may."""
        return allowed is not None and len(self.by_rule.get(rule, ())) >= allowed


class ChangeKind(enum.StrEnum):
    LEVEL = "level"
    #: The escalation (rise of the remedy) came from a dry-run rule: the change only reports the rule's effect.
    WOULD = "would"
    #: The circuit breaker suppressed the escalation (rise of the remedy), because its rule has excluded its share of
    #: devices. A person must check the rule.
    BREAKER = "breaker"


class LevelChange(Noun, frozen=True, kw_only=True):
    """A change of a device's level (its most severe remedy).

    `before` and `after`: the levels; None: the device has no fault.
    """

    device: str
    node: str
    before: Remedy | None
    after: Remedy | None
    at: float
    #: The fault code whose event or deadline caused the change.
    code: str = ""
    kind: ChangeKind = ChangeKind.LEVEL
    rule: str = ""

    @property
    def reason(self) -> str:
        """The change of level in one sentence."""
        return self.told()

    def told(self, *, seed_names: bool = False) -> str:
        """Return `reason` as printed text. `seed_names`: use Ascend's names of levels, for users whose rules have these
        names.
        """
        was, now = ((level_name if seed_names else _word)(level) for level in (self.before, self.after))
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


def _word(level: Remedy | None) -> str:
    return "healthy" if level is None else level.name


class Reason(Noun, frozen=True, kw_only=True):
    """An escalation by a rule, or a hold (an exclusion that outlasts the fault).

    It raises a device's level above the base level of a fault code, unless `counts` is False.
    """

    #: The kind of escalation in Ascend's terms: FaultFrequency, FaultDuration, or FaultAutofill (a hold whose record
    #: has no code).
    kind: str
    code: str
    remedy: Remedy
    at: float
    #: Whether the escalation has an effect. False: its rule is a dry run, or the circuit breaker suppressed it.
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}:{level_name(self.remedy)}"


LATENESS_S = 600.0


MINUTE = 60_000
_SPOKEN_MOST = 65_536


class FaultState:
    """The level (most severe remedy) of every device as of the latest `now`.

    `FaultEngine` adds the methods that change it.

    `policy`: the rules. `tick_s`: seconds between ticks; a momentary event counts as active that long. `lateness_s`:
    seconds of history for late events. `breaker`: the circuit breaker; None: no limit.
    """

    #: The code of a hold (an exclusion that outlasts the fault) whose record has no code.
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
        #: Device name → its node, its use and the states of its fault codes; None: the engine keeps only the
        #: device's name.
        self.devices: dict[str, TrackedDevice | None] = {}
        self.refused: Counter[str] = Counter()
        self.taken = DevicesByRule()
        #: The latest `now` that a caller passed in, in milliseconds.
        self.clock = 0
        #: The time of the latest tick, in milliseconds. All deadlines before this time have been applied.
        self.ticked = 0
        self._tick = round(tick_s * 1000)
        self._lateness = round(lateness_s * 1000)
        self._codes: dict[str, Code] = {}
        #: Spelling of a code → the code, for every spelling that a source has used.
        self._spoken: dict[str, Code] = {}
        #: For each code state (one code on one device): the time of its next deadline, or of the end of its
        #: momentary event.
        self._alarms = Alarms()
        self._alarms_most = 1024
        #: Tracks (states of one code on one device) that may be deleted soon, in buckets by the minute of their
        #: `fades`. A code state is in at most one bucket.
        self._fading: dict[int, list[CodeState]] = {}
        #: When the engine last forgot old momentary events, in milliseconds (see `Code.age`).
        self._aged = 0
        #: The order (see `event_order`) of the latest reload or release.
        self._last_deed = -INF
        #: The recent reloads, as (order, policy before, policy after). A new code state (one code on one device)
        #: needs them to apply the rules of that time to late events.
        self._reloads: list[tuple[int, Policy, Policy]] = []
        self._releases: list[tuple[int, str]] = []

    # ---- registering devices, with or without a fault

    def register(self, devices: Iterable[str]) -> None:
        """Add devices that exist, even without a fault. The circuit breaker computes its share from the number of known
        devices.
        """
        for name in devices:
            self.devices.setdefault(name, None)

    def set_in_use(self, name: str, in_use: bool) -> None:
        """Set whether a job uses the device. This only decides whether AVOID counts as unhealthy."""
        device = self._device(name)
        device.in_use = in_use
        self._forget_if_unused(device)

    # ---- queries

    def level(self, name: str) -> Remedy | None:
        """Return the device's level (its most severe remedy) as of the latest `now`, of its chip plane and its
        network plane together. None: no fault.
        """
        return remedy_or_none(max(self._levels(name)))

    def plane_levels(self, name: str) -> tuple[Remedy | None, Remedy | None]:
        """Return the levels of the device's two planes: (chip, network)."""
        chip, network = self._levels(name)
        return remedy_or_none(chip), remedy_or_none(network)

    def codes(self, name: str, *, network: bool | None = None) -> tuple[str, ...]:
        """Return the active codes of one plane of the device, or of both planes if `network` is None."""
        found = [
            code_state.code.key
            for code_state in self._code_states(name)
            if code_state.active or code_state.seen_until > self.clock
        ]
        found += [code.key for code, _ in self._passing(name)]
        return tuple(
            sorted(self.policy.spell(key) for key in found if network is None or network == (key in NETWORK_CODES))
        )

    def active(self, name: str, remedy: Remedy) -> tuple[tuple[float, str], ...]:
        """Return (since when in seconds, code) for every active code of the device whose base level is `remedy`."""
        found = [
            (code_state.since, code_state.code.key)
            for code_state in self._code_states(name)
            if code_state.shown(self.clock) == remedy
        ]
        if remedy is Remedy.NONE:
            found += [(order // STEP, code.key) for code, order in self._passing(name)]
        return tuple((since / 1000, self.policy.spell(key)) for since, key in found)

    def counts(self, name: str) -> dict[str, int]:
        """Return code → how often it occurred within the window of its frequency rule. Codes without occurrences are
        left out.
        """
        found = {
            code_state.code.spelled: code_state.counted(self.clock, code_state.code.judge)
            for code_state in self._code_states(name)
        }
        return {code: count for code, count in sorted(found.items()) if count}

    def reasons(self, name: str) -> tuple[Reason, ...]:
        """Return the escalations (by rules) and holds (exclusions that outlast a fault) of the device, sorted by
        their text.
        """
        found = []
        for code_state in self._code_states(name):
            judge = code_state.code.judge
            label = code_state.code.spelled
            if code_state.escalated >= 0:
                kind = "FaultAutofill" if code_state.code.key == self.AUTOFILL else "FaultFrequency"
                found.append(
                    Reason(
                        kind=kind,
                        code=label,
                        remedy=Remedy(code_state.escalated),
                        at=code_state.escalated_at / 1000,
                        counts=not (judge.frequency_dry or code_state.suppressed & 1),
                    )
                )
            if code_state.timed_out:
                found.append(
                    Reason(
                        kind="FaultDuration",
                        code=label,
                        remedy=Remedy(judge.duration),
                        at=code_state.timed_at / 1000,
                        counts=not (judge.duration_dry or code_state.suppressed & 2),
                    )
                )
        return tuple(sorted(found, key=str))

    def lasts(self, name: str) -> bool:
        """Return whether the device has a fault that lasts: an active fault or an escalation, and not only a momentary
        event.
        """
        return any(code_state.active for code_state in self._code_states(name)) or any(
            each.counts for each in self.reasons(name)
        )

    def given_back(self, name: str) -> bool:
        """Return whether a person has released the device after its latest event, and it has no fault or escalation."""
        released = max((order for order, device in self._releases if device == name), default=-INF)
        return not self.lasts(name) and released >= max(
            (code_state.order for code_state in self._code_states(name)), default=INF
        )

    def held(self, name: str) -> bool:
        """Return whether the device is held.

        A hold lasts until a person releases the device, or the code's release window ends.
        """
        return any(reason.remedy is Remedy.HOLD and reason.counts for reason in self.reasons(name))

    def healthy(self, name: str) -> tuple[bool, bool]:
        """Return whether the device's planes are healthy by Ascend's rule: (chip, network)."""
        device = self.devices.get(name)
        in_use = device is not None and device.in_use
        chip, network = self.plane_levels(name)
        return is_healthy(chip, in_use), is_healthy(network, in_use)

    # ---- dump and load of the whole state

    def dump(self) -> EngineState:
        """Return the whole state of the engine, for a later `load`."""
        return EngineState(
            policy=self.policy,
            clock=self.clock,
            ticked=self.ticked,
            devices={
                name: DeviceState(
                    node=device.node,
                    in_use=device.in_use,
                    level=device.level,
                    tracks={code: save_code_state(code_state) for code, code_state in device.codes.items()},
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
        """Replace the engine's state by the result of an earlier `dump`."""
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
                code_state = device.codes[key] = load_code_state(saved, device, code)
                code_state.due = code_state.deadline(code.judge)
                self._set_alarms(code_state)
        for key, seen in state.seen.items():
            self._code(key).seen = seen

    # ---- internal methods

    def _code(self, key: str) -> Code:
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = Code(key, self.policy)
        return code

    def _meet(self, spelled: str) -> Code:
        """Add a spelling of a code. If there are too many spellings, first forget all of them and the unused codes."""
        if len(self._spoken) >= _SPOKEN_MOST:
            self._spoken.clear()
            used = {
                code_state.code.key
                for device in self.devices.values()
                if device
                for code_state in device.codes.values()
            }
            self._codes = {key: code for key, code in self._codes.items() if key in used or code.seen or code.earlier}
        code = self._spoken[spelled] = self._code(canonical(spelled))
        return code

    def _device(self, name: str, node: str = "") -> TrackedDevice:
        device = self.devices.get(name)
        if device is None:
            device = self.devices[name] = TrackedDevice(name, node)
        return device

    def _forget_if_unused(self, device: TrackedDevice) -> None:
        """Forget everything but the name of a device that has no fault code's state, is not in use and has no known
        node.
        """
        if not device.codes and not device.in_use and not device.node:
            self.devices[device.name] = None

    def _set_alarms(self, code_state: CodeState) -> None:
        """Set the alarm for the next time at which this fault may change its level, and schedule the deletion
        of its record.
        """
        due = code_state.due
        shown = code_state.seen_until - 1
        if (
            shown < due
            and shown >= self.clock
            and not code_state.active
            and code_state.code.bases[code_state.severity] > 0
        ):
            # The next deadline is the end of a momentary event. It only changes the level if the code has a remedy.
            due = shown
        if due < code_state.wake:
            code_state.wake = due
            self._alarms.put(due, code_state)
            if self._alarms.size > self._alarms_most:
                self._alarms.keep(_wanted)
                self._alarms_most = 2 * self._alarms.size + 1024
        if code_state.fades == INF and not code_state.active:
            code_state.fades = code_state.forgettable(code_state.code.judge, self._lateness)
            if code_state.fades < INF:
                self._fade(code_state)

    def _fade(self, code_state: CodeState) -> None:
        minute = code_state.fades // MINUTE
        waiting = self._fading.get(minute)
        if waiting is None:
            self._fading[minute] = [code_state]
        else:
            waiting.append(code_state)

    def _code_states(self, name: str) -> Iterable[CodeState]:
        device = self.devices.get(name)
        return () if device is None else device.codes.values()

    def _passing(self, name: str) -> Iterator[tuple[Code, int]]:
        """Yield the codes that have no state on this device, and of which a momentary event still counts as
        active, with the event's order.
        """
        for code in self._codes.values():
            seen = code.sighting(name)
            if seen is not None and seen[1] > self.clock:
                yield code, seen[0]

    def _levels(self, name: str) -> tuple[int, int]:
        chip = network = NOTHING
        for code_state in self._code_states(name):
            asked = code_state.asked(self.clock)
            if code_state.code.key in NETWORK_CODES:
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


# Level → remedy, as a tuple because that is faster than a call of the enum. Index -1 (`NOTHING`) is None.
_REMEDIES: tuple[Remedy | None, ...] = (*Remedy, None)


def remedy_or_none(level: int) -> Remedy | None:
    """Return the remedy of a level; None for `NOTHING`."""
    return _REMEDIES[level]
