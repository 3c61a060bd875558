"""The interface to a platform's queue: jobs that have not started, or that will start again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.noun_base import Noun


class QueueEntry(Noun, frozen=True, kw_only=True):
    """A job as its platform's queue shows it."""

    #: The state as the platform writes it: `PENDING`.
    state: str
    #: The reason for waiting as the platform writes it: `Resources`. Empty: the job does not wait.
    reason: str = ""
    #: Expected start, in seconds since the epoch; None: unknown.
    begins: float | None = None


class QueueUnknown(Noun, frozen=True, kw_only=True):
    """The queue could not be read.

    `why`: the reason, as a clause for a message.
    """

    why: str
    #: A later look may succeed.
    passes: bool


class QueueAnswer(Protocol):
    """The result of one command to the queue."""

    @property
    def ok(self) -> bool: ...

    @property
    def said(self) -> str:
        """The error as a clause for a message."""
        ...

    @property
    def out(self) -> str: ...

    @property
    def err(self) -> str: ...

    @property
    def unknown(self) -> bool:
        """The platform knows no such job."""
        ...


class JobQueue(Protocol):
    """One platform's queue, for the length of one command: `entries` and `cluster` are read once and cached."""

    def entries(self) -> Mapping[str, QueueEntry] | QueueUnknown:
        """Return this user's jobs in the queue, by id. Each task of an array is an entry."""
        ...

    def cluster(self) -> str:
        """Return the cluster's name; empty: unknown. Several clusters may share a home directory."""
        ...

    def may_begin(self, entry: QueueEntry) -> bool:
        """Whether the platform will start this job, or may requeue it."""
        ...

    def cancel(self, number: str, *, waiting: bool) -> QueueAnswer:
        """Cancel a job. `waiting`: cancel only the part that has not started."""
        ...

    def begins(self, number: str) -> bool:
        """Read the queue again. Return whether a waiting job now has its nodes."""
        ...

    def wait(self, seconds: float) -> None:
        """Sleep before the next look at the queue. An interrupt ends the wait."""
        ...

    def beside(self, number: str, node: str, words: Sequence[str]) -> QueueAnswer:
        """Run a holdfast command on a node of a running job, inside that job's allocation."""
        ...

    def look_command(self, number: str) -> str:
        """Return the platform's command that shows a job, for messages."""
        ...

    def end_command(self, number: str) -> str:
        """Return the platform's command that ends a job, for messages."""
        ...

    def past_command(self, number: str) -> str:
        """Return the platform's command that shows a job which has left the queue, for messages."""
        ...
