"""What is kept of a fault log whose old entries go: enough that no hold is lost with them.

A snapshot holds the whole state, so old entries are no longer needed. Should the snapshot be unreadable one day (a
newer holdfast keeps another kind), the log alone must still know every hold and every fault that lasts: a
`PrunedRemainder`.
"""

from __future__ import annotations

from holdfast.decide.faults.compiled_rules import SEVERITIES
from holdfast.decide.faults.engine_snapshot import EngineState
from holdfast.decide.isolation import FaultEngine
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.model.noun_base import Noun

#: Entries younger than this stay: the widest window of any rule (10 days), and what may still come late.
KEEP_S = 864_000.0 + 3600.0
#: Entries beyond the newest so many go at any age; a bad day must not grow a file for ten.
KEEP_MOST = 20_000
AT_A_TIME = 20_000


class Escalated(Noun, frozen=True, kw_only=True):
    """One escalation by frequency."""

    device: str
    code: str
    remedy: Remedy
    at: float


class PrunedRemainder(Noun, frozen=True, kw_only=True):
    """What entries that are gone had led to: faults that last, and escalations."""

    lasting: tuple[FaultEvent, ...] = ()
    escalated: tuple[Escalated, ...] = ()


def left_of(engine: FaultEngine, state: EngineState) -> PrunedRemainder:
    """The part of a state that must never be lost."""
    lasting = [
        FaultEvent(
            device=name,
            code=engine.policy.spell(code),
            assertion=Assertion.OCCUR,
            at=track.since / 1000,
            node=device.node,
            severity=SEVERITIES[track.severity],
            source="fault log",
        )
        for name, device in engine.devices.items()
        if device is not None and name in state.devices
        for code, track in device.tracks.items()
        if track.active
    ]
    escalated = [
        Escalated(device=name, code=reason.code, remedy=reason.remedy, at=reason.at)
        for name in state.devices
        for reason in engine.reasons(name)
        if reason.kind != "FaultDuration" and reason.counts
    ]
    return PrunedRemainder(lasting=tuple(lasting), escalated=tuple(escalated))


def put_back(engine: FaultEngine, left: PrunedRemainder, now: float) -> None:
    """Begin with what is left of entries that are gone."""
    for event in left.lasting:
        engine.handle(event, max(now, event.at))
    for one in left.escalated:
        engine.hold(one.device, one.code, one.at, one.remedy)
