"""What the owner knows of a platform that runs its job: Slurm, Kubernetes. A job outside of one has none.

A platform watches the job from outside: it knows why a signal came, that a node is gone, when the time is over; and it
can start the job again. It answers with events, through the reactor, and never makes the owner wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.reactor import News


class Platform(Protocol):
    """One job as its platform sees it. `now`: seconds on the owner's clock. Each call answers with events that follow
    at once; those that need an answer of the platform come later, from the reactor."""

    def begin(self, now: float) -> News:
        """The owner is there, for the first time or again: begin to look."""
        ...

    def signalled(self, number: int, node: str, now: float) -> News:
        """A signal has reached the guard of a node. What it means follows as `StopRequested`, or nothing: the signal
        was meant for the workers, and they have it or get it."""
        ...

    def lost(self, node: str, now: float) -> News:
        """The gang has lost a node: what the platform says of it follows as `PlatformSaid`."""
        ...

    def requeue(self, reason: str, without: Sequence[str], done: Callable[[str, float], News]) -> None:
        """Have the job started again, without these nodes. `done` gets why it will not be, or nothing, once."""
        ...

    def hold(self, names: Sequence[str], reason: str) -> None:
        """Have no job placed on these nodes."""
        ...

    def close(self) -> None:
        """The job is over: look no more."""
        ...
