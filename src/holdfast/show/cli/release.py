"""`holdfast release`: a held device goes back to work."""

from __future__ import annotations

import click

from holdfast.show.cli._elsewhere import job_options, node_of_job, run_verb
from holdfast.show.cli._faults import named, open_fault_log, policy_from, policy_options
from holdfast.show.cli._out import tell


@click.command()
@click.argument("device")
@click.option("--reason", required=True, metavar="TEXT", help="Why it may work again; kept with who and when.")
@job_options
@policy_options
def command(
    device: str, reason: str, job: str | None, on_node: str, fault_codes: str | None, fault_rules: str | None
) -> None:
    """Give a held DEVICE back to work. Who, when and why are kept; its counting begins again from zero."""
    import os
    import socket
    import time

    from holdfast.errors import BadUsage
    from holdfast.loop.faults import notify_all, publish, user_name
    from holdfast.loop.slurm.node_health import after_release
    from holdfast.model.faults import Standing
    from holdfast.record.database import FILE_NAME
    from holdfast.show.cli._options import home

    if not reason.strip():
        raise BadUsage("--reason is empty; why the device may work again was expected", hint="holdfast devices")
    if job is not None:
        from holdfast.loop.nodes.operator import Verb

        note, where = node_of_job(job)
        tell(run_verb(note, where, Verb.RELEASE, [device, "--reason", reason], node=on_node))
        return
    policy = policy_from(fault_codes, fault_rules)
    if not (home() / FILE_NAME).exists():
        raise BadUsage(f"no device `{device}` is known here", hint="holdfast devices")
    now = time.time()
    with open_fault_log(policy, now, writable=True, keep=not named(fault_codes, fault_rules)) as log:
        before = log.standing(device)
        if device in log.engine.devices and not log.engine.reasons(device) and not log.engine.counts(device):
            if before.standing is Standing.HEALTHY:
                tell(f"{device} is HEALTHY: there is nothing to release")
            else:
                tell(f"{device} is not held; it is {before.standing} ({before.reason})")
            return
        log.release(device, user_name(), reason, now)
        after = log.standing(device)
        lasts = log.engine.lasts(device)
        node = before.node or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
        left = [each for each in log.standings() if log.engine.lasts(each.device) and each.node in ("", node)]
        publish(node, left)
    notify_all(home())
    free = all(each.standing is Standing.HEALTHY for each in left)
    if before.standing is Standing.HEALTHY:
        tell(f"{device} was not held; its counting begins again from zero, noted by {user_name()}: {reason}")
        return
    now_stands = after.standing if lasts else Standing.HEALTHY
    tell(f"{device}: {before.standing} → {now_stands}, released by {user_name()}: {reason}")
    if not lasts and after.standing is not Standing.HEALTHY:
        tell("    its fault was momentary: nothing of it lasts")
    elif after.standing is not Standing.HEALTHY:
        stays = "it was not held, and its fault is not over: only its counting begins again from zero"
        tell(f"    {stays}" if after.standing is before.standing else "    its fault is not over")
        tell(f"    {after.reason}")
    if free and (said := after_release(node, device, os.environ)):
        tell(said)
