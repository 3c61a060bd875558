"""Read this process's Slurm job from environment variables, without a Slurm command."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.hostlist import counts_in, hosts_in

#: Lowest step number of special steps: the batch script's, and salloc's interactive step.
_SPECIAL_STEPS = 0xFFFFFFF0
_IN_A_WORKER = "HOLDFAST_ATTEMPT"


class SlurmStep(Noun, frozen=True, kw_only=True):
    """The step of `srun` to which this process belongs as a task."""

    number: int
    nodes: tuple[str, ...]
    tasks: int
    #: Rank of this task, from SLURM_PROCID.
    rank: int
    #: Index of this node in the step, from SLURM_NODEID.
    node_index: int
    #: Index of this task on its node, from SLURM_LOCALID.
    local_id: int
    #: Whether the step is an interactive shell (`srun --pty`).
    terminal: bool


class Allocation(Noun, frozen=True, kw_only=True):
    """The facts about a Slurm job in the environment variables of one of its processes."""

    job: str
    #: Job array and index, such as `12_3`; empty if the job is not part of an array.
    array: str = ""
    name: str = ""
    nodes: tuple[str, ...]
    #: Slurm's name for this machine. Empty if the machine is no node of the job, for example salloc's login node.
    node: str = ""
    #: The step of this process. None in the batch script and in salloc's shell.
    step: SlurmStep | None = None
    #: How often Slurm has restarted the job.
    restarts: int = 0
    #: Number of the job's GPUs on this node; 0 if Slurm's variables do not tell it.
    gpus: int = 0
    #: GPUs per node, if sbatch requested them per job (--gpus) or per task (--gpus-per-task) and all nodes have the
    #: same number. 0 if they were requested per node, or if the numbers differ or are unknown.
    even_gpus: int = 0
    #: Total number of GPUs, if sbatch requested a total (--gpus) that is spread unevenly; else 0.
    uneven_gpus: int = 0
    #: Number of the job's cores on this node; 0 if Slurm's variables do not tell it.
    cpus: int = 0
    #: Tasks per node that the user requested, if equal on all nodes; 0 if none were requested.
    tasks_per_node: int = 0
    #: Value of SLURM_TASKS_PER_NODE, if the user requested tasks and the nodes have different numbers of them; else "".
    uneven_tasks: str = ""
    #: Number of components, if the job is heterogeneous. `nodes` are the nodes of one component.
    components: int = 1
    #: Switches or blocks above this node in Slurm's topology, the widest first.
    labels: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The job's id as squeue shows it."""
        return self.array or self.job

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes that this process may use: those of its step, or else all nodes of the job."""
        return self.step.nodes if self.step is not None else self.nodes


def allocation(env: Mapping[str, str]) -> Allocation | None:
    """Read the allocation.

    Return None outside an allocation and in a holdfast worker. Raises ValueError with the mistake.
    """
    job = env.get("SLURM_JOB_ID", "")
    listed = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""
    if not job or not listed or _IN_A_WORKER in env:
        return None
    nodes = _hosts(env, "SLURM_JOB_NODELIST", listed)
    array = env.get("SLURM_ARRAY_JOB_ID", "")
    return Allocation(
        job=job,
        array=f"{array}_{env.get('SLURM_ARRAY_TASK_ID', '')}" if array else "",
        name=env.get("SLURM_JOB_NAME", ""),
        nodes=nodes,
        node=env.get("SLURMD_NODENAME", ""),
        step=_step(env, nodes),
        restarts=_number(env, "SLURM_RESTART_COUNT"),
        gpus=_number(env, "SLURM_GPUS_ON_NODE"),
        even_gpus=_even_gpus(env, len(nodes)),
        uneven_gpus=_uneven_gpus(env, len(nodes)),
        cpus=_number(env, "SLURM_CPUS_ON_NODE"),
        tasks_per_node=max(_tasks(env)) if len(_tasks(env)) == 1 else 0,
        uneven_tasks=env["SLURM_TASKS_PER_NODE"] if len(_tasks(env)) > 1 else "",
        components=_number(env, "SLURM_HET_SIZE", otherwise=1),
        labels=_labels(env),
    )


def _step(env: Mapping[str, str], nodes: tuple[str, ...]) -> SlurmStep | None:
    number = _number(env, "SLURM_STEP_ID", otherwise=_SPECIAL_STEPS)
    if number >= _SPECIAL_STEPS:
        return None
    listed = env.get("SLURM_STEP_NODELIST", "")
    return SlurmStep(
        number=number,
        nodes=_hosts(env, "SLURM_STEP_NODELIST", listed) if listed else nodes,
        tasks=_number(env, "SLURM_STEP_NUM_TASKS", otherwise=1),
        rank=_number(env, "SLURM_PROCID"),
        node_index=_number(env, "SLURM_NODEID"),
        local_id=_number(env, "SLURM_LOCALID"),
        terminal="SLURM_PTY_PORT" in env,
    )


def _hosts(env: Mapping[str, str], name: str, listed: str) -> tuple[str, ...]:
    try:
        return hosts_in(listed)
    except ValueError as error:
        raise ValueError(f"{name}={listed[:80]}: {error}") from None


def _tasks(env: Mapping[str, str]) -> set[int]:
    """Return the numbers of requested tasks per node: one number if all nodes have the same.

    The set is empty if the user requested no tasks, because SLURM_TASKS_PER_NODE then counts cores.
    """
    if "SLURM_NTASKS" not in env and "SLURM_NTASKS_PER_NODE" not in env:
        return set()
    try:
        return set(counts_in(env.get("SLURM_TASKS_PER_NODE", "")))
    except ValueError:
        return set()


def _even_gpus(env: Mapping[str, str], nodes: int) -> int:
    """Return the GPUs per node that the agents' step must request. Return 0 if it need not, or if nodes differ.

    If sbatch did not request GPUs per node, a step by default gets fewer than the job has. This is the job's first
    node, which has the most GPUs: all nodes have this number if the total of the job is `nodes` times this number.
    """
    here = _number(env, "SLURM_GPUS_ON_NODE")
    by_job, by_task = env.get("SLURM_GPUS", ""), env.get("SLURM_GPUS_PER_TASK", "")
    if "SLURM_GPUS_PER_NODE" in env or "," in by_job + by_task:
        return 0  # a comma separates several types of GPUs, whose numbers per node are unknown
    of_job, of_task = (_number({"": text.rpartition(":")[2]}, "") for text in (by_job, by_task))
    if of_job:
        return here if here * nodes == of_job else 0
    return here if of_task and {each * of_task for each in _tasks(env)} == {here} else 0


def _uneven_gpus(env: Mapping[str, str], nodes: int) -> int:
    by_job = env.get("SLURM_GPUS", "")
    here = _number(env, "SLURM_GPUS_ON_NODE")
    if "SLURM_GPUS_PER_NODE" in env or "," in by_job or not here:
        return 0
    of_job = _number({"": by_job.rpartition(":")[2]}, "")
    return of_job if of_job != here * nodes else 0


def _labels(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the topology labels: s0 and s4 for `s0.s4.n3` with the pattern `switch.switch.node`."""
    names, kinds = (env.get(f"SLURM_TOPOLOGY_ADDR{of}", "").split(".") for of in ("", "_PATTERN"))
    if len(names) != len(kinds):
        return ()  # a dot in the node's name makes the parts ambiguous
    return tuple(name for name, kind in zip(names, kinds, strict=True) if kind != "node" and name)


def _number(env: Mapping[str, str], name: str, otherwise: int = 0) -> int:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else otherwise


# ------------------------------------------------------------------------------------------- ids and times of a job


class SlurmJobIds(Noun, frozen=True, kw_only=True):
    """Ids and times of one job, from the environment variables of one of its processes."""

    job: int
    #: The id as squeue shows it and as `scontrol show job` accepts it: `42`, `42_3`.
    shown: str
    node: str = ""
    #: How often Slurm had restarted the job before this run.
    restarts: int = 0
    #: Number of the job's nodes.
    nodes: int = 1
    #: Index of this node in the step; 0 outside a step.
    node_index: int = 0
    #: Whether this process is a task of `srun`, and so receives the signals that Slurm sends to steps.
    in_step: bool = False
    #: Value of SLURM_JOB_END_TIME, which newer versions set, in seconds since the epoch.
    ends_at: float | None = None
    started_at: float | None = None


def ids_of(environment: Mapping[str, str]) -> SlurmJobIds | None:
    """Read a job's ids and times from the variables of a process.

    Return None if they name no job, or cannot be parsed.
    """
    try:
        found = allocation(environment)
    except ValueError:
        found = None
    if found is None or not found.job.isdecimal():
        return None
    return SlurmJobIds(
        job=int(found.job),
        shown=found.shown,
        node=found.node,
        restarts=found.restarts,
        nodes=len(found.nodes),
        node_index=found.step.node_index if found.step is not None else 0,
        in_step=found.step is not None,
        ends_at=_moment(environment, "SLURM_JOB_END_TIME"),
        started_at=_moment(environment, "SLURM_JOB_START_TIME"),
    )


def _moment(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name, "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
