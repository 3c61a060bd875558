"""A platform's queue, for `jobs`, `show`, `logs` and `stop`: jobs that have not begun, or that begin again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.noun_base import Noun


class QueueEntry(Noun, frozen=True, kw_only=True):
    """A job as its platform's queue shows it."""

    #: As the platform writes it: `PENDING`.
    state: str
    #: Why it waits, as the platform writes it: `Resources`. Empty: it does not wait.
    reason: str = ""
    #: When it is expected to begin, in seconds since the epoch; None: unknown.
    begins: float | None = None


class QueueUnknown(Noun, frozen=True, kw_only=True):
    """Why the queue is unknown, for a sentence."""

    why: str
    #: A later look may succeed.
    passes: bool


class QueueAnswer(Protocol):
    """The answer to a command."""

    @property
    def ok(self) -> bool: ...

    @property
    def said(self) -> str:
        """The trouble in words."""
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
    """One platform's queue. A command asks it once: `entries` and `cluster` keep their answer."""

    def entries(self) -> Mapping[str, QueueEntry] | QueueUnknown:
        """This user's jobs in the queue, by id, with each task of an array by itself."""
        ...

    def cluster(self) -> str:
        """The name of the cluster whose queue is asked; empty: unknown. Several may share a home."""
        ...

    def may_begin(self, entry: QueueEntry) -> bool:
        """Whether the platform will start the job, or may put it back into its queue."""
        ...

    def cancel(self, number: str, *, waiting: bool) -> QueueAnswer:
        """Take a job out of the queue. `waiting`: only the part that has not begun."""
        ...

    def begins(self, number: str) -> bool:
        """Whether a job that waited a moment ago now has its nodes; the queue is read again."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until another look at the queue is worth it. An interrupt ends it."""
        ...

    def beside(self, number: str, node: str, words: Sequence[str]) -> QueueAnswer:
        """Run one of holdfast's commands on a node of a running job, inside that job."""
        ...

    def look_command(self, number: str) -> str:
        """What a person types to look at a job there."""
        ...

    def end_command(self, number: str) -> str:
        """What a person types to end a job there."""
        ...

    def past_command(self, number: str) -> str:
        """What a person types to look at a job that is in the queue no more."""
        ...
