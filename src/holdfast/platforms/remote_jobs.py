"""The interface to jobs in a cluster from outside it, for `jobs`, `show`, `logs`, `stop`, `devices` and `release`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model.decisions import JobReport
from holdfast.model.noun_base import Noun


class RemoteLine(Noun, frozen=True, kw_only=True):
    """One line of a pod's log."""

    pod: str
    #: Time of the line on its node's clock, in seconds since the epoch.
    at: float | None
    role: str = ""
    #: Rank of the worker that printed the line; None if holdfast printed it.
    rank: int | None = None
    #: The whole line as the log has it, with its line end.
    whole: bytes
    #: The text of the line, without the worker's prefix and the line end.
    text: bytes


class RemoteLineFilter(Noun, frozen=True, kw_only=True):
    """Selects lines of a job's logs."""

    rank: int | None = None
    since: float | None = None
    #: Only lines before this time are kept, in seconds since the epoch.
    until: float | None = None
    #: Called with a line's text. If the result is false, the line is dropped.
    fits: Callable[[bytes], object] | None = None
    #: Number of last lines to keep for each pod; None: all.
    tail: int | None = None

    @property
    def all(self) -> bool:
        """Whether the filter keeps every line, because only `tail` may be set."""
        return self.rank is None and self.since is None and self.until is None and self.fits is None


class RemotePod(Protocol):
    """A pod of a job: the owner's pod, or the pod of a node."""

    @property
    def name(self) -> str: ...

    @property
    def node(self) -> str:
        """Name of the machine; empty if the pod has no machine yet."""
        ...

    @property
    def phase(self) -> str: ...


class RemoteJob(Protocol):
    """One job, as the cluster's records describe it."""

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
        """Why the job has ended, or why it waits, as a clause."""
        ...

    @property
    def owner(self) -> RemotePod | None: ...

    @property
    def pods(self) -> Sequence[RemotePod]: ...

    @property
    def nodes(self) -> int:
        """Number of pods that the job should have; 0 if unknown."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def attempt(self) -> int:
        """Number of the last attempt that the owner has recorded; 0 if it has recorded none."""
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
    """One job, with all details that the cluster has."""

    @property
    def job(self) -> RemoteJob: ...

    @property
    def title(self) -> str:
        """The job's name as the user wrote it; empty if unknown. It may differ from the name of the job's objects."""
        ...

    @property
    def over(self) -> bool: ...

    @property
    def placement(self) -> str:
        """Describes how the job's pods are placed."""
        ...

    @property
    def report(self) -> JobReport | None:
        """The final report; None if the job has not ended."""
        ...

    @property
    def events(self) -> Sequence[RemoteEvent]: ...

    @property
    def pods(self) -> Sequence[tuple[str, str, str]]:
        """The newest pod of each node, as (pod name, machine, state as text)."""
        ...

    @property
    def delete_command(self) -> str:
        """The shell command that deletes the objects of an ended job."""
        ...


class HeldRemoteNode(Protocol):
    """A node on which a job has blocked further jobs."""

    @property
    def node(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def since(self) -> str: ...


class RemoteJobs(Protocol):
    """Reads and stops the jobs of one cluster. `namespace`: None means the user's own namespace.

    Each method raises `BadUsage` if the job or node does not exist, and HoldfastError if the cluster does not answer.
    """

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
        """Pass each selected log line of a job's pods to `out`.

        `wanted`: selects the lines. `say`: prints a message. `following`: also pass new lines until the job ends.
        """
        ...

    def stop(
        self, namespace: str | None, name: str, *, reason: str, solution: str, phrase: str, code: int | None, who: str
    ) -> str:
        """Stop a job, and return a sentence about the result.

        The job's report names as the cause: `phrase` (failure class), `code` (final code), `reason`, and `solution`
        (advice). `who`: the user who stops the job.
        """
        ...

    def held_nodes(self) -> Sequence[HeldRemoteNode]:
        """Return the nodes on which jobs have blocked further jobs, sorted by name."""
        ...

    def release(self, node: str) -> HeldRemoteNode | None:
        """Let jobs use a blocked node again. Return the data of the removed block; None if the node was not blocked."""
        ...


def typed_outside(command: str, *, job: str, name: str, where: str) -> str:
    """Return a command of a report as it can be typed outside of the platform, where the job has another name.

    `job`: the job's id in its own state directory.
    `name`: its name on the platform.
    `where`: the options that name the platform, such as `--platform kubernetes -n ml`. A pod has one log of all
        attempts, so `--attempt` is dropped.
    """
    words = command.split()
    if job not in words:
        return command
    if words[0].startswith("HOLDFAST_HOME="):
        del words[0]
    if "--attempt" in words:
        at = words.index("--attempt")
        del words[at : at + 2]
    words[words.index(job)] = f"{name} {where}"
    return " ".join(words)
