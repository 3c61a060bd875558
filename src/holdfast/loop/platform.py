"""What the owner knows of a platform that runs its job: Slurm, Kubernetes. A job outside of one has none.

A platform watches the job from outside: it knows why a signal came, that a node is gone, when the time is over; and it
can start the job again. It answers with events, through the reactor, and never makes the owner wait.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.jobs import JobSpec
    from holdfast.reactor import News, Reactor

OF_A_PLATFORM = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that a platform sends, and is asked about."""
QUEUED_AGAIN = 75
"""The exit status of a run that ends because its platform starts the job again: EX_TEMPFAIL of sysexits.h."""
_OF_SLURM = "SLURM_JOB_ID"
_IN_A_WORKER = "HOLDFAST_ATTEMPT"
"""A run that a worker starts is the worker's own: its signals come from there."""


class Platform(Protocol):
    """One job as its platform sees it. `now`: seconds on the owner's clock. Each call answers with events that follow
    at once; those that need an answer of the platform come later, from the reactor."""

    @property
    def asking(self) -> bool:
        """A signal has come, and the platform has not said yet what it means: a death may be its effect."""
        ...

    @property
    def holding(self) -> bool:
        """The platform has not said yet what becomes of a node that it was asked to hold."""
        ...

    def begin(self, now: float) -> News:
        """The owner is there, for the first time or again: begin to look."""
        ...

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached the guard of a node. What it means follows as `StopRequested`, or nothing: the signal
        was meant for the workers, and they have it or get it."""
        ...

    def lost(self, node: str, attempt: int, now: float) -> News:
        """The gang has lost a node in this attempt: what the platform says of it follows as `PlatformSaid`."""
        ...

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Have the job started again, without these nodes. `done` gets why it will not be, or nothing, once."""
        ...

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Have no job placed on this node any more. What the platform says to that follows as `PlatformSaid`."""
        ...

    def recorded(self, record: AttemptRecord) -> None:
        """An attempt has ended: let the platform's own records say of what."""
        ...

    def finished(self, report: JobReport) -> None:
        """The job has its report."""
        ...

    @property
    def writing(self) -> bool:
        """The platform has not yet taken what its records are to say, or which nodes another run is not to get."""
        ...

    def close(self) -> None:
        """The job is over: look no more."""
        ...


def on_platform(environment: Mapping[str, str]) -> bool:
    """Whether a platform runs this process: its signals are asked about, and no node leaves for one."""
    return _OF_SLURM in environment and _IN_A_WORKER not in environment


def leave_to_platform(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> bool:
    """An agent without an owner: the platform is asked to start the job again, or to end it, where no process of it is
    left that could. `done` is called when nothing is left to do; False: no platform runs this process."""
    if not on_platform(environment):
        return False
    from holdfast.loop.slurm.orphan import orphan  # only there

    return orphan(reactor, say, environment, done) is not None


def platform_of(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> Platform | None:
    """The platform that runs this owner's job; None: there is none."""
    if not on_platform(environment):
        return None
    from holdfast.loop.slurm.station import station  # only there

    return station(spec, reactor, say, environment)
