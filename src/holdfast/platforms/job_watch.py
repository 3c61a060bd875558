"""What the owner of a running job hears from the job's platform: signals explained, nodes lost, the job begun again.

A watch looks at the job from outside. It answers with events, through the reactor, and never makes the owner wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.events import Event, JournalSecured
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace


class JobWatch:
    """One job as its platform sees it. `now`: seconds on the owner's clock. Each call returns the events that follow at
    once; events that need an answer of the platform come later, from the reactor. Each method has a default, for a
    platform that has nothing to say there.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    @property
    def asking(self) -> bool:
        """A signal has arrived, and the platform has not explained it yet: a death may be its effect."""
        return False

    @property
    def holding(self) -> bool:
        """The platform has not answered yet what happens to a node that it was asked to hold."""
        return False

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        """The owner has started or restarted: begin to watch the job. `place`: has the journal of the job.

        `heard_at(node)`: when the owner last heard the agent of a node, in seconds on the owner's clock; None: never.
        """
        return None

    def noted(self, event: Event, now: float) -> None:
        """An event was written down, and handled; it contains no secret."""

    def secured(self, event: JournalSecured, now: float) -> News:
        """The journal has the number of an attempt: `event` follows, at once or when the platform has stored it too."""
        return [event]

    @property
    def handed_over(self) -> bool:
        """This process is to end, and the job is not: the platform gives it to another owner."""
        return False

    def joined(self, node: str, now: float) -> None:
        """The agent of a node was admitted."""

    def labels(self, node: str) -> tuple[str, ...]:
        """A node's neighbourhood as the platform reports it, the widest first, in addition to the agent's own."""
        return ()

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """The workers of this attempt are on these nodes."""

    def avoid(self, names: Sequence[str]) -> None:
        """From now on the gang does not use these nodes, or devices on them."""

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached the guard of a node. Its meaning follows as `StopRequested`. Nothing follows where the
        signal was meant for the workers, and they have it or get it."""
        return None

    def felled(self, since: float) -> None:
        """Workers have died of SIGTERM since then, and no signal has reached holdfast. The platform's part in it
        follows as `StopRequested`, or nothing. It is `asking` meanwhile."""

    def lost(self, node: str, attempt: int, now: float) -> News:
        """The gang has lost a node in this attempt: the platform's report about it follows as `PlatformSaid`."""
        return None

    def broken_off(self, attempt: int) -> None:
        """The attempt has lost nodes or agents: what the platform has done to the whole job follows as `PlatformSaid`,
        or nothing. It is `asking` meanwhile."""

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Ask the platform to start the job again, without these nodes. `done` gets why not, or nothing, once."""
        self._reactor.at(self._reactor.now(), lambda now: done("nothing here starts a job again", now))

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Ask the platform to place no more jobs on this node. Its answer follows as `PlatformSaid`."""

    def recorded(self, record: AttemptRecord) -> None:
        """An attempt has ended: write its cause into the platform's own records."""

    def finished(self, report: JobReport) -> None:
        """The job has its report."""

    @property
    def writing(self) -> bool:
        """The platform has yet to take an entry for its records, or the nodes that another run is not to get."""
        return False

    def close(self) -> None:
        """The job is over: stop watching."""
