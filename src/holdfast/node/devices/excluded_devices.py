"""Reads from the fault log which devices of this machine are excluded. The pre-check of standings calls it, forked."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.faults import DeviceStanding, Standing, is_verdict_of_a_check
from holdfast.record.database import FILE_NAME
from holdfast.record.device_standings import RowKind, Standings
from holdfast.untrusted import Malformed, json_as


def kept_out(home: str, node: str, now: float) -> tuple[DeviceStanding, ...]:
    """Return this node's devices that may take no new work, judged by the latest rules.

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
        return ()  # rules without a fault exclude no device
    # Load the engine only on a machine that has noted a fault.
    from holdfast.decide.faults.fault_policy import Policy
    from holdfast.node.devices.fault_log import FaultLog
    from holdfast.node.devices.policy_files import load_policy

    policies = [row.body for row in rows if row.kind is RowKind.POLICY]
    try:
        policy = json_as(policies[-1], Policy) if policies else load_policy(None, None).policy
    except Malformed:
        policy = load_policy(None, None).policy  # the log has the rules of another version
    with FaultLog(Path(home), policy, now, writable=False) as log:
        # A fault that was over at once does not exclude the device: it may be how the last job died.
        found = [each for each in log.standings() if log.engine.lasts(each.device)]
    return tuple(
        each
        for each in found
        if each.standing is not Standing.HEALTHY and each.node in ("", node) and not is_verdict_of_a_check(each.codes)
    )
