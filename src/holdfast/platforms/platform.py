"""The owner's view of the platform that runs its job: Slurm, Kubernetes. A job without a platform has none.

A platform watches the job from outside. It knows why a signal came, that a node is gone, and when the time is over. It
can start the job again. It answers with events, through the reactor, and never makes the owner wait.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.events import Event, JournalSecured
    from holdfast.model.job_spec import JobSpec
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace

OF_A_PLATFORM = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that a platform sends, and which it is asked to explain."""
QUEUED_AGAIN = 75
"""The exit status of a run that ends because its platform starts the job again: EX_TEMPFAIL of sysexits.h."""
_OF_SLURM = "SLURM_JOB_ID"
_OF_KUBERNETES = "HOLDFAST_KUBERNETES_JOB"
_IN_A_WORKER = "HOLDFAST_ATTEMPT"
"""Set in a worker: a run that a worker starts gets its signals from that worker."""


class Platform(Protocol):
    """One job as its platform sees it. `now`: seconds on the owner's clock. Each call returns the events that follow at
    once. Events that need an answer of the platform come later, from the reactor."""

    @property
    def asking(self) -> bool:
        """A signal has arrived, and the platform has not explained it yet: a death may be its effect."""
        ...

    @property
    def holding(self) -> bool:
        """The platform has not answered yet what happens to a node that it was asked to hold."""
        ...

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        """The owner has started or restarted: begin to watch the job. `place`: has the journal of the job.

        `heard_at(node)`: when the owner last heard the agent of a node, in seconds on the owner's clock; None: never.
        """
        ...

    def noted(self, event: Event, now: float) -> None:
        """An event was written down, and handled; it contains no secret."""
        ...

    def secured(self, event: JournalSecured, now: float) -> News:
        """The journal has the number of an attempt: `event` follows, at once or when the platform has stored it too."""
        ...

    @property
    def handed_over(self) -> bool:
        """This process is to end, and the job is not: the platform gives it to another owner."""
        ...

    def joined(self, node: str, now: float) -> None:
        """The agent of a node was admitted."""
        ...

    def labels(self, node: str) -> tuple[str, ...]:
        """A node's neighbourhood as the platform reports it, the widest first, in addition to the agent's own."""
        ...

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """The workers of this attempt are on these nodes."""
        ...

    def avoid(self, names: Sequence[str]) -> None:
        """From now on the gang does not use these nodes, or devices on them."""
        ...

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached the guard of a node. Its meaning follows as `StopRequested`. Nothing follows where the
        signal was meant for the workers, and they have it or get it."""
        ...

    def felled(self, since: float) -> None:
        """Workers have died of SIGTERM since then, and no signal has reached holdfast. The platform's part in it
        follows as `StopRequested`, or nothing. It is `asking` meanwhile."""
        ...

    def lost(self, node: str, attempt: int, now: float) -> News:
        """The gang has lost a node in this attempt: the platform's report about it follows as `PlatformSaid`."""
        ...

    def broken_off(self, attempt: int) -> None:
        """The attempt has lost nodes or agents: what the platform has done to the whole job follows as `PlatformSaid`,
        or nothing. It is `asking` meanwhile."""
        ...

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Ask the platform to start the job again, without these nodes. `done` gets why not, or nothing, once."""
        ...

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Ask the platform to place no more jobs on this node. Its answer follows as `PlatformSaid`."""
        ...

    def recorded(self, record: AttemptRecord) -> None:
        """An attempt has ended: write its cause into the platform's own records."""
        ...

    def finished(self, report: JobReport) -> None:
        """The job has its report."""
        ...

    @property
    def writing(self) -> bool:
        """The platform has yet to take an entry for its records, or the nodes that another run is not to get."""
        ...

    def close(self) -> None:
        """The job is over: stop watching."""
        ...


def on_platform(environment: Mapping[str, str]) -> bool:
    """Whether a platform runs this process: it explains signals, and no node leaves the job because of one."""
    return (_OF_SLURM in environment or _OF_KUBERNETES in environment) and _IN_A_WORKER not in environment


def leave_to_platform(
    reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str], done: Callable[[], None]
) -> bool:
    """An agent without an owner asks the platform to start the job again, or to end it, where no process of the job is
    left that could. `done` is called when nothing is left to do; False: no platform runs this process."""
    if not on_platform(environment) or _OF_KUBERNETES in environment:
        return False  # Kubernetes itself gives the job another owner's pod, and that owner finds this node gone
    from holdfast.platforms.slurm.owner.orphan_agent import orphan  # imported only there

    return orphan(reactor, say, environment, done) is not None


def platform_of(
    spec: JobSpec, reactor: Reactor, say: Callable[[str], None], environment: Mapping[str, str]
) -> Platform | None:
    """The platform that runs this owner's job; None: there is none."""
    if not on_platform(environment):
        return None
    if _OF_KUBERNETES in environment:
        from holdfast.platforms.kubernetes.owner.kubernetes_platform import (
            station as kubernetes_station,  # imported only there
        )

        return kubernetes_station(spec, reactor, say, environment)
    from holdfast.platforms.slurm.owner.slurm_platform import station  # imported only there

    return station(spec, reactor, say, environment)


def exit_status(code: int, environment: Mapping[str, str]) -> int:
    """The exit status of the owner's process where the job's final code is `code`.

    A Kubernetes Job decides by it whether another pod is to try. So every verdict has the same status there, and the
    termination message has the code itself.
    """
    if not code or _OF_KUBERNETES not in environment:
        return code
    from holdfast.platforms.kubernetes.objects.object_names import DO_NOT_RETRY  # imported only there

    return DO_NOT_RETRY
