"""Finds the faults that overlapped an attempt in time, because they may explain an exit. Also finds the faults that a
device reset ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.catalogue.fault_codes import canonical
from holdfast.decide.faults.fault_remedies import remedy_of
from holdfast.decide.faults.fault_state import FaultState
from holdfast.model.faults import ActiveFault, Assertion, FaultEvent, Remedy

#: The number of ended faults to keep. Beyond it the mildest are dropped first, then the oldest.
MOST = 1000


class Overlaps:
    """The faults during a run of the job, with their ends. Call `note` for every event; `within` returns the faults
    that overlapped a time span.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], ActiveFault] = {}
        self._over: list[ActiveFault] = []

    def note(self, event: FaultEvent, engine: FaultState) -> None:
        """Record an event that the engine has handled.

        The recorded remedy is the code's, or the escalation's if that is more severe.
        """
        code = canonical(event.code)
        key = event.device, code
        if event.assertion is Assertion.RECOVER:
            fault = self._open.pop(key, None)
            if fault is not None:
                self._over.append(msgspec.structs.replace(fault, ended_at=event.at))
            return
        remedy = max(remedy_of(code, event.severity, engine.policy.levels), _escalated(engine, event.device, code))
        fault = ActiveFault(event=event, remedy=remedy)
        if event.assertion is Assertion.ONCE:
            self._over.append(msgspec.structs.replace(fault, ended_at=event.at))
        else:
            self._open.setdefault(key, fault)
        if len(self._over) > MOST:
            self._over.sort(key=lambda each: (each.remedy, each.event.at))
            del self._over[: len(self._over) - MOST // 2]

    def within(
        self, start: float, end: float, ranks: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[ActiveFault, ...]:
        """Return the faults that overlapped the time from `start` to `end` (seconds), most severe first. `ranks`:
        device → its ranks.
        """
        found = [
            msgspec.structs.replace(fault, ranks=(ranks or {}).get(fault.event.device, ()))
            for fault in (*self._open.values(), *self._over)
            if fault.event.at <= end and (fault.ended_at is None or fault.ended_at >= start)
        ]
        return tuple(sorted(found, key=lambda fault: (-fault.remedy, fault.event.at)))


def cleared_by_reset(engine: FaultState, devices: Iterable[str], at: float) -> list[FaultEvent]:
    """Return an end event for every active fault code of these devices, because a reset has ended the faults.

    A hold (an exclusion that outlasts the fault) stays.
    """
    return [
        FaultEvent(device=device, code=code, assertion=Assertion.RECOVER, at=at, source="reset")
        for device in devices
        for code in engine.codes(device)
    ]


def _escalated(engine: FaultState, device: str, code: str) -> Remedy:
    return max(
        (reason.remedy for reason in engine.reasons(device) if reason.counts and canonical(reason.code) == code),
        default=Remedy.NONE,
    )
