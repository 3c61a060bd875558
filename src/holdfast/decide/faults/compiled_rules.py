"""The rules for one fault code, compiled for the fault engine: times are whole milliseconds, and remedies are integers.

The module also keeps the latest momentary events of codes that no rule counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from holdfast.catalogue.fault_codes import canonical
from holdfast.decide.faults.fault_policy import DurationRule, FrequencyRule, Policy
from holdfast.decide.faults.fault_remedies import by_severity, remedy_of
from holdfast.model.faults import FaultEvent, Remedy, Severity

INF = 1 << 62
#: The level of a device without any fault. It is below every remedy (action against a fault).
NOTHING = -1

SEVERITIES = (Severity.INFO, Severity.MINOR, Severity.MAJOR, Severity.CRITICAL)
SEVERITY_INDEX = {severity: index for index, severity in enumerate(SEVERITIES)}
_BY_SEVERITY = tuple(int(by_severity(severity)) for severity in SEVERITIES)

# The kinds of events, in the order in which events of the same millisecond are applied: occurrences, momentary events,
# ends of faults, then actions of a user (rule reloads and releases of devices). With this fixed order the result does
# not depend on the order of arrival. Among events of one kind the most severe comes last.
OCCUR, ONCE, RECOVER, USER_ACTION = range(4)
STEP = 16


#: An action of a user: a reload as (rules before, rules after), or a release as None.
UserAction = tuple["CompiledRules", "CompiledRules"] | None

#: An entry in the log of a code state: an event as its order (see `event_order`), or a user's action as (order,
#: user_action).
Entry = int | tuple[int, UserAction]


def event_order(at: int, kind: int, severity: int) -> int:
    """Return one number that sorts events by time (milliseconds), then kind, then severity. `CodeState` splits it
    again.
    """
    return at * STEP + kind * 4 + severity


def order_of(entry: Entry) -> int:
    return entry if isinstance(entry, int) else entry[0]


class CompiledRules(msgspec.Struct, frozen=True):
    """The rules for one code. It is a struct, because the engine reads its fields a dozen times for each event."""

    #: The code's base level: its remedy in the code lists. `NOTHING`: no list has the code, so the severity of each
    #: event decides.
    level: int
    window: int
    #: The frequency rule's number: so many occurrences within `window` (milliseconds) raise the remedy; 0: no frequency
    #: rule.
    times: int
    frequency: int
    #: The escalation ends after this many milliseconds without an event of this code; `INF`: only a user ends it.
    release: int
    frequency_dry: bool
    #: The duration rule's limit in milliseconds: a fault that lasts longer gets a higher remedy; `NOTHING`: no duration
    #: rule.
    fault: int
    recover: int
    duration: int
    duration_dry: bool
    frequency_entry: str
    duration_entry: str

    def bases(self) -> tuple[int, ...]:
        """Return the base level (remedy) for each severity: the code's level, or the severity's level if no list has
        the code.
        """
        return (self.level,) * len(_BY_SEVERITY) if self.level >= 0 else _BY_SEVERITY

    def only_counts_differ(self, other: CompiledRules) -> bool:
        """Return whether these rules and `other` differ only in their frequency rules.

        A reload of such rules changes nothing on a device without a counted occurrence of the code.
        """
        return self._rest() == other._rest()

    def _rest(self) -> tuple[object, ...]:
        return self.level, self.fault, self.recover, self.duration, self.duration_dry, self.duration_entry


def asked_for(event: FaultEvent, levels: Mapping[str, Remedy]) -> tuple[str, Remedy]:
    """Return the event's canonical code, and the code's remedy in the code list. The rules for frequency and duration
    are left out. `levels`: code → its level in the code list.
    """
    code = canonical(event.code)
    return code, remedy_of(code, event.severity, levels)


def compiled_rules_of(code: str, policy: Policy) -> CompiledRules:
    """Return the rules of `policy` for one canonical code, in the engine's form."""
    counted: FrequencyRule | None = policy.frequency.get(code)
    lasting: DurationRule | None = policy.duration.get(code)
    level = policy.levels.get(code)
    release = counted.release_ms if counted is not None else None
    return CompiledRules(
        level=NOTHING if level is None else int(level),
        window=counted.window_ms if counted else 0,
        times=counted.times if counted else 0,
        frequency=int(counted.remedy) if counted else NOTHING,
        release=INF if release is None else release,
        frequency_dry=counted.dry_run if counted else False,
        fault=lasting.fault_ms if lasting else NOTHING,
        recover=lasting.recover_ms if lasting else 0,
        duration=int(lasting.remedy) if lasting else NOTHING,
        duration_dry=lasting.dry_run if lasting else False,
        frequency_entry=(counted.entry or code) if counted else "",
        duration_entry=(lasting.entry or code) if lasting else "",
    )


#: A momentary event on a device: its order (see `event_order`), and the time in milliseconds until which it counts as
#: active.
Sighting = tuple[int, int]


class Code:
    """The rules of one fault code (`rules`), and its latest momentary event on each device (its sightings).

    If a code has no remedy and no rule counts it, only its latest momentary event matters. So the engine keeps that
    event and no code state, because a bad day has very many of these events. Sightings are in two generations, and
    `age` drops the older one.
    """

    __slots__ = ("bases", "earlier", "key", "passing", "rules", "seen", "spelled")

    def __init__(self, key: str, policy: Policy) -> None:
        self.key = key
        self.seen: dict[str, Sighting] = {}
        self.earlier: dict[str, Sighting] = {}
        self.rule(compiled_rules_of(key, policy), policy)

    def rule(self, rules: CompiledRules, policy: Policy) -> None:
        """Use these rules for the code from now on.

        `rules`: the rules for the code, computed from `policy`.
        """
        self.rules = rules
        #: Severity of an event (its index in `SEVERITIES`) → the base level (remedy) of this code.
        self.bases = rules.bases()
        #: The code in the spelling of the user's file.
        self.spelled = policy.spell(self.key)
        #: Whether momentary events of this code have no effect: the code has no remedy, and no rule counts it.
        self.passing = rules.level == Remedy.NONE and not rules.times and rules.fault < 0

    def see(self, device: str, order: int, until: int) -> None:
        known = self.seen.get(device)
        if known is not None and (known[0] > order or known[1] > until):
            order, until = max(known[0], order), max(known[1], until)
        self.seen[device] = order, until

    def sighting(self, device: str) -> Sighting | None:
        """Return this code's latest momentary event on the device; None if there is none."""
        new, old = self.seen.get(device), self.earlier.get(device)
        if new is None or old is None:
            return new or old
        return max(new[0], old[0]), max(new[1], old[1])

    def forget(self, device: str) -> None:
        self.seen.pop(device, None)
        self.earlier.pop(device, None)

    def age(self) -> None:
        """Drop the older generation of momentary events. The present generation becomes the older one."""
        self.seen, self.earlier = {}, self.seen

    def shown_after(self, moment: int) -> Iterator[str]:
        """Yield the devices on which a momentary event of this code counts as active after `moment`."""
        for generation in (self.earlier, self.seen):
            for device, (_, until) in generation.items():
                if until > moment:
                    yield device
