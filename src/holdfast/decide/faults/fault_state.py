"""The state of the fault engine, with queries, and with a dump and a load for a restart."""

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

#: The default limit of the circuit breaker: the share of all devices that one rule may exclude.
DEFAULT_SHARE = 0.25
#: With fewer devices than this the circuit breaker has no limit, because a share of so few means little.
FEWEST = 8


class Breaker(Noun, frozen=True, kw_only=True):
    """The circuit breaker's limit: within its window, one rule may exclude at most `share` of the known devices."""

    share: float = DEFAULT_SHARE
    fewest: int = FEWEST

    def allowed(self, population: int) -> int | None:
        """Return how many devices one rule may exclude if `population` devices are known; None: no limit."""
        return None if population < self.fewest else max(1, int(self.share * population))


class DevicesByRule:
    """The devices that each rule has excluded, and the times of the exclusions (milliseconds)."""

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
        """Return whether the rule has excluded as many devices as it may. `allowed`: how many it may exclude; None: no
        limit.
        """
        return allowed is not None and len(self.by_rule.get(rule, ())) >= allowed


class ChangeKind(enum.StrEnum):
    LEVEL = "level"
    #: A dry-run rule caused the escalation (a higher remedy), so the change only shows what the rule would do.
    WOULD = "would"
    #: The circuit breaker suppressed the escalation (a higher remedy): the rule has excluded its share of devices, and
    #: a user must check it.
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
        """The reason for the change of level, as one sentence."""
        return self.told()

    def told(self, *, seed_names: bool = False) -> str:
        """Return the sentence for printing. `seed_names`: use Ascend's names of levels, for users whose rules use
        them.
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
    """The reason why a device is treated worse than its fault code alone demands.

    It is an escalation by a rule, or a hold (an exclusion that outlasts the fault). Without `counts` it has no effect.
    """

    #: The kind of escalation in Ascend's terms: FaultFrequency, FaultDuration, or FaultAutofill (a hold whose record
    #: has no code).
    kind: str
    code: str
    remedy: Remedy
    at: float
    #: Whether the escalation has an effect; False: its rule is a dry run, or the circuit breaker suppressed it.
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}:{level_name(self.remedy)}"


LATENESS_S = 600.0


MINUTE = 60_000
_SPOKEN_MOST = 65_536


class FaultState:
    """The present level (most severe remedy) of every device.

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
        #: Device → its node, its use and the states of its fault codes; None: the engine keeps only the name of the
        #: device.
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
        #: A spelling of a code, as some source uses it → the code.
        self._spoken: dict[str, Code] = {}
        #: The time of each code state's next deadline, or of the end of its momentary event.
        self._alarms = Alarms()
        self._alarms_most = 1024
        #: The code states that may be deleted soon, in buckets by the minute of their `fades`. Each is in at most one
        #: bucket.
        self._fading: dict[int, list[CodeState]] = {}
        #: When the engine last forgot old momentary events, in milliseconds (see `Code.age`).
        self._aged = 0
        #: The order (see `event_order`) of the latest reload or release.
        self._last_user_action = -INF
        #: The recent reloads, as (order, policy before, policy after). With them a new code state judges late events by
        #: the rules of their time.
        self._reloads: list[tuple[int, Policy, Policy]] = []
        self._releases: list[tuple[int, str]] = []

    # ---- registering devices, with or without a fault

    def register(self, devices: Iterable[str]) -> None:
        """Add existing devices, with or without a fault. The circuit breaker's limit depends on the number of known
        devices.
        """
        for name in devices:
            self.devices.setdefault(name, None)

    def set_in_use(self, name: str, in_use: bool) -> None:
        """Set whether a job uses the device, because AVOID only counts as unhealthy on an unused device."""
        device = self._device(name)
        device.in_use = in_use
        self._forget_if_unused(device)

    # ---- queries

    def level(self, name: str) -> Remedy | None:
        """Return the device's present level (its most severe remedy) over both planes, chip and network; None: no
        fault.
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
        """Return (start in seconds, code) for every active code of the device with the base level `remedy`."""
        found = [
            (code_state.since, code_state.code.key)
            for code_state in self._code_states(name)
            if code_state.shown(self.clock) == remedy
        ]
        if remedy is Remedy.NONE:
            found += [(order // STEP, code.key) for code, order in self._passing(name)]
        return tuple((since / 1000, self.policy.spell(key)) for since, key in found)

    def counts(self, name: str) -> dict[str, int]:
        """Return code → the number of its occurrences within its frequency rule's window. Codes without any are left
        out.
        """
        found = {
            code_state.code.spelled: code_state.counted(self.clock, code_state.code.rules)
            for code_state in self._code_states(name)
        }
        return {code: count for code, count in sorted(found.items()) if count}

    def reasons(self, name: str) -> tuple[Reason, ...]:
        """Return the device's escalations (by rules) and holds (exclusions that outlast a fault), sorted by text."""
        found = []
        for code_state in self._code_states(name):
            rules = code_state.code.rules
            label = code_state.code.spelled
            if code_state.escalated >= 0:
                kind = "FaultAutofill" if code_state.code.key == self.AUTOFILL else "FaultFrequency"
                found.append(
                    Reason(
                        kind=kind,
                        code=label,
                        remedy=Remedy(code_state.escalated),
                        at=code_state.escalated_at / 1000,
                        counts=not (rules.frequency_dry or code_state.suppressed & 1),
                    )
                )
            if code_state.timed_out:
                found.append(
                    Reason(
                        kind="FaultDuration",
                        code=label,
                        remedy=Remedy(rules.duration),
                        at=code_state.timed_at / 1000,
                        counts=not (rules.duration_dry or code_state.suppressed & 2),
                    )
                )
        return tuple(sorted(found, key=str))

    def lasts(self, name: str) -> bool:
        """Return whether the device has a lasting fault: an active fault or an escalation. A momentary event alone does
        not count.
        """
        return any(code_state.active for code_state in self._code_states(name)) or any(
            each.counts for each in self.reasons(name)
        )

    def given_back(self, name: str) -> bool:
        """Return whether a user has released the device since its latest event, and no fault or escalation is left."""
        released = max((order for order, device in self._releases if device == name), default=-INF)
        return not self.lasts(name) and released >= max(
            (code_state.order for code_state in self._code_states(name)), default=INF
        )

    def held(self, name: str) -> bool:
        """Return whether the device is held.

        A hold lasts until a user releases the device, or until the code's release window ends.
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
        self._last_user_action = max(
            [-INF, *(order for order, *_ in self._reloads), *(order for order, _ in self._releases)]
        )
        self.devices = dict.fromkeys(state.known)
        for name, kept in state.devices.items():
            device = self.devices[name] = TrackedDevice(name, kept.node)
            device.in_use, device.level = kept.in_use, kept.level
            for key, saved in kept.tracks.items():
                code = self._code(key)
                code_state = device.codes[key] = load_code_state(saved, device, code)
                code_state.due = code_state.deadline(code.rules)
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
        """Add a spelling of a code. If there are too many, first forget all spellings and all unused codes."""
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
        """Keep only the name of a device that has no code state, no job and no known node."""
        if not device.codes and not device.in_use and not device.node:
            self.devices[device.name] = None

    def _set_alarms(self, code_state: CodeState) -> None:
        """Set the alarm for the next possible change of this code state, and schedule its deletion."""
        due = code_state.due
        shown = code_state.seen_until - 1
        if (
            shown < due
            and shown >= self.clock
            and not code_state.active
            and code_state.code.bases[code_state.severity] > 0
        ):
            # The next deadline is the end of a momentary event. It changes the level only if the code has a remedy.
            due = shown
        if due < code_state.wake:
            code_state.wake = due
            self._alarms.put(due, code_state)
            if self._alarms.size > self._alarms_most:
                self._alarms.keep(_wanted)
                self._alarms_most = 2 * self._alarms.size + 1024
        if code_state.fades == INF and not code_state.active:
            code_state.fades = code_state.forgettable(code_state.code.rules, self._lateness)
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
        """Yield each code whose momentary event still counts as active on this device, with the event's order. Codes
        with a code state are left out.
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


# Level → remedy. A tuple is faster than a call of the enum. Index -1 (`NOTHING`) gives None.
_REMEDIES: tuple[Remedy | None, ...] = (*Remedy, None)


def remedy_or_none(level: int) -> Remedy | None:
    """Return the remedy of a level; None for `NOTHING`."""
    return _REMEDIES[level]
