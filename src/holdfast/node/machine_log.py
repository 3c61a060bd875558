"""Reads the machine's reports about an attempt's processes: memory kills (control group, kernel log) and
kernel lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model.evidence import AttemptEvidence, MemoryKill
from holdfast.model.exit_report import Evidence
from holdfast.observe.memory_watch import MemoryWatch

if TYPE_CHECKING:
    from holdfast.act.cgroups import ControlGroups
    from holdfast.observe.kernel_log import KernelLog


class MachineLog:
    """The machine log of one node. Each entry names the node, because two nodes may have processes with equal pids.

    `node`: this node's name. `groups`: the job's control groups. `kernel`: the kernel log.
    """

    def __init__(self, node: str, groups: ControlGroups, kernel: KernelLog) -> None:
        self._node = node
        self._groups = groups
        self._kernel = kernel
        self._memory: MemoryWatch | None = None

    def begin(self) -> None:
        """Store the present counters of memory kills: an attempt is being prepared."""
        self._memory = MemoryWatch(self._groups.container, self._kernel)

    def memory_kills(self, evidence: AttemptEvidence, since: float) -> tuple[MemoryKill, ...]:
        """Return the memory kills of the attempt's workers since `since`, and remove the attempt's control groups.

        An attempt that an earlier agent prepared has none: this agent did not read the counters at its start.
        """
        groups = self._groups.memory_groups(evidence.attempt)
        kills = () if self._memory is None else self._memory.kills(_pids_of(evidence), since, groups)
        self._groups.remove()
        return tuple(replace(kill, node=self._node) for kill in kills)

    def lines(self, evidence: AttemptEvidence, since: float) -> tuple[Evidence, ...]:
        """Return the kernel log's lines since `since` that name a worker's process or a device."""
        pids = frozenset(pid for known in _pids_of(evidence).values() for pid in known)
        lines = self._kernel.lines(since, pids=pids)
        return tuple(replace(line, node=self._node) for line in lines)


def _pids_of(evidence: AttemptEvidence) -> dict[int, frozenset[int]]:
    return {
        worker.rank: frozenset({worker.exit.pid})
        for worker in evidence.workers
        if worker.exit is not None and worker.exit.pid is not None
    }
