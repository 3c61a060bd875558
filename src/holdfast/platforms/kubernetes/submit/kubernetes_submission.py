"""Runs `holdfast submit --platform kubernetes`: builds objects, sends them to the server, and informs the user."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.model.job_spec import PlatformJob
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient, BrokenAnswer
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.job_status import ClusterJobState, is_over
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.remote.cluster_jobs import look, with_server
from holdfast.platforms.kubernetes.submit.kubernetes_submit import ClusterSubmission, dry, prepare, submit
from holdfast.platforms.submission import Submission, SubmitRequest, Submitted
from holdfast.settings.resolved_settings import Settings
from holdfast.untrusted import Malformed, json_value

#: How many watches in a row may break without any event before the wait fails.
MOST_BREAKS = 20


class KubernetesSubmission(Submission):
    """A job file that is to be submitted to Kubernetes."""

    unsubmitted = "nothing was submitted, and no server was asked; --dry-run=server lets the server validate it"

    def __init__(self, request: SubmitRequest, settings: Settings, text: bytes) -> None:
        """Validate the job file and prepare the objects. Raises `BadUsage` for a user's mistake."""
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
        return with_server(lambda api: _await_end(api, plan, say))


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


def _await_end(api: BlockingClient, plan: PodPlan, say: Callable[[str], None]) -> int:
    """Wait until the Job in the cluster has ended, with a watch and without polling. Return the job's exit status.

    Raises HoldfastError if the server no longer answers, or if the job was deleted.
    """
    where = f"/apis/batch/v1/namespaces/{plan.namespace}/jobs"
    breaks = 0
    while breaks < MOST_BREAKS:
        found = api.get(f"{where}/{plan.name}")
        if found.status == 404:
            raise HoldfastError(
                f"job {plan.name} is gone from namespace {plan.namespace}: it was deleted before its end",
                hint=f"kubectl get events -n {plan.namespace}",
            )
        if found.ok and is_over(found.body):
            return _status(api, plan, say)
        breaks += 1
        if found.ok and _watched(api, where, plan.name, str(found.body["metadata"]["resourceVersion"])):
            breaks = 0
    raise HoldfastError(
        f"job {plan.name} runs on, and the API server no longer answers",
        hint=f"holdfast show {plan.name} --platform kubernetes -n {plan.namespace}",
    )


def _watched(api: BlockingClient, where: str, name: str, version: str) -> bool:
    """Watch until the Job has ended or the watch breaks. Return whether any event came."""
    query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version, "watch": "true"}
    heard = False
    try:
        with api.lines(where, query) as lines:
            for line in lines:
                try:
                    event = json_value(line)
                except Malformed:
                    return heard
                heard = True
                if event.get("type") in ("DELETED", "ERROR") or is_over(event.get("object") or {}):
                    return True
    except BrokenAnswer:
        pass  # the caller starts the next watch
    return heard


def _status(api: BlockingClient, plan: PodPlan, say: Callable[[str], None]) -> int:
    job = look(api, plan.namespace, plan.name).job
    if job.state is ClusterJobState.SUCCEEDED:
        say(f"job {job.name} has succeeded")
        return 0
    words = ": ".join(filter(None, (job.phrase, job.said)))
    say(f"job {job.name} has failed{f': {words}' if words else ''}")
    return job.code or 1
