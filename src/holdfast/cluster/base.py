"""What a job may ask of the cluster that it runs in. A cluster has nodes; a host (`act/host.py`) runs processes on one.

Each answer says what will happen, not that it has: a cluster may take minutes, and tells of nodes that come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.jobs import NodeInfo


class Cluster(Protocol):
    """`reason` is one sentence for the people who look after the cluster."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes that this job may use now."""
        ...

    def replace(self, node: str, reason: str) -> bool:
        """Ask for another node in this one's place. False: none will come."""
        ...

    def fence(self, node: str, reason: str) -> bool:
        """Make sure that no process of the job lives on a node that is silent. False: the cluster cannot know."""
        ...

    def hold(self, names: Sequence[str], reason: str) -> bool:
        """Have no job placed on these nodes or devices (cordon, drain). False: the cluster cannot keep jobs out."""
        ...

    def release(self, names: Sequence[str], reason: str) -> bool:
        """Take a hold back. False: the cluster knows of none."""
        ...

    def requeue(self, reason: str) -> bool:
        """Have the whole job started again, elsewhere if need be, once this one has ended. False: it will not be."""
        ...
