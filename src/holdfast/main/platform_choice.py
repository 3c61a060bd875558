"""Whether a job stays on this machine or runs over many: options, a list of hosts, or an order decide."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadUsage
from holdfast.launch.torchrun_options import alone, named, node_range
from holdfast.settings.resolved_settings import Settings, SettingSource

if TYPE_CHECKING:
    from holdfast.launch.agent_launch import AgentJoin
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.settings.run_options import RunOptions

_OWNERS_POD = "HOLDFAST_KUBERNETES_JOB"


def over_machines(
    options: RunOptions,
    settings: Settings,
    job_of: Callable[[bool], JobFile],
    home: Path,
    joining: AgentJoin | None,
    guard_fd: int | None,
) -> tuple[JobFile, MultiNodeJob | None, str]:
    """The job; its plan over many nodes, or None; and notes about nodes that it will not have.

    `job_of` makes the job, for many nodes or for one. `guard_fd` is negative in the guard itself, to which the process
    under it hands the job back after it has looked at each listed host, before anything starts.
    """
    if joining is not None:
        from holdfast.launch.agent_launch import agent_launch_spec

        many = agent_launch_spec(options, settings, job_of(True), joining)
        return many.job, many, ""
    nodes = node_range(options)
    if _OWNERS_POD in os.environ:
        from holdfast.platforms.kubernetes.objects.pod_context import in_owners_pod

        if in_owners_pod(os.environ):
            from holdfast.platforms.kubernetes.kubernetes_launch import over_pods

            pods = over_pods(options, settings, job_of, nodes)
            return pods.job, pods, ""
    if settings.value("hosts") or settings.value("hostfile"):
        if options.standalone:
            which = "hosts" if settings.value("hosts") else "hostfile"
            raise BadUsage(
                f"{named(options, 'standalone')} means one machine, and {settings.origin(which)} names hosts: "
                "expected one of the two",
                hint="holdfast run --hosts A,B train.py",
            )
        from holdfast.launch.multi_node import readable_again
        from holdfast.platforms.ssh.ssh_launch import listed_hosts, over_hosts

        readable_again(options)
        look = guard_fd is None or guard_fd >= 0
        many = over_hosts(options, settings, job_of(True), listed_hosts(settings), nodes, look=look, guard_fd=guard_fd)
        return many.job, many, ""
    if "SLURM_JOB_ID" in os.environ:
        from holdfast.platforms.slurm.slurm_launch import over_allocation

        if (
            over := over_allocation(options, settings, job_of, nodes, home, look=guard_fd is None or guard_fd >= 0)
        ) is not None:
            return over.job, over, ""
    spares = settings.count("spares") or 0
    if nodes[1] == 1 and settings.source("spares") is not SettingSource.OPTION:
        spares = 0  # a file that describes jobs over many nodes does not make this one such a job
    staying = alone(options, nodes, spares)
    if nodes[1] + spares == 1 or staying:
        return job_of(False), None, staying
    from holdfast.launch.multi_node import over_nodes, readable_again  # a job on one machine does not need it

    readable_again(options)
    many = over_nodes(options, settings, job_of(True), home, nodes)
    return many.job, many, ""
