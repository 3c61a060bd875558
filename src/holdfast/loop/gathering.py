"""What a node knows of an attempt that has drained there: logs, memory kills, kernel lines, faults, surroundings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.loop.masked import without_secrets
from holdfast.loop.workplace import surroundings_of
from holdfast.model import events as ev
from holdfast.model.evidence import AttemptEvidence, MemoryKill
from holdfast.model.exits import Evidence
from holdfast.observe.memory import MemoryWatch

if TYPE_CHECKING:
    from holdfast.act.cgroups import Groups
    from holdfast.act.store.host import Store
    from holdfast.decide.view import GangView
    from holdfast.loop.desk import SignalDesk
    from holdfast.loop.devices.station import FaultStation
    from holdfast.loop.order import Launch
    from holdfast.loop.saving import Saving
    from holdfast.model.actions import CollectEvidence
    from holdfast.observe.kernel_log import KernelLog
    from holdfast.observe.output import Pump


class Gathering:
    """Reads what the stations of a node have seen of one attempt."""

    def __init__(
        self,
        launch: Launch,
        logs: Path,
        node: str,
        *,
        pump: Pump,
        groups: Groups,
        kernel: KernelLog,
        store: Store | None,
        desk: SignalDesk,
        saving: Saving,
        faults: FaultStation,
        say: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._logs = logs
        self._node = node
        self._pump = pump
        self._groups = groups
        self._kernel = kernel
        self._store = store
        self._desk = desk
        self._saving = saving
        self._faults = faults
        self._say = say
        self._memory: MemoryWatch | None = None
        self._since = 0.0
        self.last = AttemptEvidence()
        """What the last attempt was explained from, with its logs."""

    def begin(self) -> None:
        """An attempt is being prepared: what the counters of memory kills say now is where it begins."""
        self._memory = MemoryWatch(self._groups.container, self._kernel)

    def collected(self, order: CollectEvidence, view: GangView, now: float) -> list[ev.Event]:
        """The answer to `order`, after the faults that are read only now."""
        self._since = view.started_at
        try:
            evidence = self._collect(order.evidence, view.completed)
            found = [] if view.completed else self._faults.last_words(now)
            if not view.completed:
                evidence = self._faults.complete(evidence, self._since, now)
        except Exception as error:  # a bug in reading logs must cost neither the report nor the next attempt
            self._say(f"a bug of holdfast: evidence is incomplete: {type(error).__name__}: {error}")
            found, evidence = [], order.evidence
        self.last = evidence
        if not view.completed:
            from holdfast.explain import read_workers  # no start needs it

            # Logs stay on their node: what travels, and is journaled, is what their words say.
            evidence = read_workers(without_secrets(evidence), self._launch.catalogue)
        return [*found, ev.EvidenceCollected(attempt=order.attempt, evidence=evidence, cause=order.cause)]

    def _collect(self, known: AttemptEvidence, completed: bool) -> AttemptEvidence:
        from holdfast.loop.evidence import Collector  # no start needs it

        collector = Collector(
            self._logs,
            first_output_at=self._pump.first_output_at,
            last_output_at=self._pump.last_output_at,
            memory_kills=self._memory_kills,
            kernel_lines=self._kernel_lines,
            store_trouble=self._store.trouble if self._store is not None else lambda attempt: "",
        )
        evidence = collector.collect(known, completed, self._since)
        if completed:
            return evidence
        return replace(
            evidence,
            passed_on=self._desk.passed_on(self._since),
            surroundings=surroundings_of(evidence, self._launch),
            checkpoints=self._saving.finished(),
        )

    def _memory_kills(self, evidence: AttemptEvidence) -> tuple[MemoryKill, ...]:
        groups = self._groups.memory_groups(evidence.attempt)
        assert self._memory is not None, "whatever ended was prepared"
        kills = self._memory.kills(_pids_of(evidence), self._since, groups)
        self._groups.remove()
        return tuple(replace(kill, node=self._node) for kill in kills)

    def _kernel_lines(self, evidence: AttemptEvidence) -> tuple[Evidence, ...]:
        pids = frozenset(pid for known in _pids_of(evidence).values() for pid in known)
        lines = self._kernel.lines(self._since, pids=pids)
        return tuple(replace(line, node=self._node) for line in lines)


def _pids_of(evidence: AttemptEvidence) -> dict[int, frozenset[int]]:
    return {
        worker.rank: frozenset({worker.exit.pid})
        for worker in evidence.workers
        if worker.exit is not None and worker.exit.pid is not None
    }
