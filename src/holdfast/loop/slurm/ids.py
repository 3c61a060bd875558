"""Which job of Slurm's this process belongs to, and where in it, from Slurm's variables."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.base import Noun

_SPECIAL_STEPS = 0xFFFFFFF0
"""From here on a step's number names a kind of step: the batch script's, salloc's interactive one."""


class Ids(Noun, frozen=True, kw_only=True):
    """One job, as one of its processes knows it."""

    job: int
    shown: str
    """As squeue shows it, and as `scontrol show job` takes it: `42`, `42_3`."""
    node: str = ""
    restarts: int = 0
    """How often Slurm had started the job again when this run of it began."""
    in_step: bool = False
    """The process is a task of `srun`: Slurm's signals to steps reach it."""
    ends_at: float | None = None
    """SLURM_JOB_END_TIME, which newer versions set."""
    started_at: float | None = None


def ids_of(environment: Mapping[str, str]) -> Ids:
    """Of a process in a job; `SLURM_JOB_ID` is there."""
    job = _number(environment, "SLURM_JOB_ID") or 0
    array, index = _number(environment, "SLURM_ARRAY_JOB_ID"), _number(environment, "SLURM_ARRAY_TASK_ID")
    step = _number(environment, "SLURM_STEP_ID")
    return Ids(
        job=job,
        shown=str(job) if array is None or index is None else f"{array}_{index}",
        node=environment.get("SLURMD_NODENAME", ""),
        restarts=_number(environment, "SLURM_RESTART_COUNT") or 0,
        in_step=step is not None and step < _SPECIAL_STEPS,
        ends_at=_number(environment, "SLURM_JOB_END_TIME"),
        started_at=_number(environment, "SLURM_JOB_START_TIME"),
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
