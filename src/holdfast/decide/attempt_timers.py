"""Timers that end with the attempt and phase they were set for.

Every timer carries the attempt and the phase in which it was armed, and is dropped silently once either has changed.
The loop asks `next_due` and sends a `Tick` at that moment: there is no other timer.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.decide.phases import Phase
from holdfast.model import job_spec as model
from holdfast.model.job_spec import JobSpec

MOST_BEAT_S = 5.0
#: A node is lost after so many missed beats.
BEATS = 6
#: The shortest lease where the owner has a machine of its own that its platform replaces: the workers outlive that.
LEASE_APART_S = 30.0


class TimerKind(enum.StrEnum):
    #: The phase has lasted as long as it may.
    DEADLINE = "deadline"
    #: Enough nodes have joined, and no more came for a while.
    LAST_CALL = "last call"
    #: Repeat the phase's command to each node that has not obeyed.
    RESEND = "resend"
    #: Workers that only blamed a peer have waited long enough for the peer's own report.
    PEER_WAIT = "peer wait"
    #: Late evidence of a drained attempt has had its time.
    SETTLE = "settle"
    #: The end is explained. The decision is a step of its own, whose moment is later by the time of explaining.
    DECIDE = "decide"
    #: Every agent should have reported since the owner came back.
    CONFIRM = "confirm"


def timers_for(spec: JobSpec) -> model.Timers:
    """How often the agents of a job speak, and after how much silence a node is lost; the rest comes from the job.

    With many nodes: a beat a second up to 1,000 nodes, then slower, so that one owner hears them all.
    """
    nodes = spec.nodes.most + spec.nodes.spares
    default = model.Timers()
    typed = (spec.timers.beat_s, spec.timers.lease_s) != (default.beat_s, default.lease_s)
    if typed or not spec.nodes.many:
        return spec.timers
    beat_s = min(max(1.0, nodes / 1000.0), MOST_BEAT_S)
    lease_s = max(BEATS * beat_s, LEASE_APART_S) if spec.nodes.apart else BEATS * beat_s
    return replace(spec.timers, beat_s=beat_s, lease_s=lease_s)


def fetch_limit_s(spec: JobSpec) -> float:
    """The time that a round of checks has for the job's prerequisites, on top of its own."""
    return spec.timers.fetch_s if spec.runtime.prerequisites else 0.0


def soonest(moments: Iterable[float | None]) -> float | None:
    """The earliest of these moments, in seconds; None where there is none. The core calls it most: a plain loop."""
    first = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first


class _Armed(msgspec.Struct, frozen=True):
    due: float
    attempt: int
    phase: Phase


class AttemptTimers:
    """At most one timer of each kind."""

    def __init__(self) -> None:
        self._armed: dict[TimerKind, _Armed] = {}

    def arm(self, timer: TimerKind, due: float, attempt: int, phase: Phase) -> None:
        self._armed[timer] = _Armed(due, attempt, phase)

    def disarm(self, timer: TimerKind) -> None:
        self._armed.pop(timer, None)

    def postpone(self, timer: TimerKind, until: float) -> None:
        """Move the timer to `until` or later, if it is armed at all."""
        entry = self._armed.get(timer)
        if entry is not None and entry.due < until:
            self._armed[timer] = _Armed(until, entry.attempt, entry.phase)

    def armed(self, timer: TimerKind, attempt: int, phase: Phase) -> bool:
        entry = self._armed.get(timer)
        return entry is not None and (entry.attempt, entry.phase) == (attempt, phase)

    def take_due(self, now: float, attempt: int, phase: Phase) -> TimerKind | None:
        """The earliest timer that is due and not stale; it is disarmed. Stale ones are dropped."""
        self._armed = {t: e for t, e in self._armed.items() if (e.attempt, e.phase) == (attempt, phase)}
        due = min(((e.due, t) for t, e in self._armed.items() if e.due <= now), default=None)
        if due is None:
            return None
        del self._armed[due[1]]
        return due[1]

    def next_due(self, attempt: int, phase: Phase) -> float | None:
        return soonest([e.due for e in self._armed.values() if e.attempt == attempt and e.phase is phase])
