"""Start a job inside a Slurm allocation. The user types the command once, and one step starts an agent on each node."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.file_modes import users_umask
from holdfast.launch.agent_launch import (
    AgentOrder,
    answering,
    line_of,
    order_for_agents,
    owner_addresses,
    owner_port,
)
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
from holdfast.model.human_format import counted
from holdfast.model.job_spec import NodePlan
from holdfast.platforms.platform import LaunchRequest
from holdfast.platforms.slurm.agent_step import Steps
from holdfast.platforms.slurm.first_task import FirstTask, await_notice, notice_path
from holdfast.platforms.slurm.job_identity import NAME
from holdfast.platforms.slurm.step_starter import SrunStarter
from holdfast.platforms.slurm.text.allocation import Allocation, SlurmStep, allocation
from holdfast.platforms.slurm.text.srun_command import environment_of_srun, kept_back
from holdfast.settings.resolved_settings import Settings, SettingSource
from holdfast.settings.run_options import RunOptions

#: How long the other tasks wait for the first task's address file, in seconds. A network file system may show it late.
NOTICE_S = 90.0
#: Default of `--replace-wait`, in seconds. An allocation gets no further nodes, and a node that does not return soon
#: will not return at all. So the job is soon restarted without it.
REPLACE_S = 5.0
#: Options with which users type the command on each node themselves.
_MEETING = ("rdzv_endpoint", "master_addr")


def over_allocation(request: LaunchRequest) -> MultiNodeJob | None:
    """Return the multi-node job that runs on the nodes of this allocation.

    Return None if the job runs on this machine, or is started in another way.

    If the user typed no number of workers per node, the allocation's number is set in `request.options`. Raises
    `BadUsage` for a user's mistake.
    """
    options, settings, job_of, nodes = request.options, request.settings, request.job_of, request.nodes
    found = _allocation()
    if found is None:
        return None
    step = found.step if found.step is not None and not found.step.terminal else None
    request.notes.extend(_idle(options, found))
    elsewhere = options.standalone or any(options.is_set(name) for name in _MEETING) or _one(options, settings)
    if elsewhere or len(found.own_nodes) == 1 or step is not None:
        workers_of(options, found)
    if elsewhere:
        return None
    if step is not None and step.tasks > 1:
        _one_task_a_node(found, step)
        return _over_tasks(options, settings, job_of(True), found, step, nodes, request.home, look=request.look)
    if step is None and not found.node and len(found.nodes) == 1:
        raise BadUsage(
            f"this machine is not {found.nodes[0]}, the one node of Slurm job {found.shown}, and a job on one node "
            "runs where it is typed",
            hint="srun --ntasks=1 holdfast run …; or, to run it here: holdfast run --standalone …",
        )
    if step is not None or len(found.own_nodes) == 1:
        return None
    return _over_step(options, settings, job_of(True), found, nodes)


def joined_here(options: RunOptions) -> tuple[str, ...]:
    """Prepare an agent that Slurm started. Set its number of workers in `options`, and return its topology labels."""
    found = _allocation()
    if found is None:
        return ()
    workers_of(options, found)
    return found.labels


def _allocation() -> Allocation | None:
    try:
        return allocation(os.environ)
    except ValueError as error:
        raise BadUsage(
            f"{error}: expected a list of hosts as Slurm writes it",
            hint="scontrol show hostnames $SLURM_JOB_NODELIST; or holdfast run --standalone …",
        ) from None


def _one(options: RunOptions, settings: Settings) -> bool:
    """Whether the user requested exactly one node and no spare."""
    spare = settings.source("spares") is SettingSource.OPTION and settings.count("spares")
    return options.nnodes is not None and options.nnodes.rpartition(":")[2].strip() == "1" and not spare


def workers_of(options: RunOptions, found: Allocation) -> None:
    """If the user typed no number of workers, set it from the allocation: tasks per node, else GPUs per node."""
    if options.nproc_per_node or options.job:
        return
    tasks = _tasks(found)
    if tasks:
        options.nproc_per_node, origin = str(tasks), f"Slurm's {tasks} tasks a node"
    elif found.gpus:
        options.nproc_per_node, origin = str(found.gpus), f"SLURM_GPUS_ON_NODE={found.gpus}"
    else:
        return
    options.origins = {**options.origins, "nproc_per_node": origin}


def _idle(options: RunOptions, found: Allocation) -> Iterator[str]:
    """Yield a note for each part of the allocation that the job does not use: other components, or unequal numbers of
    tasks.
    """
    if found.step is not None and found.step.rank:
        return  # the first task has the notes
    if found.components > 1:
        own = len(found.own_nodes)
        yield (
            f"Slurm job {found.shown} has {found.components} components: the job runs on the "
            f"{counted(own, 'node')} of this one, and leaves the others idle"
        )
    if found.step is None and found.uneven_tasks and not (options.nproc_per_node or options.job):
        yield (
            f"Slurm job {found.shown} has unequal numbers of tasks on its nodes ({found.uneven_tasks}): each node gets "
            f"{'a worker for each GPU' if found.gpus else 'one worker'}; sbatch --ntasks-per-node=N or holdfast run "
            "--nproc-per-node N asks for equally many"
        )


def _tasks(found: Allocation) -> int:
    """Return the tasks per node that the user requested. Return 0 if the user requested none, or only one."""
    return found.tasks_per_node if found.step is None and found.tasks_per_node > 1 else 0


def _over_step(
    options: RunOptions, settings: Settings, job: JobFile, found: Allocation, nodes: tuple[int, int]
) -> MultiNodeJob:
    """Return the job whose owner runs in this process and whose agents are started by one Slurm step."""
    import shutil  # imported late: the import loads three compression modules, which agents do not need

    readable_again(options)
    if shutil.which("srun") is None:
        raise BadUsage(
            f"srun is not in PATH here, and starts the agents on the {len(found.own_nodes)} nodes of Slurm job "
            f"{found.shown}: expected Slurm's client commands",
            hint="module load slurm; or PATH=$PATH:/opt/slurm/bin holdfast run …",
        )
    conf, strange = rendezvous_conf(options)
    range_ = nodes_of(options, nodes, settings.count("spares") or 0, found)
    plan = _plan(settings, conf, range_, found.own_nodes)
    key, key_from = os.urandom(32), "this run, which made it"
    if settings.source("job-key") is not SettingSource.DEFAULT:
        key, key_from = key_of(settings, Path.cwd())
    text = order_for_agents(
        NAME,
        options,
        job.spec.name,
        replace(plan, names=()),
        key,
        environment=kept_back(os.environ),
        slots=None if options.nproc_per_node or options.job else _tasks(found) or None,
    )
    steps = Steps(
        job=found.job,
        nodes=found.own_nodes,
        order=partial(_line, text),
        # Without SLURM_UMASK srun would pass on this process's umask, which makes the workers' files private.
        environment=environment_of_srun(os.environ) | {"SLURM_UMASK": f"{users_umask():04o}"},
        python=sys.executable,
        output=2 if settings.flag("json") or settings.flag("events") else 1,
        gpus=found.even_gpus,
    )
    order = NodesOrder(
        host=text.addresses[0],
        port=owner_port(options),
        key=key,
        key_from=key_from,
        job=identity(options, job.spec),
        slots=1,  # unused: this process has no worker
        hosts=True,
        hosts_why="the command was typed here",
        is_host=True,
        local_addr=options.local_addr or "",
        port_range=port_range(settings),
        owner_wait_s=owner_wait_s(settings),
        starter=SrunStarter(steps),
        takes_part=False,
    )
    notes = [f"--rdzv-conf {', '.join(strange)}: no meaning here, ignored"] if strange else []
    if found.uneven_gpus:
        notes.append(
            f"Slurm has spread the {found.uneven_gpus} GPUs of job {found.shown} unevenly over "
            f"{len(found.own_nodes)} nodes ({found.gpus} are on {found.node or 'this one'}), and may give the agents "
            "fewer than the job has: sbatch --gpus-per-node=N asks for equally many"
        )
    if options.node_rank is not None:
        notes.append(f"{named(options, 'node_rank')}: Slurm's order of the nodes ranks them, ignored")
    return MultiNodeJob(with_plan(options, job, plan, 1), order, tuple(notes))


# ---------------------------------------------------------------------------- jobs started by `srun holdfast run`


def _one_task_a_node(found: Allocation, step: SlurmStep) -> None:
    """Check that srun started one task per node. If not, the first task raises `BadUsage` and the others exit."""
    if step.tasks == len(step.nodes):
        return
    if step.rank:
        raise SystemExit(BadUsage.exit_status)  # the first task prints the error
    each = -(-step.tasks // len(step.nodes))
    many = "1 node" if len(step.nodes) == 1 else f"{len(step.nodes)} nodes"
    raise BadUsage(
        f"srun has started holdfast {step.tasks} times on {many} (Slurm job {found.shown}): expected one task a node: "
        "holdfast starts the workers of its node itself",
        hint=f"holdfast run --nproc-per-node {each} …  (without srun); or "
        f"srun --ntasks={len(step.nodes)} --ntasks-per-node=1 holdfast run --nproc-per-node {each} …",
    )


def _over_tasks(
    options: RunOptions,
    settings: Settings,
    job: JobFile,
    found: Allocation,
    step: SlurmStep,
    nodes: tuple[int, int],
    home: Path,
    *,
    look: bool,
) -> MultiNodeJob:
    """Return the job for a command that srun has started on every node. The first task hosts the owner."""
    readable_again(options)
    conf, strange = rendezvous_conf(options)
    range_ = nodes_of(options, nodes, settings.count("spares") or 0, found)
    plan = _plan(settings, conf, range_, step.nodes)
    slots = slots_of(options, job.spec, plan)
    key, key_from = key_of(settings, home)
    path = notice_path(home, found.job, step.number, os.environ)
    addresses, _ = owner_addresses(options)
    hosts = step.rank == 0
    port = owner_port(options)
    if not hosts and not look:
        limit_s = min(NOTICE_S, plan.join_s)
        notice = await_notice(path, limit_s)
        if notice is None:
            raise BadUsage(
                f"{found.node}: task 0 on {step.nodes[0]} has written no {path} within {limit_s:g} s, where it says "
                "where the owner of the job is: expected a state directory that all nodes share",
                hint="holdfast run …  (without srun, in the batch script); or export HOLDFAST_HOME=/shared/holdfast",
            )
        addresses, port = (answering(notice.addresses, notice.port),), notice.port
    order = NodesOrder(
        host=addresses[0],
        port=port,
        key=key,
        key_from=key_from,
        job=identity(options, job.spec),
        slots=slots,
        hosts=hosts,
        hosts_why=f"its task is the step's {'first' if hosts else f'number {step.rank}'}",
        is_host=hosts,
        local_addr=options.local_addr or "",
        port_range=port_range(settings),
        owner_wait_s=owner_wait_s(settings),
        starter=FirstTask(path, addresses) if hosts else None,
        labels=found.labels,
        quiet=not hosts,
    )
    notes = [f"--rdzv-conf {', '.join(strange)}: no meaning here, ignored"] if strange else []
    return MultiNodeJob(with_plan(options, job, plan, slots), order, tuple(notes))


# ------------------------------------------------------------------------------------- choosing the number of nodes


def nodes_of(options: RunOptions, nodes: tuple[int, int], spares: int, found: Allocation) -> tuple[int, int]:
    """Return the minimum and maximum number of nodes for the gang.

    Nodes beyond the maximum are spares. Raises `BadUsage` for a user's mistake.
    """
    own = len(found.own_nodes)
    if options.nnodes is None:
        nodes = (own - spares, own - spares)
    elif nodes[0] < nodes[1] and own >= nodes[0]:
        # `sbatch --nodes=2-5` may get any number in that range. The gang's minimum has priority over spares.
        most = min(nodes[1], max(own - spares, nodes[0]))
        return nodes[0], most
    if not 1 <= nodes[1] <= own - spares:
        spare = f" and --spares {spares}" if spares else ""
        asked = named(options, "nnodes") if options.nnodes is not None else "one node"
        raise BadUsage(
            f"{asked}{spare}: Slurm job {found.shown} has {own} nodes: expected as many as nodes and spares together, "
            "or more",
            hint=f"holdfast run --nnodes {max(own - spares, 1)} …; or sbatch --nodes={nodes[1] + spares} …",
        )
    return nodes


def _plan(settings: Settings, conf: Mapping[str, str], nodes: tuple[int, int], names: Sequence[str]) -> NodePlan:
    """Return the node plan. Each node of the allocation takes part or is a spare."""
    plan = replace(plan_of(settings, conf, nodes, spares=len(names) - nodes[1]), names=tuple(names))
    return plan if settings.source("replace-wait") is not SettingSource.DEFAULT else replace(plan, replace_s=REPLACE_S)


def _line(text: AgentOrder, address: str, port: int) -> bytes:
    """Return the agents' settings as a line of JSON. All agents get the same line."""
    return line_of(replace(text, port=port))
