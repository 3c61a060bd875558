"""The hooks with which a platform checks its nodes before and between jobs, for `holdfast check --slurm`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.model.noun_base import Noun


class CheckBusy(Exception):
    """Another check of this node is already running."""


class NodeTreatment(Noun, frozen=True, kw_only=True):
    """The action that follows a node's check. holdfast has carried it out, or only proposes it."""

    node: str
    #: Name of the action: `nothing`, `drain` or `resume`.
    doing: str = "nothing"
    #: Whether the platform has carried out the action.
    done: bool = False
    #: The result in one sentence; empty if nothing had to be done.
    said: str = ""
    #: The shell command that carries out the action.
    command: str = ""


class NodeHooks(Protocol):
    """The hooks with which a platform checks its nodes."""

    @property
    def checks(self) -> Sequence[str]:
        """The names of the checks that run by default."""
        ...

    @property
    def limit_s(self) -> float:
        """Time limit for all checks together, in seconds."""
        ...

    def furnish(self, environ: MutableMapping[str, str], conf: str | None) -> str:
        """Set environment variables that the platform's hooks lack. Return the path of the configuration file in use.

        `conf`: the platform's configuration file from the command line.
        """
        ...

    def by_hand(self, environ: Mapping[str, str]) -> bool:
        """Whether a person, instead of a hook, runs this check."""
        ...

    def waits(self, environ: Mapping[str, str]) -> bool:
        """Whether a job waits for the end of this check."""
        ...

    def alone(self, node: str, *, waits: bool) -> AbstractContextManager[None]:
        """Return a context in which no other check of this node runs.

        If another check runs now, wait for its end if `waits` is true. Otherwise raise `CheckBusy`.
        """
        ...

    def told_by_jobs(self, node: str, users: Collection[int] | None) -> list[str]:
        """Return one sentence for each device of the node that jobs have blocked because of a fault.

        `users`: count only jobs of these user ids; None: jobs of all users.
        """
        ...

    def tend(self, node: str, troubles: Sequence[str], *, drains: bool, gives_back: bool) -> NodeTreatment:
        """Drain the node if it has troubles, or resume it if holdfast has drained it before.

        `troubles`: messages of failed checks. `drains` permits a drain, and `gives_back` permits a resume.
        """
        ...

    def after_release(self, node: str, device: str, environ: MutableMapping[str, str]) -> str:
        """Resume the node if holdfast has drained it because of `device`. Return a sentence about the result, or "".

        This is called after `device` was released, when every device of the node is healthy again.
        """
        ...
