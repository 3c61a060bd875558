"""Jobs in a cluster, seen and stopped from outside it: `jobs`, `show`, `logs`, `stop`, `devices` and `release`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model.decisions import JobReport
from holdfast.model.noun_base import Noun


class RemoteLine(Noun, frozen=True, kw_only=True):
    """A line of a pod's log."""

    pod: str
    #: When it came, in seconds since the epoch, by the clock of its node.
    at: float | None
    role: str = ""
    #: The worker whose line it is; None: one of holdfast's own.
    rank: int | None = None
    #: As it is in the log, with its end.
    whole: bytes
    #: Without its worker in front, and without its end.
    text: bytes


class RemoteLineFilter(Noun, frozen=True, kw_only=True):
    """Which lines are wanted."""

    rank: int | None = None
    since: float | None = None
    #: In seconds since the epoch; a line of that moment itself is not meant.
    until: float | None = None
    #: A search in the text of a line.
    fits: Callable[[bytes], object] | None = None
    #: So many last ones of each pod.
    tail: int | None = None

    @property
    def all(self) -> bool:
        """Each line of a pod's log is wanted, or each of the last ones."""
        return self.rank is None and self.since is None and self.until is None and self.fits is None


class RemotePod(Protocol):
    """What runs one node of a job, or its owner."""

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> str:
        """The machine; empty: none yet."""
        ...

    @property
    def phase(self) -> str: ...


class RemoteJob(Protocol):
    """A job, as its cluster's records have it."""

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
        """Seconds since the epoch."""
        ...

    @property
    def ended(self) -> float | None: ...

    @property
    def code(self) -> int | None: ...

    @property
    def phrase(self) -> str: ...

    @property
    def said(self) -> str:
        """Why it has ended, or why it waits."""
        ...

    @property
    def owner(self) -> RemotePod | None: ...

    @property
    def pods(self) -> Sequence[RemotePod]: ...

    @property
    def nodes(self) -> int:
        """How many pods it is to have; 0: unknown."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def attempt(self) -> int:
        """The last one that its owner has written down; 0: none yet."""
        ...


class RemoteEvent(Protocol):
    """An event of a job in its cluster's records."""

    @property
    def at(self) -> float: ...

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


class RemoteJobView(Protocol):
    """One job, with all that its cluster knows."""

    @property
    def job(self) -> RemoteJob: ...

    @property
    def title(self) -> str:
        """The name of the job itself, which that of its objects may differ from; empty: unknown."""
        ...

    @property
    def over(self) -> bool: ...

    @property
    def placement(self) -> str:
        """What places its pods at once."""
        ...

    @property
    def report(self) -> JobReport | None:
        """Once it is over."""
        ...

    @property
    def events(self) -> Sequence[RemoteEvent]: ...

    @property
    def pods(self) -> Sequence[tuple[str, str, str]]:
        """The last pod of each node: its name, its machine, its state in words."""
        ...

    @property
    def delete_command(self) -> str:
        """What a person types to delete the objects of a job that is over."""
        ...


class HeldRemoteNode(Protocol):
    """A node that a job keeps other jobs from."""

    @property
    def node(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def since(self) -> str: ...


class RemoteJobs(Protocol):
    """The jobs of one cluster. `namespace`: None: the user's own. Each method raises `BadUsage` and HoldfastError."""

    def jobs(self, namespace: str | None) -> tuple[Sequence[RemoteJob], str]:
        """The jobs of a namespace, the newest first, and the name of the namespace."""
        ...

    def look(self, namespace: str | None, name: str) -> RemoteJobView:
        """One job."""
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
        """Pass the lines of a job's pods to `out`."""
        ...

    def stop(
        self, namespace: str | None, name: str, *, reason: str, solution: str, phrase: str, code: int | None, who: str
    ) -> str:
        """Stop a job. Returns a sentence about the result."""
        ...

    def held_nodes(self) -> Sequence[HeldRemoteNode]:
        """The nodes that jobs keep other jobs from, by name."""
        ...

    def release(self, node: str) -> HeldRemoteNode | None:
        """Give a node back; the hold that it had, or None."""
        ...
