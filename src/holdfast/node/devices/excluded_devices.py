"""What this machine remembers against its devices, for the check of standings. Read where the check runs: forked."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.faults import DeviceStanding, Standing, is_verdict_of_a_check
from holdfast.record.database import FILE_NAME
from holdfast.untrusted import Malformed, json_as


def kept_out(home: str, node: str, now: float) -> tuple[DeviceStanding, ...]:
    """Devices of this node that may take no new work, judged by the rules that were in force last.

    Raises `StandingsUnusable` where the state directory cannot be read.
    """
    if not home or not (Path(home) / FILE_NAME).exists():
        return ()
    from holdfast.record.device_standings import RowKind, Standings

    store = Standings.for_reading(Path(home))
    try:
        rows = list(store.after(0))
    finally:
        store.close()
    if all(row.kind is RowKind.POLICY for row in rows):
        return ()  # rules without a fault hold nothing against anybody
    # Only a machine that has noted a fault pays for loading the engine.
    from holdfast.decide.faults.fault_policy import Policy
    from holdfast.node.devices.fault_log import FaultLog
    from holdfast.node.devices.policy_files import load_policy

    policies = [row.body for row in rows if row.kind is RowKind.POLICY]
    try:
        policy = json_as(policies[-1], Policy) if policies else load_policy(None, None).policy
    except Malformed:
        policy = load_policy(None, None).policy  # of another version
    with FaultLog(Path(home), policy, now, writable=False) as log:
        # A moment that is just over holds nothing against the next job: it may be how the last one died.
        found = [each for each in log.standings() if log.engine.lasts(each.device)]
    return tuple(
        each
        for each in found
        if each.standing is not Standing.HEALTHY and each.node in ("", node) and not is_verdict_of_a_check(each.codes)
    )
