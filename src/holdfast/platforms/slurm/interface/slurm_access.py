"""The platform class for commands that submit jobs to Slurm, read its queue, or check its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.platforms.job_queue import JobQueue
from holdfast.platforms.node_hooks import NodeHooks
from holdfast.platforms.platform import PlatformAccess
from holdfast.platforms.slurm import job_identity
from holdfast.platforms.slurm.blocking_query import query
from holdfast.platforms.slurm.node_health import SlurmHooks
from holdfast.platforms.slurm.submit.slurm_queue import QUEUE
from holdfast.platforms.submission import SHARED, SubmitOption

if TYPE_CHECKING:
    from holdfast.platforms.submission import Submission, SubmitRequest
    from holdfast.settings.resolved_settings import Settings

CONFIGURATION = Path("/etc/slurm/slurm.conf")
#: How long `scontrol ping` may take, in seconds.
ANSWER_S = 2.0

#: Keys of a job file's `slurm:` section that `holdfast submit` also accepts as options.
# fmt: off
SUBMIT_OPTIONS = (
    *SHARED,
    SubmitOption("partition", ("--partition", "-p"), "NAME", "The partition.", often=True),
    SubmitOption("account", ("--account", "-A"), "NAME", "The account that pays.", often=True),
    SubmitOption("qos", ("--qos", "-q"), "NAME", "The quality of service."),
    SubmitOption("time", ("--time", "-t"), "LIMIT", "The time limit: 2h, 1d12h, minutes, H:M:S.", often=True),
    SubmitOption("signal", ("--signal",), "SIGNAL@TIME", "A signal before the time limit."),
    SubmitOption("comment", ("--comment",), "TEXT", "A comment."),
    SubmitOption("constraint", ("--constraint", "-C"), "FEATURES", "Features that the nodes must have."),
    SubmitOption("exclude", ("--exclude", "-x"), "NODES", "Nodes that the job must not get."),
    SubmitOption("reservation", ("--reservation",), "NAME", "The reservation."),
    SubmitOption("array", ("--array", "-a"), "INDICES", "One job for each index: 0-19%4."),
    SubmitOption("output", ("--output", "-o"), "FILE", "The file for the job's output.  [slurm-%j.out]"),
    SubmitOption("report", ("--report",), "FILE", "Also write report.json to this file; %j and %A_%a are replaced."),
    SubmitOption("replace-wait", ("--replace-wait",), "TIME",
                 "How long to wait for another node when too few are left."),
    SubmitOption("python", ("--python",), "PATH", "The Python that has holdfast on the nodes.  [this one]"),
    SubmitOption("requeue", ("--requeue/--no-requeue",), "", "Whether Slurm may requeue the job.  [yes]"),
    SubmitOption("requeue-at-limit", ("--requeue-at-limit/--no-requeue-at-limit",), "",
                 "At the time limit save the job, and let Slurm restart it.  [no]"),
    SubmitOption("no-image", ("--no-image",), "", "Workers run without the job's image, under the nodes' software."),
    SubmitOption("sbatch", ("--sbatch",), "NAME[=VALUE]", "Any other option of sbatch; may be repeated.", further=True),
)
# fmt: on


class SlurmAccess(PlatformAccess):
    """Gives commands access to the jobs and nodes of a Slurm cluster."""

    name = job_identity.NAME
    title = "Slurm"
    beyond_options = "batch script"

    def submit_options(self) -> tuple[SubmitOption, ...]:
        return SUBMIT_OPTIONS

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        # Imported late: only `submit` needs it.
        from holdfast.platforms.slurm.submit.slurm_submit import SlurmSubmission

        return SlurmSubmission(request, settings, text)

    def presence(self, environment: Mapping[str, str]) -> str | None:
        if not environment.get("SLURM_CONF") and not CONFIGURATION.exists():
            return None
        answer = query(["scontrol", "ping"], limit_s=ANSWER_S)
        return "" if answer.ok and " UP" in f" {answer.out.replace('/', ' ')}" else answer.said or answer.out.strip()

    def queue(self) -> JobQueue | None:
        return QUEUE

    def node_hooks(self) -> NodeHooks | None:
        return SlurmHooks()
