"""Read the id of this process's Slurm job from environment variables, without a Slurm command."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.lazy_pattern import Lazy
from holdfast.model.job_spec import PlatformJob

NAME = "slurm"
_NUMBER = Lazy(r"[1-9][0-9]{0,9}")
_INDEX = Lazy(r"[0-9]{1,10}")
#: Names that Slurm makes up for a job without a name or script: for `sbatch --wrap`, for a script on standard input,
#: for `salloc`, and for `srun` with a shell or with holdfast.
_UNNAMED = frozenset(("wrap", "sbatch", "interactive", "salloc", "bash", "sh", "zsh", "holdfast"))


def restarts(environ: Mapping[str, str]) -> int:
    """Return how often Slurm has restarted the job."""
    number = environ.get("SLURM_RESTART_COUNT", "")
    return int(number) if _INDEX.fullmatch(number) else 0


def job_name(environ: Mapping[str, str]) -> str:
    """Return the job's name as squeue shows it. Return "" if Slurm has made the name up, or if there is no job."""
    name = environ.get("SLURM_JOB_NAME", "")
    return name if name not in _UNNAMED and platform_job(environ) is not None else ""


def platform_job(environ: Mapping[str, str]) -> PlatformJob | None:
    """Return the job's id as users type it (`42`; `42_7` for a task of an array).

    Return None outside a Slurm job. Return None also in a holdfast worker, because a job that a worker starts is a
    separate job.
    """
    number = environ.get("SLURM_JOB_ID", "")
    if not _NUMBER.fullmatch(number) or "HOLDFAST_ATTEMPT" in environ:
        return None
    array, index = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    shown = f"{array}_{index}" if _NUMBER.fullmatch(array) and _INDEX.fullmatch(index) else number
    cluster = environ.get("SLURM_CLUSTER_NAME", "")[:64]
    return PlatformJob(platform=NAME, id=shown, number="" if shown == number else number, cluster=cluster)
