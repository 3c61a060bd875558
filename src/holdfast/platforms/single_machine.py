"""One machine and nothing else: the cluster of a job that a user started on it by hand."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.job_spec import NodeInfo


class SingleMachine:
    """A `Cluster`. It has no other node to give; the machine's own fault log has what it keeps out of use."""

    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def nodes(self) -> tuple[NodeInfo, ...]:
        return (self._node,)

    def replace(self, node: str, reason: str) -> bool:
        return False

    def fence(self, node: str, reason: str) -> bool:
        return False

    def hold(self, names: Sequence[str], reason: str) -> bool:
        return False

    def release(self, names: Sequence[str], reason: str) -> bool:
        return False

    def requeue(self, reason: str) -> bool:
        return False
