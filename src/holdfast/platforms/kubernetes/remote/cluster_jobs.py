"""Read a job's state from its objects in a Kubernetes cluster, during and after the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.decisions import JobReport
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.client.api_server import NoClient
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Event, event
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble
from holdfast.platforms.kubernetes.objects.job_status import (
    REPORT,
    ClusterJobState,
    events_seen,
    job_seen,
    newest,
    placement,
    plan_of,
    pod_in_words,
)

# Re-exported, because callers import the class from this module.
from holdfast.platforms.kubernetes.objects.job_status import ClusterJob as ClusterJob
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.objects.saved_state import header_of
from holdfast.untrusted import Malformed, json_as

T = TypeVar("T")
MOST_JOBS = 500


class ClusterJobView(Noun, frozen=True, kw_only=True):
    """One job, with the details from all of its objects."""

    job: ClusterJob
    plan: PodPlan | None = None
    #: The final report; None if the job has not ended.
    report: JobReport | None = None
    events: tuple[Event, ...] = ()

    @property
    def over(self) -> bool:
        return is_over(self.job)

    @property
    def title(self) -> str:
        """The job's name as the user wrote it; empty if unknown."""
        return self.plan.job if self.plan is not None else ""

    @property
    def delete_command(self) -> str:
        return f"kubectl delete job {self.job.name} -n {self.job.namespace}"

    @property
    def placement(self) -> str:
        """Describes how the job's pods are placed."""
        return placement(self.plan) if self.plan is not None else ""

    @property
    def pods(self) -> list[tuple[str, str, str]]:
        """The newest pod of each node, as (pod name, node, state as text)."""
        return [(each.name, each.node, pod_in_words(each)) for each in newest(self.job.pods)]


def with_server(work: Callable[[BlockingClient], T]) -> T:
    """Call `work` with a client of the user's API server. Raises HoldfastError if no server is configured."""
    try:
        with BlockingClient.here() as api:
            return work(api)
    except NoClient as error:
        raise HoldfastError(str(error), hint="export KUBECONFIG=…; kubectl config get-contexts") from None


def jobs(api: BlockingClient, namespace: str | None) -> list[ClusterJob]:
    """Return holdfast's jobs of a namespace, the newest first. Raises HoldfastError if the server sends no list."""
    where = namespace or api.namespace
    label = f"{object_names.MANAGED_BY}=holdfast"
    of_jobs = _items(
        api.get(f"/apis/batch/v1/namespaces/{where}/jobs", labelSelector=label, limit=str(MOST_JOBS)), where
    )
    pods: dict[str, list[Any]] = {}
    for each in _items(api.get(f"/api/v1/namespaces/{where}/pods", labelSelector=label), where):
        pods.setdefault(str(((each.get("metadata") or {}).get("labels") or {}).get(object_names.JOB)), []).append(each)
    configs = {
        str(each["metadata"]["name"]): each
        for each in _items(api.get(f"/api/v1/namespaces/{where}/configmaps", labelSelector=label), where)
    }
    about = "involvedObject.kind=Job,reason=FailedCreate"
    events = api.get(f"/api/v1/namespaces/{where}/events", fieldSelector=about)
    refused = [event(each) for each in events.body.get("items") or ()] if events.ok else []
    found = []
    for job in of_jobs:
        name = str(job["metadata"]["name"])
        plan, state = configs.get(object_names.job_config(name)), configs.get(object_names.state_config(name))
        found.append(job_seen(job, pods.get(name, ()), plan_of(plan), header_of(state), refused))
    return sorted(found, key=lambda job: job.created, reverse=True)


def look(api: BlockingClient, namespace: str | None, name: str) -> ClusterJobView:
    """Return one job, found by its name or by the name of its objects.

    Raises `BadUsage` if there is no such job, and HoldfastError if the server refuses the request or does not answer.
    """
    where, called = namespace or api.namespace, object_names.object_name(name)
    job = job_there(api, where, name)
    pods = _items(api.get(f"/api/v1/namespaces/{where}/pods", labelSelector=object_names.selector(called)), where)
    plan = plan_of(api.get(f"/api/v1/namespaces/{where}/configmaps/{object_names.job_config(called)}").body)
    state = api.get(f"/api/v1/namespaces/{where}/configmaps/{object_names.state_config(called)}").body
    about = f"involvedObject.kind=Job,involvedObject.name={called}"
    events = api.get(f"/api/v1/namespaces/{where}/events", fieldSelector=about)
    seen = tuple(events_seen(events.body.get("items") or ())) if events.ok else ()
    return ClusterJobView(
        job=job_seen(job, pods, plan, header_of(state), seen),
        plan=plan,
        report=_report(state),
        events=seen,
    )


def job_there(api: BlockingClient, namespace: str, name: str) -> dict[str, Any]:
    """Return the record of the Kubernetes Job that belongs to holdfast's job `name`.

    Raises `BadUsage` if the namespace has no such job, and HoldfastError if the server does not return the record.
    """
    called = object_names.object_name(name)
    answer = api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{called}")
    labels = ((answer.body or {}).get("metadata") or {}).get("labels") or {} if answer.ok else {}
    if answer.status == 404 or (answer.ok and labels.get(object_names.MANAGED_BY) != "holdfast"):
        import difflib  # imported late: only a mistake needs it

        there = [each.name for each in jobs(api, namespace)]
        near = difflib.get_close_matches(called, there, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(there[:8])}" if there else ""
        raise BadUsage(
            f"namespace {namespace} has no job {called} of holdfast{meant}",
            hint=f"holdfast jobs --platform kubernetes -n {namespace}",
        )
    must(answer, namespace)
    found: dict[str, Any] = answer.body
    return found


def must(answer: Answered, namespace: str) -> None:
    """Raise HoldfastError if a request to this namespace failed."""
    if answer.ok:
        return
    hint = f"kubectl auth can-i --list -n {namespace}" if answer.trouble is ApiTrouble.REFUSED else "kubectl version"
    raise HoldfastError(f"namespace {namespace} cannot be looked at: {answer.said}", hint=hint)


def _items(answer: Answered, namespace: str) -> list[Any]:
    must(answer, namespace)
    return [each for each in (answer.body or {}).get("items") or () if isinstance(each, dict)]


def _report(config: Any) -> JobReport | None:
    text = ((config or {}).get("data") or {}).get(REPORT) if isinstance(config, dict) else None
    try:
        return json_as(text, JobReport) if isinstance(text, str) else None
    except Malformed:
        return None


def is_over(job: ClusterJob) -> bool:
    return job.state in (ClusterJobState.SUCCEEDED, ClusterJobState.FAILED)
