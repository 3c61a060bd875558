"""The rules for one code, compiled for the fold: plain numbers, times in milliseconds, remedies as integers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.catalogue.fault_codes import canonical
from holdfast.decide.faults.fault_policy import DurationRule, FrequencyRule, Policy
from holdfast.decide.faults.fault_remedies import by_severity, remedy_of
from holdfast.model.faults import FaultEvent, Remedy, Severity

INF = 1 << 62
#: The level of a device without any fault; it is below every remedy.
NOTHING = -1

SEVERITIES = (Severity.INFO, Severity.MINOR, Severity.MAJOR, Severity.CRITICAL)
SEVERITY_INDEX = {severity: index for index, severity in enumerate(SEVERITIES)}
_BY_SEVERITY = tuple(int(by_severity(severity)) for severity in SEVERITIES)

# The order of events within one millisecond: occurrences, momentary events, recoveries, then reloads and releases.
# It makes the result independent of the order of arrival. Among events of one kind the graver severity comes last.
OCCUR, ONCE, RECOVER, DEED = range(4)
STEP = 16


#: An action of a person: a reload (the rules before and after it), or None for a release.
Deed = tuple["CompiledRules", "CompiledRules"] | None

#: The order of an event, which has its time, kind and severity (`event_order`), or (order, deed).
Entry = int | tuple[int, Deed]


def event_order(at: int, kind: int, severity: int) -> int:
    """Return the order of an event: one number from its time (milliseconds), kind and severity. Track splits it."""
    return at * STEP + kind * 4 + severity


def order_of(entry: Entry) -> int:
    return entry if isinstance(entry, int) else entry[0]


class CompiledRules(msgspec.Struct, frozen=True):
    """The rules for one code. It is a struct because the fold reads its fields a dozen times an event."""

    #: The code's base level, or `NOTHING` if no list has the code: then the event's severity decides.
    level: int
    window: int
    #: The number of occurrences within `window` that escalates; 0: no frequency rule.
    times: int
    frequency: int
    #: Milliseconds without the code after which the escalation ends; `INF`: only a person ends it.
    release: int
    frequency_dry: bool
    #: Milliseconds after which a lasting fault times out; `NOTHING`: no duration rule.
    fault: int
    recover: int
    duration: int
    duration_dry: bool
    frequency_entry: str
    duration_entry: str

    def bases(self) -> tuple[int, ...]:
        """Return the base level for each severity: the code's own level, else the level of the severity."""
        return (self.level,) * len(_BY_SEVERITY) if self.level >= 0 else _BY_SEVERITY

    def only_counts_differ(self, other: CompiledRules) -> bool:
        """Return whether only the frequency rules differ. Such a reload changes nothing for a track without counts."""
        return self._rest() == other._rest()

    def _rest(self) -> tuple[object, ...]:
        return self.level, self.fault, self.recover, self.duration, self.duration_dry, self.duration_entry


def asked_for(event: FaultEvent, levels: Mapping[str, Remedy]) -> tuple[str, Remedy]:
    """Return the event's canonical code and its base remedy, without the rules that count repetitions."""
    code = canonical(event.code)
    return code, remedy_of(code, event.severity, levels)


def judge_of(code: str, policy: Policy) -> CompiledRules:
    """Return a policy's rules for one canonical code."""
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
