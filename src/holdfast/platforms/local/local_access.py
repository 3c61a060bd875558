"""The platform of this machine's queue, for commands about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.platforms.platform import PlatformAccess
from holdfast.platforms.submission import SubmitOption

if TYPE_CHECKING:
    from holdfast.platforms.job_queue import JobQueue
    from holdfast.platforms.submission import Submission, SubmitRequest
    from holdfast.settings.resolved_settings import Settings

#: Keys of a job file's `local:` section that `holdfast submit` also accepts as options.
# fmt: off
SUBMIT_OPTIONS = (
    SubmitOption("devices", ("--devices",), "N", "Devices of the whole job, or 0.", often=True),
    SubmitOption("gpus", ("--gpus", "--gpus-per-node"), "N", "GPUs of each node."),
    SubmitOption("cpus", ("--cpus", "--cpus-per-task", "-c"), "N", "Cores of each node."),
    SubmitOption("memory", ("--memory", "--mem"), "SIZE", "Memory of each node: 64G."),
    SubmitOption("time", ("--time", "-t"), "LIMIT", "The time limit: 2h, 1d12h, minutes, H:M:S.", often=True),
    SubmitOption("priority", ("--priority",), "PRIORITY", "low, normal, high or urgent.  [normal]", often=True),
    SubmitOption("on", ("--on",), "DEVICES", "Just these devices: 3, or 0,3."),
    SubmitOption("exclusive", ("--exclusive",), "", "Nothing else runs on the machine beside it."),
    SubmitOption("output", ("--output", "-o"), "FILE", "Where what is printed goes.  [output.log in the job's folder]"),
)
# fmt: on


class LocalAccess(PlatformAccess):
    """Gives commands access to this machine's queue."""

    name = "local"
    title = "This machine"
    beyond_options = "`local:` section of the job file"

    def submit_options(self) -> tuple[SubmitOption, ...]:
        return SUBMIT_OPTIONS

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        # Imported late: only `submit` needs it.
        from holdfast.platforms.local.local_submission import LocalSubmission

        return LocalSubmission(request, settings, text)

    def queue(self) -> JobQueue | None:
        # Imported late: a run needs no queue.
        from holdfast.platforms.local.local_queue import LocalQueue

        return LocalQueue()
