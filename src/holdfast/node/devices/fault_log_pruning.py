"""The remainder that is kept when old fault log entries are removed, so that no hold is lost.

A snapshot holds the whole state, so old entries are not needed. But a newer holdfast may keep another kind of
snapshot, which this one cannot read. Then the log alone must still have every hold and every lasting fault: a
`PrunedRemainder`.
"""

from __future__ import annotations

from holdfast.decide.faults.compiled_rules import SEVERITIES
from holdfast.decide.faults.engine_snapshot import EngineState
from holdfast.decide.isolation import FaultEngine
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.model.noun_base import Noun

#: Entries younger than this stay, in seconds: the widest window of any rule (10 days), plus an hour for late events.
KEEP_S = 864_000.0 + 3600.0
#: The most entries kept. Older ones go at any age, so that one bad day does not keep a huge file for ten days.
KEEP_MOST = 20_000
AT_A_TIME = 20_000


class Escalated(Noun, frozen=True, kw_only=True):
    """One escalation caused by a frequency rule."""

    device: str
    code: str
    remedy: Remedy
    at: float


class PrunedRemainder(Noun, frozen=True, kw_only=True):
    """The lasting faults and the escalations that removed entries had caused."""

    lasting: tuple[FaultEvent, ...] = ()
    escalated: tuple[Escalated, ...] = ()


def left_of(engine: FaultEngine, state: EngineState) -> PrunedRemainder:
    """Return the part of a state that must never be lost."""
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
    """Load into the engine the remainder of removed entries."""
    for event in left.lasting:
        engine.handle(event, max(now, event.at))
    for one in left.escalated:
        engine.hold(one.device, one.code, one.at, one.remedy)
