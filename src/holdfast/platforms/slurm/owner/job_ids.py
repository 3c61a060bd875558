"""Which job of Slurm's this process belongs to, and what its variables say of the job's time."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.allocation import allocation


class SlurmJobIds(Noun, frozen=True, kw_only=True):
    """One job, as one of its processes knows it."""

    job: int
    shown: str
    """As squeue shows it, and as `scontrol show job` takes it: `42`, `42_3`."""
    node: str = ""
    restarts: int = 0
    """How often Slurm had started the job again when this run of it began."""
    nodes: int = 1
    """How many the job has been given."""
    node_index: int = 0
    """Of this node among those of the step; 0 outside of one."""
    in_step: bool = False
    """The process is a task of `srun`: Slurm's signals to steps reach it."""
    ends_at: float | None = None
    """SLURM_JOB_END_TIME, which newer versions set."""
    started_at: float | None = None


def ids_of(environment: Mapping[str, str]) -> SlurmJobIds | None:
    """Of a process in a job; None: its variables name none that can be read."""
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
