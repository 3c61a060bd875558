"""Counters about devices: faults in the fault log, and resets. Both only increase."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.decide.faults.compiled_rules import asked_for
from holdfast.decide.faults.fault_policy import Policy
from holdfast.metrics import metric_table as m
from holdfast.metrics.job_totals import LabelNames
from holdfast.metrics.samples import Samples
from holdfast.model.faults import Assertion, FaultEvent, Remedy
from holdfast.record.device_standings import RowKind, Standings, StandingsUnusable
from holdfast.untrusted import Malformed, json_as


def count_devices(home: Path, kept_seq: int, into: Samples, nodes: LabelNames) -> None:
    """Count the faults that began after entry `kept_seq` of the fault log, and all resets. `into`: receives the values.
    `nodes`: the names of nodes that may be label values.
    """
    try:
        count_faults(home, kept_seq, None, into, nodes)
        for node, device, result, count in _resets(home):
            into.add(m.RESETS, float(count), nodes.label(node), device, result)
    except StandingsUnusable:
        return  # `holdfast devices` reports why the fault log cannot be read


def count_faults(home: Path, after: int, before: float | None, into: Samples, nodes: LabelNames) -> int:
    """Count faults that come after entry `after` of the log and are older than `before` (seconds since the epoch).

    Return the number of the last entry that was read. Raises `StandingsUnusable`. `into`: receives the values. `nodes`:
    the names of nodes that may be label values.
    """
    here, seq = os.uname().nodename, after
    levels: dict[str, Remedy] = {}
    store = Standings.for_reading(home)
    try:
        # Read from entry 0, because the policy that applies may be older than the entries to count.
        for row in store.after(0):
            if before is not None and row.now >= before:
                break
            seq = max(seq, row.seq)
            try:
                if row.kind is RowKind.POLICY:
                    levels = dict(json_as(row.body, Policy).levels)
                if row.kind is not RowKind.EVENT or row.seq <= after:
                    continue
                event = json_as(row.body, FaultEvent)
            except Malformed:
                continue
            if event.assertion is not Assertion.RECOVER:
                code, remedy = asked_for(event, levels)
                into.add(m.FAULTS, 1.0, nodes.label(event.node or here), event.device, code, remedy.name.lower())
    finally:
        store.close()
    return seq


def _resets(home: Path) -> list[tuple[str, str, str, int]]:
    store = Standings.for_reading(home)
    try:
        return store.reset_counts()
    finally:
        store.close()
