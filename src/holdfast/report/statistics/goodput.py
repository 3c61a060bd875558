"""Sums up how jobs spent their time: productive, or lost and why.

Attempts record how long each of their parts took. A part is productive only if the program ran and its work was kept.
An attempt that failed without any sign of progress has kept no work, so its running time is lost. Work between the last
checkpoint and a failure counts as productive, because only the program knows when its last checkpoint was.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from holdfast.model.decisions import AttemptRecord, DecisionKind
from holdfast.model.exit_report import Blame
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase


class TimeUse(enum.StrEnum):
    """The ways in which a job spends time."""

    PRODUCTIVE = "productive"
    #: The program ran, but its work was lost.
    LOST_WORK = "lost_work"
    START = "start"
    CHECKS = "checks"
    DETECTION = "detection"
    #: The time from the last sign of life of a hanging job to its stop.
    HANG = "hang"
    DRAIN = "drain"
    DECISION = "decision"
    BACKOFF = "backoff"
    QUEUE = "queue"


#: Part of an attempt → the use of its time. `first_output` overlaps other parts, and `done` takes no time.
_OF_PART: Mapping[str, TimeUse] = {
    "backoff": TimeUse.BACKOFF,
    "assembling": TimeUse.START,
    "checking": TimeUse.CHECKS,
    "preparing": TimeUse.START,
    "starting": TimeUse.START,
    "running": TimeUse.PRODUCTIVE,
    "detection": TimeUse.DETECTION,
    "draining": TimeUse.DRAIN,
    "decision": TimeUse.DECISION,
    "queued": TimeUse.QUEUE,
}
_HANGS = frozenset({Phrase.HUNG_WORKER})


class Goodput(Noun, frozen=True, kw_only=True):
    """Seconds for each use of time. `wall_s` is the sum."""

    seconds: dict[TimeUse, float]

    @property
    def wall_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def lost_s(self) -> float:
        return self.wall_s - self.seconds.get(TimeUse.PRODUCTIVE, 0.0)

    @property
    def ratio(self) -> float | None:
        """ETTR (effective training time ratio): productive time ÷ wall time, from 0 to 1; None if no time has
        passed."""
        return self.seconds.get(TimeUse.PRODUCTIVE, 0.0) / self.wall_s if self.wall_s > 0 else None


def ended_well(record: AttemptRecord) -> bool:
    """Return whether the attempt succeeded, or was stopped regularly by a person or the platform.

    A stop by a time limit is not regular, nor is the death of an owner.
    """
    stopped = record.decision.kind is DecisionKind.STOP and record.report.blame in (Blame.OPERATOR, Blame.PLATFORM)
    return stopped or record.decision.kind is DecisionKind.SUCCEED


def kept(record: AttemptRecord) -> bool:
    """Return whether the attempt's work counts as productive: it ended well, or made progress."""
    return record.progressed or bool(record.signs) or ended_well(record)


def of_attempt(record: AttemptRecord) -> dict[TimeUse, float]:
    """Return how the seconds of one attempt, and of the wait before it, were spent: use → seconds."""
    found: dict[TimeUse, float] = {}
    for part, seconds in record.parts.items():
        spent = _OF_PART.get(part)
        if spent is TimeUse.PRODUCTIVE and not kept(record):
            spent = TimeUse.LOST_WORK
        elif spent is TimeUse.DETECTION and record.report.phrase in _HANGS:
            spent = TimeUse.HANG
        if spent is not None and seconds > 0:
            found[spent] = found.get(spent, 0.0) + seconds
    return found


def goodput(attempts: Iterable[AttemptRecord]) -> Goodput:
    """Sum up the attempts of one or more jobs."""
    total: dict[TimeUse, float] = {}
    for record in attempts:
        for spent, seconds in of_attempt(record).items():
            total[spent] = total.get(spent, 0.0) + seconds
    return Goodput(seconds={kind: total[kind] for kind in TimeUse if kind in total})


def recoveries(attempts: Sequence[AttemptRecord]) -> list[tuple[AttemptRecord, float]]:
    """Return each attempt that follows another attempt, and how long the job did no work before it.

    This is the time in seconds from the first sign of trouble to the first output of the new attempt. If the new
    attempt wrote no output, the time ends when its workers run.
    """
    found = []
    for before, after in pairwise(attempts):
        stood = sum(before.parts.get(part, 0.0) for part in ("detection", "draining", "decision", "queued"))
        for part in ("backoff", "assembling", "checking", "preparing"):
            stood += after.parts.get(part, 0.0)
        stood += after.parts.get("first_output", after.parts.get("starting", 0.0))
        found.append((after, stood))
    return found
