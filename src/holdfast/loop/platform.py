"""What the owner knows of a platform that runs its job: Slurm, Kubernetes. A job outside of one has none.

A platform watches the job from outside: it knows why a signal came, that a node is gone, when the time is over; and it
can start the job again. It answers with events, through the reactor, and never makes the owner wait.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.events import Event, JournalSecured
    from holdfast.model.jobs import JobSpec
    from holdfast.reactor import News, Reactor
    from holdfast.record.places import JobPlace

OF_A_PLATFORM = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that a platform sends, and is asked about."""
QUEUED_AGAIN = 75
"""The exit status of a run that ends because its platform starts the job again: EX_TEMPFAIL of sysexits.h."""
_OF_SLURM = "SLURM_JOB_ID"
_OF_KUBERNETES = "HOLDFAST_KUBERNETES_JOB"
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

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        """The owner is there, for the first time or again: begin to look. `place`: has the journal of the job.

        `heard_at(node)`: when the agent of a node spoke last, in seconds on the owner's clock; None: it has not.
        """
        ...

    def noted(self, event: Event, now: float) -> None:
        """An event was written down, and handled; no secret stands in it."""
        ...

    def secured(self, event: JournalSecured, now: float) -> News:
        """The journal has the number of an attempt: `event` follows, at once or when the platform has it too."""
        ...

    @property
    def handed_over(self) -> bool:
        """This process is to end, and the job is not: the platform has another owner take it over."""
        ...

    def joined(self, node: str, now: float) -> None:
        """The agent of a node was let in."""
        ...

    def labels(self, node: str) -> tuple[str, ...]:
        """What the platform says of a node's neighbourhood, the widest first, beside what its agent says."""
        ...

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """These nodes have the workers of this attempt."""
        ...

    def avoid(self, names: Sequence[str]) -> None:
        """The gang leaves these nodes, or devices on them, out from now on."""
        ...

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached the guard of a node. What it means follows as `StopRequested`, or nothing: the signal
        was meant for the workers, and they have it or get it."""
        ...

    def felled(self, since: float) -> None:
        """Workers have died of SIGTERM since then, and no signal has reached holdfast: what the platform has to do with
        it follows as `StopRequested`, or nothing. It is `asking` meanwhile."""
        ...

    def lost(self, node: str, attempt: int, now: float) -> News:
        """The gang has lost a node in this attempt: what the platform says of it follows as `PlatformSaid`."""
        ...

    def broken_off(self, attempt: int) -> None:
        """Nodes or agents of this attempt were lost: what the platform has done to the whole job follows as
        `PlatformSaid`, or nothing. It is `asking` meanwhile."""
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
    return (_OF_SLURM in environment or _OF_KUBERNETES in environment) and _IN_A_WORKER not in environment


def leave_to_platform(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> bool:
    """An agent without an owner: the platform is asked to start the job again, or to end it, where no process of it is
    left that could. `done` is called when nothing is left to do; False: no platform runs this process."""
    if not on_platform(environment) or _OF_KUBERNETES in environment:
        return False  # Kubernetes gives the job another owner's pod by itself, and that one finds this node gone
    from holdfast.loop.slurm.orphan import orphan  # only there

    return orphan(reactor, say, environment, done) is not None


def platform_of(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> Platform | None:
    """The platform that runs this owner's job; None: there is none."""
    if not on_platform(environment):
        return None
    if _OF_KUBERNETES in environment:
        from holdfast.loop.kubernetes.station import station as kubernetes_station  # only there

        return kubernetes_station(spec, reactor, say, environment)
    from holdfast.loop.slurm.station import station  # only there

    return station(spec, reactor, say, environment)


def exit_status(code: int, environment: Mapping[str, str]) -> int:
    """What the owner's process ends with where the job's final code is `code`.

    A Job of Kubernetes tells by it whether another pod is to try: every verdict has one status there, and the code
    itself stands in the termination message.
    """
    if not code or _OF_KUBERNETES not in environment:
        return code
    from holdfast.cluster.kubernetes.names import DO_NOT_RETRY  # only there

    return DO_NOT_RETRY
