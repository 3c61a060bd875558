"""Decides whether a job runs on this machine or on several, from options, the platform or an agent's order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.launch.jobfile.job_file import RunPlace
from holdfast.launch.torchrun_options import alone, node_range
from holdfast.launch.typed_job import typed_job
from holdfast.platforms.platform import LaunchRequest, OneMachineJob
from holdfast.platforms.platform_registry import platform_around, platforms_to_start_with, runs_images
from holdfast.settings.resolved_settings import Settings, SettingSource

if TYPE_CHECKING:
    from holdfast.launch.agent_launch import AgentJoin
    from holdfast.launch.jobfile.job_file import JobFile
    from holdfast.launch.multi_node import MultiNodeJob
    from holdfast.settings.run_options import RunOptions


def job_here(options: RunOptions, settings: Settings, python: str, over_many: bool) -> JobFile:
    """Build the job from the command line and the platform of this process. Raises `BadUsage` for a user's mistake.

    `python`: the workers' interpreter. `over_many`: the job may run on several machines.
    """
    platform = platform_around(os.environ)
    place = RunPlace(
        images=runs_images(os.environ),
        hosts_only=platform is not None and platform.hosts_only(os.environ),
        charged=platform is not None,
        job_name=platform.job_name(os.environ) if platform is not None else "",
    )
    job = typed_job(options, settings, python, over_many, place)
    if platform is None:
        return job
    at_limit = bool(settings.flag("requeue-at-limit"))
    return replace(job, spec=platform.described(job.spec, os.environ, at_time_limit=at_limit))


def over_machines(
    options: RunOptions,
    settings: Settings,
    job_of: Callable[[bool], JobFile],
    home: Path,
    joining: AgentJoin | None,
    guard_fd: int | None,
) -> tuple[JobFile, MultiNodeJob | None, tuple[str, ...]]:
    """Return the job, its multi-node plan or None, and notes for the user: those of the platform, and why the job stays
    here.

    `job_of`: builds the job; its argument is true for a job on several nodes.
    `home`: the state directory.
    `joining`: the settings of an agent; None for a run that the user typed.
    `guard_fd`: the descriptor of the guard; negative if this process is the guard. A process below a guard only checks
    each listed host, and the guard then starts the job.
    """
    if joining is not None:
        many = joining.launched(options, settings, job_of(True))
        return many.job, many, ()
    nodes = node_range(options)
    request = LaunchRequest(options, settings, job_of, nodes, home, guard_fd)
    for platform in platforms_to_start_with(os.environ, settings):
        over = platform.launch(request)
        if isinstance(over, OneMachineJob):
            return over.job, None, (*request.notes, over.note)
        if over is not None:
            return over.job, over, tuple(request.notes)
    spares = settings.count("spares") or 0
    if nodes[1] == 1 and settings.source("spares") is not SettingSource.OPTION:
        spares = 0  # the number of spares in a settings file alone does not make a job multi-node
    staying = alone(options, nodes, spares)
    if nodes[1] + spares == 1 or staying:
        return job_of(False), None, (*request.notes, *filter(None, (staying,)))
    from holdfast.launch import multi_node  # imported late: few jobs have several nodes

    multi_node.readable_again(options)
    many = multi_node.over_nodes(options, settings, job_of(True), home, nodes)
    return many.job, many, tuple(request.notes)
