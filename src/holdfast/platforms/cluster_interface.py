"""What a job may ask of the cluster that it runs in. A cluster has nodes; a host (`act/host.py`) runs processes on one.

Each answer says what will happen, not what has happened: a cluster may take minutes, and reports as nodes come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.job_spec import NodeInfo


class Cluster(Protocol):
    """`reason` is one sentence for the cluster's administrators."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes that this job may use now."""
        ...

    def replace(self, node: str, reason: str) -> bool:
        """Ask for another node in place of this one. False: none will come."""
        ...

    def fence(self, node: str, reason: str) -> bool:
        """Make sure that no process of the job lives on a silent node. False: the cluster cannot know."""
        ...

    def hold(self, names: Sequence[str], reason: str) -> bool:
        """Place no job on these nodes or devices (cordon, drain). False: the cluster cannot keep jobs out."""
        ...

    def release(self, names: Sequence[str], reason: str) -> bool:
        """End a hold. False: the cluster knows of none."""
        ...

    def requeue(self, reason: str) -> bool:
        """Start the whole job again once this one has ended, on other nodes if necessary. False: it will not start."""
        ...
