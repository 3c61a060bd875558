"""The interface through which an owner watches its job on a platform: signals, lost nodes and requeues.

A watch reads the platform's records of the job. It reports with events, through the reactor, and never blocks the
owner.
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
    """Watches one job through its platform.

    `now` is in seconds on the owner's clock. Each method returns the events that follow at once. Events that depend on
    the platform's answer come later, from the reactor. Every method has a default that does nothing.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    @property
    def asking(self) -> bool:
        """Whether the platform has not yet explained a received signal, which may have killed workers."""
        return False

    @property
    def holding(self) -> bool:
        """Whether a request to block a node for further jobs still waits for the platform's answer."""
        return False

    def begin(self, now: float, place: JobPlace, heard_at: Callable[[str], float | None]) -> News:
        """Start to watch the job, after its owner has started or restarted.

        `place`: the job's state directory, with its journal.
        `heard_at(node)`: when the owner last received something from a node's agent, in seconds on the owner's clock;
            None: never.
        """
        return None

    def noted(self, event: Event, now: float) -> None:
        """Handle an event that the owner has written to the journal. The event contains no secret."""

    def secured(self, event: JournalSecured, now: float) -> News:
        """Handle an attempt's number that the journal has stored.

        Return `event` at once, or deliver it later, after the platform has stored the number too.
        """
        return [event]

    @property
    def handed_over(self) -> bool:
        """Whether this process must exit because the platform has given the running job to another owner."""
        return False

    def joined(self, node: str, now: float) -> None:
        """Record that the owner has admitted a node's agent."""

    def labels(self, node: str) -> tuple[str, ...]:
        """Return a node's topology labels from the platform, widest first. The owner adds the agent's own labels."""
        return ()

    def seated(self, nodes: Collection[str], attempt: int) -> None:
        """Record the nodes on which this attempt's workers run."""

    def avoid(self, names: Sequence[str]) -> None:
        """Record that the gang will no longer use these nodes or devices. A device's name is NODE/DEVICE."""

    def signalled(self, number: int, node: str, now: float) -> News:
        """Find out why a signal has reached a node's guard. The reason follows as `StopRequested`.

        Nothing follows if the signal was meant for the workers, because they receive the signal too.
        """
        return None

    def felled(self, since: float) -> None:
        """Find out why workers have died of SIGTERM since `since`, although holdfast received no signal.

        If the platform sent SIGTERM, `StopRequested` follows. `asking` is true until the platform answers.
        """

    def lost(self, node: str, attempt: int, now: float) -> News:
        """Find out why the gang has lost a node in this attempt.

        The platform's report about the node follows as `PlatformSaid`.
        """
        return None

    def broken_off(self, attempt: int) -> None:
        """After the loss of nodes or agents, find out whether the platform has stopped the whole job.

        If so, `PlatformSaid` follows. Until the platform answers, `asking` is true.
        """

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Ask the platform to restart the job without these nodes.

        `reason`: why the job is restarted.
        `without`: names of the nodes to exclude.
        `done`: called once, with the reason for a refusal, or "".
        """
        self._reactor.at(self._reactor.now(), lambda now: done("nothing here starts a job again", now))

    def hold(self, node: str, reason: str, attempt: int) -> None:
        """Ask the platform to block a node for further jobs. The platform's answer follows as `PlatformSaid`."""

    def hold_device(self, fault: FaultEvent, attempt: int) -> None:
        """Ask the platform to block a node for further jobs, because a person must check one of its devices."""
        if fault.node:
            self.hold(fault.node, f"{fault.device} is HELD: {describe(fault.code)}", attempt)

    def recorded(self, record: AttemptRecord) -> None:
        """Write the cause of an attempt's end into the platform's job records."""

    def finished(self, report: JobReport) -> None:
        """Handle the job's final report, for example publish it on the platform."""

    @property
    def writing(self) -> bool:
        """Whether the platform must still accept a record, or the list of nodes that the next run must not use."""
        return False

    def close(self) -> None:
        """Stop watching, because the job has ended."""
