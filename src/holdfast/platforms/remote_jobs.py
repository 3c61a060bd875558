"""The interface to jobs in a cluster from outside it: `jobs`, `show`, `logs`, `stop`, `devices` and `release`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model.decisions import JobReport
from holdfast.model.noun_base import Noun


class RemoteLine(Noun, frozen=True, kw_only=True):
    """One line of a pod's log."""

    pod: str
    #: Time of the line by its node's clock, in seconds since the epoch.
    at: float | None
    role: str = ""
    #: Rank of the worker that printed the line; None: holdfast printed it.
    rank: int | None = None
    #: The whole line as in the log, with its line end.
    whole: bytes
    #: The line without the worker's prefix and the line end.
    text: bytes


class RemoteLineFilter(Noun, frozen=True, kw_only=True):
    """Selects lines of a log."""

    rank: int | None = None
    since: float | None = None
    #: End of the time span in seconds since the epoch; a line at exactly this time is left out.
    until: float | None = None
    #: A search function for a line's text; a false result drops the line.
    fits: Callable[[bytes], object] | None = None
    #: Number of last lines of each pod; None: all.
    tail: int | None = None

    @property
    def all(self) -> bool:
        """Whether the filter keeps every line, apart from `tail`."""
        return self.rank is None and self.since is None and self.until is None and self.fits is None


class RemotePod(Protocol):
    """The pod that runs one node of a job, or its owner."""

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> str:
        """The machine's name; empty: the pod has not been placed yet."""
        ...

    @property
    def phase(self) -> str: ...


class RemoteJob(Protocol):
    """A job as the cluster's records show it."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def created(self) -> float:
        """Creation time, in seconds since the epoch."""
        ...

    @property
    def ended(self) -> float | None: ...

    @property
    def code(self) -> int | None: ...

    @property
    def phrase(self) -> str: ...

    @property
    def said(self) -> str:
        """Why the job has ended, or why it waits."""
        ...

    @property
    def owner(self) -> RemotePod | None: ...

    @property
    def pods(self) -> Sequence[RemotePod]: ...

    @property
    def nodes(self) -> int:
        """Number of pods that the job should have; 0: unknown."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def attempt(self) -> int:
        """Number of the last attempt that the owner has recorded; 0: none yet."""
        ...


class RemoteEvent(Protocol):
    """One event about a job in the cluster's records."""

    @property
    def at(self) -> float: ...

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


class RemoteJobView(Protocol):
    """One job with all details that the cluster has."""

    @property
    def job(self) -> RemoteJob: ...

    @property
    def title(self) -> str:
        """The job's own name, which may differ from its objects' name; empty: unknown."""
        ...

    @property
    def over(self) -> bool: ...

    @property
    def placement(self) -> str:
        """Description of how the job's pods are placed."""
        ...

    @property
    def report(self) -> JobReport | None:
        """The final report; None: the job is not over."""
        ...

    @property
    def events(self) -> Sequence[RemoteEvent]: ...

    @property
    def pods(self) -> Sequence[tuple[str, str, str]]:
        """The last pod of each node, as (pod name, machine, state as text)."""
        ...

    @property
    def delete_command(self) -> str:
        """The shell command that deletes the objects of a job that is over."""
        ...


class HeldRemoteNode(Protocol):
    """A node that a job blocks for other jobs."""

    @property
    def node(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def since(self) -> str: ...


class RemoteJobs(Protocol):
    """The jobs of one cluster. `namespace` None: the user's own. Each method raises `BadUsage` and HoldfastError."""

    def jobs(self, namespace: str | None) -> tuple[Sequence[RemoteJob], str]:
        """Return the jobs of a namespace, the newest first, and the namespace's name."""
        ...

    def look(self, namespace: str | None, name: str) -> RemoteJobView:
        """Return one job with its details."""
        ...

    def logs(
        self,
        namespace: str | None,
        name: str,
        wanted: RemoteLineFilter,
        *,
        out: Callable[[RemoteLine], None],
        say: Callable[[str], None],
        following: bool,
    ) -> None:
        """Pass each selected line of a job's pods to `out`. `following`: go on until the job ends."""
        ...

    def stop(
        self, namespace: str | None, name: str, *, reason: str, solution: str, phrase: str, code: int | None, who: str
    ) -> str:
        """Stop a job, and return a sentence about the result. `who`: the user who stops it."""
        ...

    def held_nodes(self) -> Sequence[HeldRemoteNode]:
        """Return the nodes that jobs block for other jobs, by name."""
        ...

    def release(self, node: str) -> HeldRemoteNode | None:
        """Unblock a node. Return the hold that it had, or None."""
        ...
