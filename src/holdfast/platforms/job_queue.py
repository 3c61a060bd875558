"""The interface to a platform's queue of jobs that have not started, or that the platform will restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.noun_base import Noun


class QueueEntry(Noun, frozen=True, kw_only=True):
    """One job, as its platform's queue lists it."""

    #: The job's state as the platform writes it, such as `PENDING`.
    state: str
    #: Why the job waits, as the platform writes it, such as `Resources`. Empty if the job does not wait.
    reason: str = ""
    #: Expected start time, in seconds since the epoch; None if unknown.
    begins: float | None = None


class QueueUnknown(Noun, frozen=True, kw_only=True):
    """The queue could not be read.

    `why`: the reason, as a clause for a message.
    """

    why: str
    #: Whether the queue may become readable later.
    passes: bool


class QueueAnswer(Protocol):
    """The result of one command to the queue."""

    @property
    def ok(self) -> bool: ...

    @property
    def said(self) -> str:
        """Why the command failed, as a clause for a message."""
        ...

    @property
    def out(self) -> str: ...

    @property
    def err(self) -> str: ...

    @property
    def unknown(self) -> bool:
        """Whether the platform does not know the job."""
        ...


class JobQueue(Protocol):
    """One platform's queue. An object serves one command: it reads `entries` and `cluster` once and caches them."""

    def entries(self) -> Mapping[str, QueueEntry] | QueueUnknown:
        """Return this user's jobs in the queue, by id. Each task of an array is an entry."""
        ...

    def cluster(self) -> str:
        """Return the cluster's name; empty if unknown.

        The name is needed because several clusters may share a home directory.
        """
        ...

    def may_begin(self, entry: QueueEntry) -> bool:
        """Whether the platform may start this job, or requeue it."""
        ...

    def cancel(self, number: str, *, waiting: bool) -> QueueAnswer:
        """Cancel the job with this number. `waiting`: cancel only those of its tasks that have not started."""
        ...

    def begins(self, number: str) -> bool:
        """Read the queue again. Return whether the waiting job `number` has been given its nodes."""
        ...

    def wait(self, seconds: float) -> None:
        """Sleep before the queue is read again. An interrupt ends the sleep."""
        ...

    def beside(self, number: str, node: str, words: Sequence[str]) -> QueueAnswer:
        """Run the holdfast command `words` on a node of a running job, inside the job's allocation."""
        ...

    def look_command(self, number: str) -> str:
        """Return the platform's shell command that shows a job in its queue, for messages."""
        ...

    def end_command(self, number: str) -> str:
        """Return the platform's shell command that ends a job, for messages."""
        ...

    def past_command(self, number: str) -> str:
        """Return the platform's shell command that shows a job which has left the queue, for messages."""
        ...
