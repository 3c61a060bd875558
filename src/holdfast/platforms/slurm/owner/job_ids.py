"""Read this process's Slurm job and its times from the environment."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.allocation import allocation


class SlurmJobIds(Noun, frozen=True, kw_only=True):
    """One job's ids and times, as the variables of one of its processes have them."""

    job: int
    #: The id as squeue shows it and `scontrol show job` takes it: `42`, `42_3`.
    shown: str
    node: str = ""
    #: How often Slurm had restarted the job before this run.
    restarts: int = 0
    #: Number of nodes in the job.
    nodes: int = 1
    #: Index of this node in the step; 0 outside of a step.
    node_index: int = 0
    #: This process is a task of `srun`, so signals that Slurm sends to steps reach it.
    in_step: bool = False
    #: SLURM_JOB_END_TIME, which newer versions set, in seconds since the epoch.
    ends_at: float | None = None
    started_at: float | None = None


def ids_of(environment: Mapping[str, str]) -> SlurmJobIds | None:
    """Read a job's ids and times from a process's variables. None: they name no job, or cannot be read."""
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
