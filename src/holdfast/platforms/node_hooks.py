"""The interface for a platform's node checks, run by its hooks before and between jobs: `holdfast check --slurm`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.model.noun_base import Noun


class CheckBusy(Exception):
    """Another check of this node is running."""


class NodeTreatment(Noun, frozen=True, kw_only=True):
    """The action taken on a node after its check, or the action it would take."""

    node: str
    #: The action: `nothing`, `drain` or `resume`.
    doing: str = "nothing"
    #: The platform has carried out the action.
    done: bool = False
    #: The result in one sentence; empty: there was nothing to do.
    said: str = ""
    #: The shell command for the action.
    command: str = ""


class NodeHooks(Protocol):
    """A platform's hooks that check its nodes."""

    @property
    def checks(self) -> Sequence[str]:
        """Names of the checks that run by default."""
        ...

    @property
    def limit_s(self) -> float:
        """Time limit for all checks together, in seconds."""
        ...

    def furnish(self, environ: MutableMapping[str, str], conf: str | None) -> str:
        """Set the variables that the platform's hooks leave out, and return the configuration file used.

        `conf`: the platform's configuration file from the command line.
        """
        ...

    def by_hand(self, environ: Mapping[str, str]) -> bool:
        """Whether a person runs the check, and not a hook."""
        ...

    def waits(self, environ: Mapping[str, str]) -> bool:
        """Whether a job waits for this check."""
        ...

    def alone(self, node: str, *, waits: bool) -> AbstractContextManager[None]:
        """Return a context in which no other check of this node runs.

        If one runs now: wait for its end if `waits`; otherwise raise `CheckBusy`.
        """
        ...

    def told_by_jobs(self, node: str, users: Collection[int] | None) -> list[str]:
        """Return one sentence for each device of the node that jobs of these users hold. None: jobs of all users."""
        ...

    def tend(self, node: str, troubles: Sequence[str], *, drains: bool, gives_back: bool) -> NodeTreatment:
        """Drain the node for its troubles, or end a drain. `drains` and `gives_back` permit the two actions."""
        ...

    def after_release(self, node: str, device: str, environ: MutableMapping[str, str]) -> str:
        """Called when `device` was released and every device of the node is healthy again: end holdfast's drain of the
        node if `device` was its reason.

        Return a sentence about the result, or an empty string.
        """
        ...
