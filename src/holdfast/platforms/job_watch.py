"""The owner's view of its job through the platform: explained signals, lost nodes, requeues.

A watch observes the job from outside. It answers with events, through the reactor, and never blocks the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from holdfast.catalogue.fault_codes import describe

if TYPE_CHECKING:
    from holdfast.model.decisions import AttemptRecord, JobReport
    from holdfast.model.events import Event, JournalSecured
    from holdfast.model.faults import FaultEvent
    from holdfast.reactor import News, Reactor
    from holdfast.record.job_directory import JobPlace


class JobWatch:
    """Observes one job through its platform.

    `now` is in seconds on the owner's clock. Each method returns the events that follow at once; events that need the
    platform's answer come later, from the reactor. Every method has a default that does nothing.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    @property
    def asking(self) -> bool:
        """Whether a signal still waits for the platform's explanation. A worker's death may be its effect."""
        return False

    @property
    def holding(self) -> bool:
        """Whether the platform has yet to answer a request to hold a node."""
        return False

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        """Start to watch the job: its owner has started or restarted. `place`: the job's state directory, with its
        journal.

        `heard_at(node)`: when the owner last received something from a node's agent, in seconds on the owner's clock;
        None: never.
        """
        return None

    def noted(self, event: Event, now: float) -> None:
        """The owner has journaled and handled an event. The event contains no secret."""

    def secured(self, event: JournalSecured, now: float) -> News:
        """The journal holds the attempt's number.

        Return `event` at once, or deliver it later, once the platform has stored the number too.
        """
        return [event]

    @property
    def handed_over(self) -> bool:
        """Whether this process must exit while the job goes on: the platform has given the job to another owner."""
        return False

    def joined(self, node: str, now: float) -> None:
        """The owner has admitted a node's agent."""

    def labels(self, node: str) -> tuple[str, ...]:
        """Return a node's topology labels from the platform, the widest first. The agent's own labels come on top."""
        return ()

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """This attempt's workers run on these nodes."""

    def avoid(self, names: Sequence[str]) -> None:
        """The gang will no longer use these nodes, or devices on them."""

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached a node's guard. Its meaning follows as `StopRequested`.

        Nothing follows if the signal was meant for the workers, which receive it anyway.
        """
        return None

    def felled(self, since: float) -> None:
        """Workers have died of SIGTERM since `since`, and holdfast received no signal.

        If the platform sent SIGTERM, `StopRequested` follows. Until the platform answers, `asking` is true.
        """

    def lost(self, node: str, attempt: int, now: float) -> News:
        """The gang has lost a node in this attempt. The platform's report about the node follows as `PlatformSaid`."""
        return None

    def broken_off(self, attempt: int) -> None:
        """The attempt has lost nodes or agents.

        If the platform acted on the whole job, `PlatformSaid` follows. Until the platform answers, `asking` is true.
        """

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Ask the platform to restart the job without these nodes.

        `done` is called once, with the reason for a refusal, or an empty string.
        """
        self._reactor.at(self._reactor.now(), lambda now: done("nothing here starts a job again", now))

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Ask the platform to place no more jobs on this node. Its answer follows as `PlatformSaid`."""

    def hold_device(self, fault: FaultEvent, attempt: int) -> None:
        """Ask the platform to hold the node of a device with a fault that a user has to look at."""
        if fault.node:
            self.hold(fault.node, f"{fault.device} is HELD: {describe(fault.code)}", attempt)

    def recorded(self, record: AttemptRecord) -> None:
        """An attempt has ended: write its cause into the platform's job records."""

    def finished(self, report: JobReport) -> None:
        """The job has its final report."""

    @property
    def writing(self) -> bool:
        """Whether the platform has yet to accept a record, or the list of nodes to exclude from the next run."""
        return False

    def close(self) -> None:
        """Stop watching: the job is over."""
