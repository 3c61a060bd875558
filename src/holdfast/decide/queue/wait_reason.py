"""The reason for which a job waits: what is missing, who has it, and one sentence about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import assert_never

from holdfast.decide.queue.queue_model import gib
from holdfast.model.human_format import Zone, clock, counted, utc
from holdfast.model.noun_base import Noun

_MOST_NAMES = 4


class Missing(enum.StrEnum):
    """What a waiting job lacks. It is checked in this order."""

    #: A person holds the job.
    RELEASE = "release"
    #: Other jobs have to end first.
    DEPENDENCY = "dependency"
    #: The moment before which it does not start.
    TIME = "time"
    #: A limit of its user or group.
    LIMIT = "limit"
    #: The number of tasks of its array that may run at once.
    ARRAY = "array"
    #: More than the machine has at present: devices are held, used by others, or avoided by the job.
    MACHINE = "machine"
    #: A job that does not say its memory starts only while the machine has some available.
    AVAILABLE = "available"
    #: The jobs that were preempted for it have not left yet.
    VICTIMS = "victims"
    DEVICES = "devices"
    CPUS = "cpus"
    MEMORY = "memory"
    #: What it needs is free, and kept for a job before it.
    KEPT = "kept"


#: With one of these the job waits for something other than its turn, and its waiting does not count.
NOT_ITS_TURN = frozenset({Missing.RELEASE, Missing.DEPENDENCY, Missing.TIME, Missing.LIMIT, Missing.ARRAY})


class WaitReason(Noun, frozen=True, kw_only=True):
    missing: Missing
    #: How many (bytes for memory) it needs and how many it could have now.
    needs: int = 0
    free: int = 0
    #: The jobs that it waits for, or the job for which something is kept.
    jobs: tuple[str, ...] = ()
    #: The devices that it waits for.
    devices: tuple[str, ...] = ()
    #: Facts in words: a person's reason, a limit, the state of a device.
    details: tuple[str, ...] = ()
    #: Since when something is kept.
    since: float | None = None
    #: The moment at which it starts at the latest if it is the next one, else the expected one; None: unknown.
    starts_at: float | None = None
    #: The job has the next reservation.
    next: bool = False

    @property
    def its_turn(self) -> bool:
        """Return whether nothing but its turn is missing, so that its waiting counts for its class."""
        return self.missing not in NOT_ITS_TURN

    def words(self, zone: Zone = utc) -> str:
        """Return one sentence without a full stop."""
        text = self._missing(zone)
        if self.details and self.missing not in (Missing.RELEASE, Missing.LIMIT, Missing.MACHINE):
            text += f"; {'; '.join(self.details)}"
        if self.next and self.starts_at is not None:
            text += f"; it starts by {clock(self.starts_at, zone)}"
        elif self.its_turn and self.starts_at is not None:
            text += f"; expected to start at {clock(self.starts_at, zone)}"
        elif self.next and self.missing is not Missing.VICTIMS:
            text += "; its start is not known, because a job that runs has no time limit"
        return text

    def _missing(self, zone: Zone) -> str:
        jobs = f"{'job' if len(self.jobs) == 1 else 'jobs'} {_names(self.jobs)}"
        jobs_have = f"{jobs} {'has' if len(self.jobs) == 1 else 'have'}"
        match self.missing:
            case Missing.RELEASE:
                return f"held: {'; '.join(self.details)}"
            case Missing.DEPENDENCY:
                return f"waits for the end of {jobs}"
            case Missing.TIME:
                assert self.starts_at is not None, "a time is missing"
                return f"does not start before {clock(self.starts_at, zone)}"
            case Missing.LIMIT:
                return "; ".join(self.details)
            case Missing.ARRAY:
                return f"{counted(self.needs, 'task')} of its array may run at once, and {self.free} run"
            case Missing.MACHINE:
                return "; ".join(self.details)
            case Missing.AVAILABLE:
                return "its memory is not said, and the machine has no more available than its reserve"
            case Missing.VICTIMS:
                return f"waits until {jobs_have} saved and left"
            case Missing.CPUS:
                return f"needs {counted(self.needs, 'CPU')}, and {self.free} are free: {jobs_have} the others"
            case Missing.MEMORY:
                return f"needs {gib(self.needs)} of memory, and {gib(self.free)} are free: {jobs_have} the rest"
            case Missing.DEVICES if self.devices:
                return f"needs {_names(self.devices)}: in use by {jobs}"
            case Missing.DEVICES:
                return f"needs {counted(self.needs, 'device')}, and {self.free} can be had now: {jobs_have} the others"
            case Missing.KEPT:
                assert self.since is not None, "something is kept"
                kept = (
                    f"{_names(self.devices)} {'is' if len(self.devices) == 1 else 'are'}"
                    if self.devices
                    else "what it needs is"
                )
                return f"{kept} kept for {jobs} since {clock(self.since, zone)}"
        assert_never(self.missing)


def _names(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} others"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
