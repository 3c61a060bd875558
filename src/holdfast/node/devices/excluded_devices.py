"""Reads this machine's excluded devices from the fault log. The pre-check `standing`, which runs in a fork, uses this
too.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.model.faults import DeviceStanding, Standing, is_verdict_of_a_check
from holdfast.record.database import FILE_NAME
from holdfast.record.device_standings import RowKind, Standings


def kept_out(home: str, node: str, now: float) -> tuple[DeviceStanding, ...]:
    """Return this node's devices that may take no new work by the latest fault rules.

    Raises `StandingsUnusable` if the state directory cannot be read.
    """
    if not home or not (Path(home) / FILE_NAME).exists():
        return ()
    store = Standings.for_reading(Path(home))
    try:
        rows = list(store.after(0))
    finally:
        store.close()
    if all(row.kind is RowKind.POLICY for row in rows):
        return ()  # no device is excluded, because the log has no fault
    # imported late, because the fault engine is large and most machines have no faults
    from holdfast.node.devices.fault_log import judged_standings

    rules = [row.body for row in rows if row.kind is RowKind.POLICY]
    return tuple(
        each
        for each in judged_standings(Path(home), rules[-1] if rules else None, now)
        if each.standing is not Standing.HEALTHY and each.node in ("", node) and not is_verdict_of_a_check(each.codes)
    )
