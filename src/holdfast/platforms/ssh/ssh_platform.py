"""The platform ssh: the user types the command once, with `--hosts` or `--hostfile`, and ssh starts the other agents.

This platform has no job ids and watches no job. Each host gets one line of JSON on ssh's standard input: the typed
options, the environment, the job's key, and the owner's address. From these the agent builds the same launch as if the
user had typed the command on its host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.agent_launch import AgentOrder, line_of, order_for_agents, owner_port
from holdfast.launch.jobfile.job_file import JobFile
from holdfast.launch.launch_spec import NodesOrder
from holdfast.launch.multi_node import (
    MultiNodeJob,
    identity,
    key_of,
    owner_wait_s,
    plan_of,
    port_range,
    readable_again,
    rendezvous_conf,
    slots_of,
    with_plan,
)
from holdfast.launch.torchrun_options import named
from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.platform import LaunchRequest, OneMachineJob, Platform
from holdfast.platforms.ssh.host_lists import ListedHost, hostfile, hosts_of
from holdfast.platforms.ssh.ssh_command import environment_for, environment_there, ssh_words
from holdfast.platforms.ssh.ssh_starter import HostOrder, SshStarter, look_at
from holdfast.safe_text import own_lines
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.run_options import RunOptions
from holdfast.version import __version__
from holdfast.wire.addresses import addresses_of, interfaces

_HINT = "holdfast run --hosts node1,node2 train.py"


# ----------------------------------------------------------------------------- hosts and nodes, on the user's machine


def listed_hosts(settings: Settings) -> tuple[ListedHost, ...]:
    """Return the hosts from an option, a variable or a file. Return () if none of them names hosts.
    Raises `BadUsage` for a user's mistake.
    """
    names, path = settings.names("hosts"), settings.text("hostfile")
    if names and path:
        of_names, of_path = settings.source("hosts"), settings.source("hostfile")
        if of_names is of_path:
            raise BadUsage(
                f"{settings.origin('hosts')} and {settings.origin('hostfile')}: expected one list of hosts", hint=_HINT
            )
        if of_names > of_path:
            path = None
    if path:
        return hostfile(Path(path), settings.origin("hostfile"))
    return hosts_of(names, settings.origin("hosts")) if names else ()


def nodes_on(options: RunOptions, nodes: tuple[int, int], spares: int, hosts: int) -> tuple[int, int]:
    """Return the minimum and maximum number of nodes for the gang, on `hosts` hosts.

    Hosts beyond the maximum are spares. Raises `BadUsage` for a user's mistake.
    """
    many = f"{hosts} {'host' if hosts == 1 else 'hosts'}"
    if options.nnodes is None:
        nodes = (hosts - spares, hosts - spares)
    if not 1 <= nodes[1] <= hosts - spares:
        spare = f" and --spares {spares}" if spares else ""
        asked = named(options, "nnodes") if options.nnodes is not None else "one node"
        raise BadUsage(
            f"{asked}{spare} with {many}: expected as many hosts as nodes and spares together, or more",
            hint=f"holdfast run --nnodes {max(hosts - spares, 1)} …",
        )
    return nodes


def place_here(listed: Sequence[ListedHost]) -> int | None:
    """Return this machine's index in the list, or None. A name that only ssh can resolve counts as another machine."""
    machine, user = os.uname().nodename, os.environ.get("USER")
    bare = {}
    for rank, each in enumerate(listed):
        at, _, host = each.host.rpartition("@")
        if at in ("", user):
            bare[rank] = host
    # Compare names first, because each look-up may take as long as a name server's time limit.
    for rank, host in bare.items():
        if host in ("localhost", machine, machine.partition(".")[0]):
            return rank
    try:
        own = {interface.address for interface in interfaces()}
    except OSError:
        return None
    return next((rank for rank, host in bare.items() if own.intersection(_known_addresses(host))), None)


def _known_addresses(host: str) -> tuple[str, ...]:
    try:
        return addresses_of(host)
    except BadUsage:
        return ()  # the name may be known to ssh only


def alone_here(request: LaunchRequest, listed: Sequence[ListedHost]) -> OneMachineJob | None:
    """Return the job on this machine, with one worker per slot, if the list contains only this machine.

    The same script can then write a list of many hosts or of one.
    """
    options, settings = request.options, request.settings
    if len(listed) != 1 or place_here(listed) is None:
        return None
    nodes_on(options, request.nodes, settings.count("spares") or 0, 1)
    job, [host] = request.job_of(False), listed
    if host.slots is not None and not options.job:
        roles = tuple(replace(role, count=host.slots) for role in job.spec.roles)
        job = replace(job, spec=replace(job.spec, roles=roles))
    which = "hosts" if settings.source("hosts") > settings.source("hostfile") else "hostfile"
    return OneMachineJob(job=job, note=f"{settings.origin(which)} names this machine alone, {host.host}: it runs here")


def over_hosts(
    options: RunOptions,
    settings: Settings,
    job: JobFile,
    listed: Sequence[ListedHost],
    nodes: tuple[int, int],
    *,
    look: bool,
    guard_fd: int | None,
) -> MultiNodeJob:
    """Return the job whose owner runs on this machine and whose agents ssh starts.

    `listed`: the user's list of hosts. `nodes`: minimum and maximum number of nodes.
    `look`: check each host before anything starts.
    `guard_fd`: the guard reports signals on this descriptor during the checks.
    """
    conf, strange = rendezvous_conf(options)
    range_ = nodes_on(options, nodes, settings.count("spares") or 0, len(listed))
    plan = plan_of(settings, conf, range_, spares=len(listed) - range_[1])
    own = place_here(listed)
    if own is None:
        plan = replace(plan, apart=True)
    if own is None:
        slots = 1  # unused: this machine runs no worker, and may have no devices to count
    else:
        slots = listed[own].slots or slots_of(options, job.spec, plan)
    key, key_from = os.urandom(32), "this run, which made it"
    if settings.source("job-key") is not SettingSource.DEFAULT:
        key, key_from = key_of(settings, Path.cwd())
    text = order_for_agents("ssh", options, job.spec.name, plan, key, environment=environment_for(os.environ))
    ssh = ssh_words(settings.text("ssh") or "ssh", settings.origin("ssh"))
    sent = HostOrder(
        ssh,
        [(rank, each) for rank, each in enumerate(listed) if rank != own],
        partial(_line, text),
        directory=str(Path.cwd()),
        python=sys.executable,
        output=2 if settings.flag("json") or settings.flag("events") else 1,
        say=_say,
    )
    notes = [f"--rdzv-conf {', '.join(strange)}: no meaning here, ignored"] if strange else []
    if options.node_rank is not None:
        notes.append(f"{named(options, 'node_rank')}: the order of the hosts ranks the nodes, ignored")
    if look:
        # Print the lines at once: this process hands the job to the guard next, and the guard does not check the hosts
        # again.
        for line in look_at(sent, _paths(options), __version__, len(listed) - plan.least, guard_fd):
            _say(line)
    order = NodesOrder(
        host=text.addresses[0],
        port=owner_port(options),
        key=key,
        key_from=key_from,
        job=identity(options, job.spec),
        slots=slots,
        hosts=True,
        hosts_why="the command was typed here",
        is_host=True,
        node_rank=own,
        local_addr=options.local_addr or "",
        port_range=port_range(settings),
        owner_wait_s=owner_wait_s(settings),
        starter=SshStarter(sent),
        takes_part=own is not None,
        name=listed[own].host if own is not None else "",
    )
    named_plan = replace(plan, names=tuple(each.host for each in listed))
    return MultiNodeJob(with_plan(options, job, named_plan, slots), order, tuple(notes))


def _line(text: AgentOrder, listed: ListedHost, rank: int, address: str, port: int) -> bytes:
    """Return the settings for one host's agent, as a line of JSON."""
    return line_of(replace(text, host=listed.host, slots=listed.slots, rank=rank, port=port))


def _paths(options: RunOptions) -> tuple[str, ...]:
    """Return the paths that must exist on every host, besides the working directory and Python."""
    if options.job:
        return (options.job,)
    if options.command_from:
        return ()
    own = not options.run_path
    return () if own and (options.module or options.no_python) else options.words[:1]


def _say(text: str) -> None:
    os.write(2, ("\n".join(own_lines(text)) + "\n").encode())


class SshPlatform(Platform):
    """Starts a job's agents over ssh."""

    name = "ssh"
    title = "ssh"
    key_from = "ssh, on standard input"

    def job(self, environment: Mapping[str, str]) -> PlatformJob | None:
        return None

    def launch(self, request: LaunchRequest) -> MultiNodeJob | OneMachineJob | None:
        options, settings = request.options, request.settings
        if options.standalone:
            which = "hosts" if settings.value("hosts") else "hostfile"
            raise BadUsage(
                f"{named(options, 'standalone')} means one machine, and {settings.origin(which)} names hosts: "
                "expected one of the two",
                hint="holdfast run --hosts A,B train.py",
            )
        listed = listed_hosts(settings)
        if (alone := alone_here(request, listed)) is not None:
            return alone
        readable_again(options)
        return over_hosts(
            options,
            settings,
            request.job_of(True),
            listed,
            request.nodes,
            look=request.look,
            guard_fd=request.guard_fd,
        )

    def agent_environment(self, sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
        return environment_there(sent, there)
