"""The rules for one code, compiled for the fold: plain numbers, milliseconds, remedies as integers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.catalogue.fault_codes import canonical
from holdfast.decide.faults.fault_policy import DurationRule, FrequencyRule, Policy
from holdfast.decide.faults.fault_remedies import by_severity, remedy_of
from holdfast.model.faults import FaultEvent, Remedy, Severity

INF = 1 << 62
#: Below every remedy: no fault at all.
NOTHING = -1

SEVERITIES = (Severity.INFO, Severity.MINOR, Severity.MAJOR, Severity.CRITICAL)
SEVERITY_INDEX = {severity: index for index, severity in enumerate(SEVERITIES)}
_BY_SEVERITY = tuple(int(by_severity(severity)) for severity in SEVERITIES)

# Order of what happens in one millisecond: occurrences, momentary ones, recoveries, then what people do. It makes the
# result independent of the order of arrival. Below that, the graver severity last.
OCCUR, ONCE, RECOVER, DEED = range(4)
STEP = 16


#: What people did: a reload (the rules before and after), or None for a release.
Deed = tuple["CompiledRules", "CompiledRules"] | None

#: The order of an event, which says it all (see `event_order`), or (order, deed) of what people did.
Entry = int | tuple[int, Deed]


def event_order(at: int, kind: int, severity: int) -> int:
    """The place in time of an event; its parts can be read back."""
    return at * STEP + kind * 4 + severity


def order_of(entry: Entry) -> int:
    return entry if isinstance(entry, int) else entry[0]


class CompiledRules(msgspec.Struct, frozen=True):
    """The rules for one code, ready for use. A struct: the fold reads its fields a dozen times an event."""

    #: The listed base level, or `NOTHING` where the severity decides.
    level: int
    window: int
    #: 0: no frequency rule.
    times: int
    frequency: int
    #: `INF`: only a person ends it.
    release: int
    frequency_dry: bool
    #: `NOTHING`: no duration rule.
    fault: int
    recover: int
    duration: int
    duration_dry: bool
    frequency_entry: str
    duration_entry: str

    def bases(self) -> tuple[int, ...]:
        """The base level by an event's severity: the listed one, or what the severity says."""
        return (self.level,) * len(_BY_SEVERITY) if self.level >= 0 else _BY_SEVERITY

    def only_counts_differ(self, other: CompiledRules) -> bool:
        """Whether the two differ in nothing but the frequency rule: who has counted nothing stands where it stood."""
        return self._rest() == other._rest()

    def _rest(self) -> tuple[object, ...]:
        return self.level, self.fault, self.recover, self.duration, self.duration_dry, self.duration_entry


def asked_for(event: FaultEvent, levels: Mapping[str, Remedy]) -> tuple[str, Remedy]:
    """The event's canonical code, and what it asks for by itself, whatever else counts its repetitions."""
    code = canonical(event.code)
    return code, remedy_of(code, event.severity, levels)


def judge_of(code: str, policy: Policy) -> CompiledRules:
    """A policy's rules for one canonical code."""
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
