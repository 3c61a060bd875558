"""`holdfast submit --platform kubernetes`, step by step: the objects, the server, and the lines for the user."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.remote.cluster_jobs import with_server
from holdfast.platforms.kubernetes.submit.kubernetes_submit import ClusterSubmission, dry, prepare, submit
from holdfast.platforms.submission import Submission, SubmitRequest, Submitted
from holdfast.settings.resolved_settings import Settings


class KubernetesSubmission(Submission):
    """A job file to be submitted to Kubernetes."""

    unsubmitted = "nothing was submitted, and no server was asked; to have one judge it: --dry-run=server"

    def __init__(self, request: SubmitRequest, settings: Settings, text: bytes) -> None:
        """Prepare the objects. Raises `BadUsage`."""
        self._prepared = prepare(request, settings, text)
        self.notes = self._prepared.notes

    def text(self) -> str:
        return dry(self._prepared)

    def judged(self) -> tuple[str, tuple[str, ...]]:
        found, objects = with_server(lambda api: submit(api, self._prepared, only_judge=True))
        taken = f"nothing was submitted: namespace {found.plan.namespace} would take these objects"
        return objects, (*filter(None, (found.note,)), taken)

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        found, _ = with_server(lambda api: submit(api, self._prepared))
        plan = found.plan
        job = PlatformJob(platform=object_names.PLATFORM, id=plan.name, number=found.uid, cluster=plan.namespace)
        told(Submitted(job=job, name=plan.job, words=_words(found)))
        if not wait:
            return 0
        from holdfast.platforms.kubernetes.remote.wait_for_end import await_end  # needed only with --wait

        return with_server(lambda api: await_end(api, plan, say))


def _words(found: ClusterSubmission) -> str:
    plan = found.plan
    where = f"--platform kubernetes -n {plan.namespace}"
    return (
        f"submitted {plan.job} to Kubernetes: job {plan.name} in namespace {plan.namespace}, {found.pods}\n"
        + (f"  placement    {found.note}\n" if found.note else "")
        + f"  look at it   holdfast show {plan.name} {where}\n"
        f"  its logs     holdfast logs -f {plan.name} {where}\n"
        f"  end it       holdfast stop {plan.name} {where} --reason TEXT"
    )
