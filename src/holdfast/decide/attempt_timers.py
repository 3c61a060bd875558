"""The timers of an attempt.

Each timer belongs to one attempt and one phase, and is dropped when either changes. The owner's main loop reads
`next_due` and sends a `Tick` event at that time. The gang has no other timers.
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
#: A node counts as lost after this many missed heartbeats.
BEATS = 6
#: The shortest lease in seconds, if the owner runs on a machine without workers and the platform replaces a failed
#: owner. The workers then survive the replacement.
LEASE_APART_S = 30.0


class TimerKind(enum.StrEnum):
    #: The time limit of the phase has passed.
    DEADLINE = "deadline"
    #: Enough nodes have joined, and no other node has joined for `last_call_s`.
    LAST_CALL = "last call"
    #: A node has not obeyed the phase's command, so the owner must repeat it.
    RESEND = "resend"
    #: The owner has waited long enough for the report of a peer that a failed worker blames.
    PEER_WAIT = "peer wait"
    #: The owner has waited long enough for late evidence about a drained attempt.
    SETTLE = "settle"
    #: The end of the attempt is explained, and the decision is due. It is a separate step, so that its recorded time
    #: includes the explaining.
    DECIDE = "decide"
    #: The time limit for the first report of every agent after a restart of the owner is over.
    CONFIRM = "confirm"


def timers_for(spec: JobSpec) -> model.Timers:
    """Return the job's timers. Heartbeat and lease depend on the number of nodes, unless the user set them.

    The heartbeat is one second up to 1,000 nodes, and longer for more nodes, so that one owner can handle all reports.
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
    """Return how many more seconds a round of checks may take, because it fetches the job's prerequisites."""
    return spec.timers.fetch_s if spec.runtime.prerequisites else 0.0


def soonest(moments: Iterable[float | None]) -> float | None:
    """Return the earliest of these times; None if all are None.

    The function uses a plain loop, because it is called very often.
    """
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
    """The armed timers of an attempt, at most one of each kind. Times are seconds on the clock of `now`."""

    def __init__(self) -> None:
        self._armed: dict[TimerKind, _Armed] = {}

    def arm(self, timer: TimerKind, due: float, attempt: int, phase: Phase) -> None:
        self._armed[timer] = _Armed(due, attempt, phase)

    def disarm(self, timer: TimerKind) -> None:
        self._armed.pop(timer, None)

    def postpone(self, timer: TimerKind, until: float) -> None:
        """Move the timer to `until`, if it is armed for an earlier time."""
        entry = self._armed.get(timer)
        if entry is not None and entry.due < until:
            self._armed[timer] = _Armed(until, entry.attempt, entry.phase)

    def armed(self, timer: TimerKind, attempt: int, phase: Phase) -> bool:
        entry = self._armed.get(timer)
        return entry is not None and (entry.attempt, entry.phase) == (attempt, phase)

    def take_due(self, now: float, attempt: int, phase: Phase) -> TimerKind | None:
        """Disarm and return the earliest timer that is due. Drop the timers of another attempt or phase."""
        self._armed = {t: e for t, e in self._armed.items() if (e.attempt, e.phase) == (attempt, phase)}
        due = min(((e.due, t) for t, e in self._armed.items() if e.due <= now), default=None)
        if due is None:
            return None
        del self._armed[due[1]]
        return due[1]

    def next_due(self, attempt: int, phase: Phase) -> float | None:
        return soonest([e.due for e in self._armed.values() if e.attempt == attempt and e.phase is phase])
