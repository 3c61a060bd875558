"""The platform class for commands that submit jobs to Kubernetes, or read and stop them from outside the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.remote.kubernetes_jobs import KubernetesJobs
from holdfast.platforms.platform import PlatformAccess
from holdfast.platforms.submission import SHARED, SubmitOption

if TYPE_CHECKING:
    from holdfast.platforms.remote_jobs import RemoteJobs
    from holdfast.platforms.submission import Submission, SubmitRequest
    from holdfast.settings.resolved_settings import Settings

#: Keys of a job file's `kubernetes:` section that `holdfast submit` also accepts as options.
# fmt: off
SUBMIT_OPTIONS = (
    *SHARED,
    SubmitOption("namespace", ("--namespace", "-n"), "NAME", "The namespace.  [the context's]", often=True),
    SubmitOption("image", ("--image",), "IMAGE", "The image that workers run in.", often=True),
    SubmitOption("holdfast-image", ("--holdfast-image",), "IMAGE", "The image with holdfast in it."),
    SubmitOption("queue", ("--queue",), "NAME", "The queue of Kueue or Volcano.", often=True),
    SubmitOption("gang", ("--gang",), "WAY", "The scheduler that places all pods at once.  [auto]"),
    SubmitOption("priority-class", ("--priority-class",), "NAME", "The priority class of all pods."),
    SubmitOption("service-account", ("--service-account",), "NAME", "The workers' service account."),
    SubmitOption("may-taint", ("--may-taint/--no-may-taint",), "",
                 "Taint a node that a person must check.  [no]"),
)
# fmt: on


class KubernetesAccess(PlatformAccess):
    """Gives commands access to the jobs of a Kubernetes cluster."""

    name = object_names.PLATFORM
    title = "Kubernetes"
    judges_submissions = True
    beyond_options = "section `kubernetes:` of the job file"

    def submit_options(self) -> tuple[SubmitOption, ...]:
        return SUBMIT_OPTIONS

    def submission(self, request: SubmitRequest, settings: Settings, text: bytes) -> Submission:
        # Only `submit` needs this module.
        from holdfast.platforms.kubernetes.submit.kubernetes_submission import KubernetesSubmission

        return KubernetesSubmission(request, settings, text)

    def remote(self) -> RemoteJobs | None:
        return KubernetesJobs()
