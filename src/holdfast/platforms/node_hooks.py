"""A node's check by its platform's hooks, before jobs and between them: `holdfast check --slurm`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.model.noun_base import Noun


class CheckBusy(Exception):
    """Another check of this node runs."""


class NodeTreatment(Noun, frozen=True, kw_only=True):
    """What was done with the node, or what it would take."""

    node: str
    #: `nothing`, `drain` or `resume`.
    doing: str = "nothing"
    #: The platform has done it.
    done: bool = False
    #: One sentence; empty: nothing needed to be done.
    said: str = ""
    #: What does it, as a person would type it.
    command: str = ""


class NodeHooks(Protocol):
    """How a platform has its nodes checked."""

    @property
    def checks(self) -> Sequence[str]:
        """The checks where none is chosen."""
        ...

    @property
    def limit_s(self) -> float:
        """The time for all checks together."""
        ...

    def furnish(self, environ: MutableMapping[str, str], conf: str | None) -> str:
        """Set what the platform's hooks leave out; `conf`: the platform's configuration file, as typed."""
        ...

    def by_hand(self, environ: Mapping[str, str]) -> bool:
        """A person runs the check, and no hook."""
        ...

    def waits(self, environ: Mapping[str, str]) -> bool:
        """A job waits for this check."""
        ...

    def alone(self, node: str, *, waits: bool) -> AbstractContextManager[None]:
        """No two checks of a node at once. Raises `CheckBusy`; `waits`: for the other one first."""
        ...

    def told_by_jobs(self, node: str, users: Collection[int] | None) -> list[str]:
        """Devices of the node that jobs of these users hold, a sentence each; None: of all users."""
        ...

    def tend(self, node: str, troubles: Sequence[str], *, drains: bool, gives_back: bool) -> NodeTreatment:
        """Drain the node for its troubles, or give it back, as far as the caller allows it."""
        ...

    def after_release(self, node: str, device: str, environ: MutableMapping[str, str]) -> str:
        """No device of the node is held any more: end a drain for this one. The result in words, or nothing."""
        ...
