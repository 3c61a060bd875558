"""`holdfast release`: gives a held device back to work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster
from holdfast.cli.job_access.remote_owner import job_options, node_of_job, run_verb
from holdfast.cli.options.fault_options import named, open_fault_log, policy_from, policy_options
from holdfast.cli.options.shared_options import utc_option
from holdfast.cli.output.printing import print_line

if TYPE_CHECKING:
    from holdfast.platforms.remote_jobs import RemoteJobs


@click.command()
@click.argument("device")
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why the device may be used again; recorded with user and time."
)
@job_options
@click.option("--platform", metavar="NAME", help="kubernetes: DEVICE is a node of the cluster that a job has tainted.")
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --job, one for each node.")
@policy_options
def command(
    device: str,
    reason: str,
    as_json: bool,
    job: str | None,
    on_node: str,
    platform: str | None,
    fault_codes: str | None,
    fault_rules: str | None,
) -> None:
    """Allow jobs to use a held DEVICE again. User, time and reason are recorded, and its counts restart at zero."""
    import os
    import socket
    import time

    from holdfast.cli.options.shared_options import home
    from holdfast.errors import BadUsage
    from holdfast.model.faults import Standing
    from holdfast.node.devices.fault_commands import notify_all, publish, user_name
    from holdfast.platforms.platform_registry import all_node_hooks, node_called
    from holdfast.record.database import FILE_NAME

    if not reason.strip():
        raise BadUsage("--reason is empty; why the device may work again was expected", hint="holdfast devices")
    if (cluster := in_cluster(platform, None)) is not None:
        _of_a_cluster(cluster, device, reason, as_json)
        return
    if job is not None:
        from holdfast.owner.nodes.operator_client import Verb

        note, where = node_of_job(job)
        words = [device, "--reason", reason, *(["--json"] if as_json else [])]
        print_line(run_verb(note, where, Verb.RELEASE, words, node=on_node))
        return
    policy = policy_from(fault_codes, fault_rules)
    if not (home() / FILE_NAME).exists():
        raise BadUsage(f"no device `{device}` is known here", hint="holdfast devices")
    now = time.time()
    with open_fault_log(policy, now, writable=True, keep=not named(fault_codes, fault_rules)) as log:
        before = log.standing(device)
        if device in log.engine.devices and not log.engine.reasons(device) and not log.engine.counts(device):
            said = f"{device} is {before.standing}, not HELD: only a person's release ends HELD ({before.reason})"
            if before.standing is Standing.HEALTHY:
                said = f"{device} is HEALTHY: there is nothing to release"
            _tell([said], as_json, device, before.node, before.standing, before.standing, released=False)
            return
        log.release(device, user_name(), reason, now)
        after = log.standing(device)
        momentary = not log.engine.lasts(device) and log.engine.level(device) is not None
        node = before.node or node_called(os.environ) or socket.gethostname().partition(".")[0]
        left = [each for each in log.standings() if log.engine.lasts(each.device) and each.node in ("", node)]
        publish(node, left)
    notify_all(home())
    free = all(each.standing is Standing.HEALTHY for each in left)
    if before.standing is Standing.HEALTHY:
        lines = [f"{device} was not HELD; its counting begins again from zero, noted by {user_name()}: {reason}"]
        _tell(lines, as_json, device, node, before.standing, after.standing, released=True)
        return
    lines = [f"{device}: {before.standing} → {after.standing}, released by {user_name()}: {reason}"]
    if momentary:
        lines.append("    its fault was momentary: nothing of it lasts")
    elif after.standing is not Standing.HEALTHY:
        stays = "it was not HELD, and its fault is not over: only its counting begins again from zero"
        lines.append(f"    {stays}" if after.standing is before.standing else "    its fault is not over")
        lines.append(f"    {after.reason}")
    if free:
        lines += filter(None, (hooks.after_release(node, device, os.environ) for hooks in all_node_hooks()))
    _tell(lines, as_json, device, node, before.standing, after.standing, released=True)


def _tell(lines: list[str], as_json: bool, device: str, node: str, before: str, after: str, *, released: bool) -> None:
    if as_json:
        # `pretty` would write several lines, but for a job over several nodes each node's output must be one line
        import json

        moved = {"before": before, "after": after, "released": released, "message": "\n".join(lines)}
        print_line(json.dumps({"schema": "holdfast.released/1", "device": device, "node": node, **moved}))
    else:
        print_line("\n".join(lines))


def _of_a_cluster(cluster: RemoteJobs, node: str, reason: str, as_json: bool) -> None:
    from holdfast.report.terminal_text import harmless

    was = cluster.release(node)
    if was is None:
        lines = [f"node {node} is not tainted by holdfast: there is nothing to release"]
        _tell(lines, as_json, node, node, "HEALTHY", "HEALTHY", released=False)
        return
    lines = [f"node {node}: its taint is gone, and new pods may be placed there: {reason}"]
    if was.reason:
        lines.append(f"    it was held: {harmless(was.reason)}")
    _tell(lines, as_json, node, node, "HELD", "HEALTHY", released=True)
