"""Which job of Slurm's this process belongs to, and what its variables say of the job's time."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.allocation import allocation


class SlurmJobIds(Noun, frozen=True, kw_only=True):
    """One job, as one of its processes knows it."""

    job: int
    #: As squeue shows it, and as `scontrol show job` takes it: `42`, `42_3`.
    shown: str
    node: str = ""
    #: How often Slurm had started the job again when this run of it began.
    restarts: int = 0
    #: How many the job has been given.
    nodes: int = 1
    #: Of this node among those of the step; 0 outside of one.
    node_index: int = 0
    #: The process is a task of `srun`: Slurm's signals to steps reach it.
    in_step: bool = False
    #: SLURM_JOB_END_TIME, which newer versions set.
    ends_at: float | None = None
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
