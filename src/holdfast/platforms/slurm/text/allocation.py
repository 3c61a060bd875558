"""What Slurm's variables say of the job that this process belongs to. Slurm itself is not asked."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.hostlist import counts_in, hosts_in

#: From here on a step's number names a kind of step: the batch script's, salloc's interactive one.
_SPECIAL_STEPS = 0xFFFFFFF0
_IN_A_WORKER = "HOLDFAST_ATTEMPT"


class SlurmStep(Noun, frozen=True, kw_only=True):
    """The step (`srun`) that this process is a task of."""

    number: int
    nodes: tuple[str, ...]
    tasks: int
    #: Of this task, SLURM_PROCID.
    rank: int
    #: Of its node among the step's, SLURM_NODEID.
    node_index: int
    #: Of this task on its node, SLURM_LOCALID.
    local_id: int
    #: It is a shell that a user has asked for (`srun --pty`).
    terminal: bool


class Allocation(Noun, frozen=True, kw_only=True):
    """A job of Slurm, as one of its processes sees it."""

    job: str
    #: `12_3`: the job array and the index in it; empty: the job is of none.
    array: str = ""
    name: str = ""
    nodes: tuple[str, ...]
    #: What Slurm calls this machine; empty: it is none of the job's (salloc on a login node).
    node: str = ""
    #: None: the batch script, or salloc's shell.
    step: SlurmStep | None = None
    #: How often Slurm has started the job again.
    restarts: int = 0
    #: Of the job on this node; 0: Slurm's variables do not say.
    gpus: int = 0
    #: GPUs of each node, where sbatch was asked for them by the job (--gpus) or by the task (--gpus-per-task) and all
    #: nodes have equally many; 0: asked for by the node, not known, or not equal.
    even_gpus: int = 0
    #: All GPUs of the job, where sbatch was asked for so many (--gpus) and not all nodes have as many; else 0.
    uneven_gpus: int = 0
    #: Of the job on this node; 0: Slurm's variables do not say.
    cpus: int = 0
    #: As many as the user has asked for, where it is the same on each node; 0: no number was asked for.
    tasks_per_node: int = 0
    #: Of a heterogeneous job; `nodes` are those of one of them.
    components: int = 1
    #: Switches or blocks above this node, the outermost first, as Slurm's topology has them.
    labels: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The number as squeue shows it."""
        return self.array or self.job

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes that this process may use: those of its step, else all of the job's."""
        return self.step.nodes if self.step is not None else self.nodes


def allocation(env: Mapping[str, str]) -> Allocation | None:
    """The allocation; None outside of one, and in a worker of holdfast's. Raises ValueError with what is wrong."""
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
        tasks_per_node=_tasks(env),
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


def _tasks(env: Mapping[str, str]) -> int:
    """Without a number of tasks that was asked for, Slurm fills SLURM_TASKS_PER_NODE from the cores."""
    if "SLURM_NTASKS" not in env and "SLURM_NTASKS_PER_NODE" not in env:
        return 0
    try:
        counts = set(counts_in(env.get("SLURM_TASKS_PER_NODE", "")))
    except ValueError:
        return 0
    return counts.pop() if len(counts) == 1 else 0


def _even_gpus(env: Mapping[str, str], nodes: int) -> int:
    """What the agents' step has to ask for. Slurm gives a step fewer than the job has where these are not counted by
    the node: one for its task, or so few that the sum fits. The first node has the most; the sum tells of the rest."""
    here = _number(env, "SLURM_GPUS_ON_NODE")
    by_job, by_task = env.get("SLURM_GPUS", ""), env.get("SLURM_GPUS_PER_TASK", "")
    if "SLURM_GPUS_PER_NODE" in env or "," in by_job + by_task:
        return 0  # "," stands between GPUs of several kinds
    of_job, of_task = (_number({"": text.rpartition(":")[2]}, "") for text in (by_job, by_task))
    if of_job:
        return here if here * nodes == of_job else 0
    return here if of_task and _tasks(env) * of_task == here else 0


def _uneven_gpus(env: Mapping[str, str], nodes: int) -> int:
    by_job = env.get("SLURM_GPUS", "")
    here = _number(env, "SLURM_GPUS_ON_NODE")
    if "SLURM_GPUS_PER_NODE" in env or "," in by_job or not here:
        return 0
    of_job = _number({"": by_job.rpartition(":")[2]}, "")
    return of_job if of_job != here * nodes else 0


def _labels(env: Mapping[str, str]) -> tuple[str, ...]:
    """`s0.s4.n3` with the pattern `switch.switch.node`: s0 and s4."""
    names, kinds = (env.get(f"SLURM_TOPOLOGY_ADDR{of}", "").split(".") for of in ("", "_PATTERN"))
    if len(names) != len(kinds):
        return ()  # a node's name with a dot in it: nothing is sure
    return tuple(name for name, kind in zip(names, kinds, strict=True) if kind != "node" and name)


def _number(env: Mapping[str, str], name: str, otherwise: int = 0) -> int:
    text = env.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else otherwise
