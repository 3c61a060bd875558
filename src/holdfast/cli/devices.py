"""`holdfast devices`: shows the standing of every device, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.job_access.cluster_jobs import in_cluster
from holdfast.cli.job_access.remote_owner import job_options, node_of_job, run_verb
from holdfast.cli.options.fault_options import named, open_fault_log, policy_from, policy_options
from holdfast.cli.options.shared_options import utc_option, zone_words
from holdfast.cli.output.printing import print_line
from holdfast.model.noun_base import Noun
from holdfast.untrusted import json_as

if TYPE_CHECKING:
    from holdfast.platforms.remote_jobs import RemoteJobs


class _OfNode(Noun, frozen=True, kw_only=True):
    """The output of `holdfast devices` on another node. Older versions of holdfast send no `schema`."""

    devices: tuple[object, ...]


@click.command()
@utc_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object with a list of `devices`.")
@job_options
@click.option("--platform", metavar="NAME", help="kubernetes: the nodes of the cluster that jobs have tainted.")
@policy_options
def command(
    as_json: bool, job: str | None, on_node: str, platform: str | None, fault_codes: str | None, fault_rules: str | None
) -> None:
    """Show every device and node: its standing, active codes, counts, since when, the reason, and what ends it."""
    import json
    import socket
    import time

    if (cluster := in_cluster(platform, None)) is not None:
        _of_a_cluster(cluster, as_json)
        return
    if job is not None:
        from holdfast.owner.nodes.operator_client import Verb

        note, where = node_of_job(job)
        text = run_verb(note, where, Verb.DEVICES, ["--json"] if as_json else zone_words(), node=on_node)
        if as_json:
            of_nodes = [json_as(line.encode(), _OfNode) for line in text.splitlines()]
            devices = [device for found in of_nodes for device in found.devices]
            text = json.dumps({"schema": "holdfast.devices/1", "devices": devices})
        print_line(text)
        return
    from holdfast.model.faults import is_verdict_of_a_check
    from holdfast.node.devices.fault_commands import list_devices

    now = time.time()
    policy, keep = policy_from(fault_codes, fault_rules), not named(fault_codes, fault_rules)
    with open_fault_log(policy, now, writable=False, keep=keep) as log:
        rows = [row for row in list_devices(log) if not is_verdict_of_a_check(tuple(map(str, row["codes"])))]
        refused = log.store.refused()
    here = socket.gethostname()
    for row in rows:
        row["node"] = row["node"] or here
    if as_json:
        keys = ("device", "node", "standing", "codes", "since", "reason")
        print_line(
            json.dumps({"schema": "holdfast.devices/1", "devices": [{key: row[key] for key in keys} for row in rows]})
        )
        return
    if not rows:
        print_line("No device is known here: none is present, and none was ever reported.")
    for row in rows:
        print_line(_line(row))
        if row["reason"]:
            print_line(f"    {row['reason']}{_since(row['since'], now)}")
        if row["counted"]:
            print_line("    counted so far: " + "; ".join(row["counted"]))
    if refused:
        total = sum(refused.values())
        why = ", ".join(f"{count} {reason}" for reason, count in refused.items())
        print_line(f"{total} event{'s were' if total != 1 else ' was'} refused so far: {why}", err=True)


def _line(row: dict[str, object]) -> str:
    codes = row["codes"]
    shown = f"  {' '.join(codes)}" if isinstance(codes, list) and codes else ""
    return f"{row['device']!s:<12} {row['standing']!s:<9} {row['node']}{shown}"


def _since(since: object, now: float) -> str:
    from holdfast.record.local_time import ago, clock

    return f" (since {clock(since)}, {ago(since, now)})" if isinstance(since, float) and since > 0 else ""


def _of_a_cluster(cluster: RemoteJobs, as_json: bool) -> None:
    """Print the nodes of a cluster that jobs have tainted."""
    from holdfast.report.report_json import pretty
    from holdfast.report.terminal_text import harmless

    found = cluster.held_nodes()
    if as_json:
        nodes = [{"node": each.node, "job": each.job, "reason": each.reason, "since": each.since} for each in found]
        print_line(pretty({"schema": "holdfast.held_nodes/1", "nodes": nodes}))
        return
    if not found:
        print_line("No node of the cluster is tainted by holdfast.")
    for each in found:
        print_line(f"{each.node} HELD, found by job {harmless(each.job)}")
        print_line(f"    {harmless(each.reason)}")
        print_line(f"    once it is repaired: holdfast release {each.node} --platform kubernetes --reason TEXT")
