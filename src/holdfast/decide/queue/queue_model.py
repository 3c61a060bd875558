"""The nouns of the queue of one machine: its devices, the jobs that wait and run, the policy, and the use by user.

All times are seconds on one clock, the clock of `now`. All sizes are bytes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.model.noun_base import Noun

DAY_S = 86_400.0


class Priority(enum.IntEnum):
    """The class of a job. A higher number stands first."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


class DeviceState(enum.StrEnum):
    """Whether a device may be given, apart from the jobs that have it."""

    USABLE = "usable"
    #: A device that may be faulty. It is given last.
    SUSPECT = "suspect"
    #: An administrator or a check keeps it back, or a process of an ended job still has it open.
    HELD = "held"
    #: A process that belongs to no job of this queue computes on it.
    FOREIGN = "foreign"


class Device(Noun, frozen=True, kw_only=True):
    name: str
    index: int
    state: DeviceState = DeviceState.USABLE
    #: The reason of a state other than usable, such as `held by ada: fan fails` or `pid 4711 (python, bob) computes`.
    reason: str = ""
    #: The NUMA node, if it is known.
    numa: int | None = None
    #: The names of the other devices, the nearest first. Empty: unknown.
    links: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Return whether the queue may give the device to a job."""
        return self.state in (DeviceState.USABLE, DeviceState.SUSPECT)


class Machine(Noun, frozen=True, kw_only=True):
    """What the core may give: its control group's and affinity's share where that is smaller than the machine."""

    devices: tuple[Device, ...] = ()
    cpus: int
    #: The whole memory; None: unknown, and no memory is promised.
    memory: int | None = None
    #: The memory that is available now (MemAvailable); None: not looked at.
    available: int | None = None


class Needs(Noun, frozen=True, kw_only=True):
    """What a job needs at once."""

    devices: int = 0
    cpus: int = 1
    #: None: not said, so it is neither promised nor limited.
    memory: int | None = None
    #: Names of devices that the user has typed. The job gets all of them.
    on: tuple[str, ...] = ()
    #: The job gets all CPUs, so that no other job runs beside it.
    exclusive: bool = False


class Reservation(Noun, frozen=True, kw_only=True):
    """What is kept for a job that cannot start yet. The caller stores it in `WaitingJob.reservation`.

    A *claim* follows a preemption: its devices, CPUs and memory are kept for the job alone, from the preemption until
    it starts. A claim has to be recorded together with the preemption. Other reservations are computed again by each
    plan; the stored one gives `since`.
    """

    job: str
    devices: tuple[str, ...] = ()
    #: The latest start, from the known ends of the jobs that run; None: at least one of these ends is unknown.
    at: float | None = None
    since: float
    claim: bool = False


class WaitingJob(Noun, frozen=True, kw_only=True):
    id: str
    name: str = ""
    user: str
    groups: tuple[str, ...] = ()
    priority: Priority = Priority.NORMAL
    needs: Needs
    #: The longest time that the job holds its devices after each start, in seconds; None: unknown.
    time_s: float | None = None
    #: The moment of the first submission. A job that was preempted keeps it.
    submitted_at: float
    #: Seconds until `eligible_since` in which nothing but its turn was missing (`queue_order.aged`).
    eligible_s: float = 0.0
    #: The moment since which nothing but its turn is missing; None: something else is missing.
    eligible_since: float | None = None
    #: The reason for which a person holds the job; empty: not held.
    held: str = ""
    #: The job does not start before (a back-off).
    not_before: float | None = None
    #: The ids of the jobs that it still waits for.
    after: tuple[str, ...] = ()
    #: Devices on which it must not start, after a failure elsewhere.
    avoid: tuple[str, ...] = ()
    preemptible: bool = False
    #: The moments at which it was preempted.
    preempted_at: tuple[float, ...] = ()
    #: The job was preempted for a job that was stopped before its start: it stands before all others.
    returns_first: bool = False
    #: The id of the array and the most tasks of it that run at once; 0: no limit.
    array: str = ""
    array_limit: int = 0
    #: The reservation of the plan before.
    reservation: Reservation | None = None

    def eligible(self, now: float) -> float:
        """Return for how many seconds nothing but its turn has been missing."""
        since = self.eligible_since
        return self.eligible_s if since is None else self.eligible_s + max(now - since, 0.0)


class RunningJob(Noun, frozen=True, kw_only=True):
    """A job that has devices, CPUs or memory, until the last of them is back."""

    id: str
    user: str
    groups: tuple[str, ...] = ()
    priority: Priority = Priority.NORMAL
    needs: Needs
    #: The names of the devices that it has now.
    devices: tuple[str, ...] = ()
    #: The CPUs that it has. 0: as many as `needs` says.
    cpus: int = 0
    started_at: float
    time_s: float | None = None
    #: The moment at which it will have ended at the latest (time limit, grace included); None: unknown.
    ends_at: float | None = None
    preemptible: bool = False
    #: Its class with ageing at its start (`Start.stood`): no job preempts it that stood behind it.
    stood: float = 0.0
    #: The end of the last save that was seen; None: none yet.
    saved_at: float | None = None
    #: Save time and grace: seconds after a drain notice at which it has left at the latest.
    leaves_s: float = 60.0
    preempted_at: tuple[float, ...] = ()
    #: It has the drain notice, and leaves.
    draining: bool = False
    #: The id of the job for which it was preempted.
    drains_for: str = ""
    array: str = ""

    @property
    def has_cpus(self) -> int:
        return self.cpus or max(self.needs.cpus, 1)


class Limits(Noun, frozen=True, kw_only=True):
    """The limits of a user or group; None: no limit."""

    devices: int | None = None
    running: int | None = None
    cpus: int | None = None
    waiting: int | None = None
    highest: Priority | None = None
    longest_s: float | None = None
    preempts: bool = True


class Policy(Noun, frozen=True, kw_only=True):
    #: A job rises by one class after so much waiting in which nothing but its turn was missing.
    age_s: float = 12 * 3600.0
    half_life_s: float = DAY_S
    preempt_after_s: float = 300.0
    most_preemptions_a_day: int = 3
    #: The time limit of jobs without one; None: their end is unknown.
    assume_time_s: float | None = None
    reserve_cpus: int = 0
    reserve_memory: int = 0
    #: The limits of a user by name, of a group by `@name`, and of each user that has none by "".
    limits: Mapping[str, Limits] = {}


class Use(Noun, frozen=True, kw_only=True):
    """Share of the machine × seconds, decayed to the moment `at`."""

    amount: float = 0.0
    at: float = 0.0


class FairShare(Noun, frozen=True, kw_only=True):
    """The ledger of the machine's use by user. Use halves every half-life."""

    half_life_s: float = DAY_S
    used: Mapping[str, Use] = {}

    def use(self, user: str, now: float) -> float:
        """Return a user's use, decayed to `now`."""
        entry = self.used.get(user)
        return 0.0 if entry is None else entry.amount * self._left(now - entry.at)

    def charged(self, user: str, share: float, since: float, until: float) -> FairShare:
        """Return the ledger after a use of `share` of the machine from `since` to `until`.

        It makes no difference whether a time is charged at once or in parts. A clock that steps back charges nothing.
        """
        span_s = max(until - since, 0.0)
        fresh = share * (1.0 - self._left(span_s)) * self.half_life_s / math.log(2)
        earlier = self.used.get(user, Use(at=until))
        entry = Use(amount=self.use(user, until) + fresh, at=max(until, earlier.at))
        return replace(self, used={**self.used, user: entry})

    def _left(self, span_s: float) -> float:
        return math.exp2(-max(span_s, 0.0) / self.half_life_s)


def share_of(machine: Machine, devices: int, cpus: int) -> float:
    """Return the share of the machine that a job uses: the larger of its shares of devices and CPUs."""
    by_devices = devices / len(machine.devices) if machine.devices else 0.0
    return max(by_devices, cpus / max(machine.cpus, 1))


def gib(size: float) -> str:
    """Return a number of bytes as `1.5 GiB`."""
    return f"{size / 2**30:.4g} GiB"
