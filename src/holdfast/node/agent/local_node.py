"""Builds the launch specification of a node's part of a multi-node job. The owner decides the policy; this node decides
the machine, command and directory.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model.job_spec import JobSpec, NodeInfo, Role
from holdfast.node.devices.visible_devices import devices_here, with_cpus
from holdfast.node.job_settings import with_job_settings
from holdfast.platforms.platform_registry import node_called, platform_around

if TYPE_CHECKING:
    from holdfast.launch.launch_spec import LaunchSpec, NodesOrder
    from holdfast.wire.node_messages import Welcome


def node_here(launch: LaunchSpec, order: NodesOrder) -> NodeInfo:
    """Describe this machine for the agent's first message to the owner."""
    name = order.name or node_called(launch.environment) or os.uname().nodename
    node = NodeInfo(
        name=name,
        slots=order.slots,
        devices=devices_here(launch.environment),
        address=order.local_addr,
        node_rank=order.node_rank,
        labels=order.labels,
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )
    # Report the CPUs of every node, because the owner decides whether workers are bound to CPUs.
    return with_cpus(node, replace(launch.spec, binds=True))


def user_here() -> str:
    """Return the name of the user who runs this job. It is the same on all nodes of the job."""
    platform = platform_around(os.environ)
    if platform is not None and (user := platform.user(os.environ)):
        return user
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # use the number: the user id has no name, as in many containers


def launch_here(launch: LaunchSpec, order: NodesOrder, welcome: Welcome) -> LaunchSpec:
    """Return the launch specification with which this node runs the owner's job.

    The policy, timers and settings come from the owner. The command and directory come from this node. Raises
    `BadUsage` if a file that the owner's settings name cannot be read on this node.
    """
    own = {role.name: role for role in launch.spec.roles}
    roles = tuple(_role_here(role, own, launch.spec) for role in welcome.spec.roles)
    spec: JobSpec = replace(welcome.spec, roles=roles)
    here = replace(launch, spec=spec, run_id=launch.run_id or welcome.job_id, master_addr=order.local_addr)
    settings = launch.settings
    if settings.of_job() == welcome.settings and spec.checks == launch.spec.checks:
        return here
    return with_job_settings(here, settings.with_job(welcome.settings))


def without_effect(launch: LaunchSpec, welcome: Welcome) -> str:
    """Return a message about this node's options and variables that the owner overrides; "" if there are none."""
    if not (places := launch.settings.without_effect(welcome.settings)):
        return ""
    has, are = ("has", "it is a setting") if len(places) == 1 else ("have", "they are settings")
    named = ", ".join(places)
    return f"{named} {has} no effect on this node: {are} of the job, and the owner on {welcome.owner} decides"


def _role_here(role: Role, own: dict[str, Role], spec: JobSpec) -> Role:
    mine = own.get(role.name) or (spec.roles[0] if len(spec.roles) == 1 else role)
    # Directories and reports use the owner's name of the role. Workers see this node's name in ROLE_NAME.
    own_name = {} if mine.name == role.name else {"ROLE_NAME": mine.name}
    return replace(role, command=mine.command, env=own_name | mine.env)
