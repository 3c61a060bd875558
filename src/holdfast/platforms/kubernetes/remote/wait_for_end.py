"""`holdfast submit --wait`: wait with a watch, without polling, until the Job on Kubernetes has ended."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient, BrokenAnswer
from holdfast.platforms.kubernetes.objects.job_status import ClusterJobState, is_over
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.remote.cluster_jobs import look
from holdfast.untrusted import Malformed, json_value

#: How many watches in a row may break without any event.
MOST_BREAKS = 20


def await_end(api: BlockingClient, plan: PodPlan, say: Callable[[str], None]) -> int:
    """Return the job's exit status. Raises HoldfastError if the server no longer answers, or the job was deleted."""
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
            return _told(api, plan, say)
        breaks += 1
        if found.ok and _watched(api, where, plan.name, str(found.body["metadata"]["resourceVersion"])):
            breaks = 0
    raise HoldfastError(
        f"job {plan.name} runs on, and the API server answers no more",
        hint=f"holdfast show {plan.name} --platform kubernetes -n {plan.namespace}",
    )


def _watched(api: BlockingClient, where: str, name: str, version: str) -> bool:
    """Watch until the Job has ended or the watch breaks. False: no event came."""
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
        pass  # the caller resumes the watch
    return heard


def _told(api: BlockingClient, plan: PodPlan, say: Callable[[str], None]) -> int:
    job = look(api, plan.namespace, plan.name).job
    if job.state is ClusterJobState.SUCCEEDED:
        say(f"job {job.name} has succeeded")
        return 0
    words = ": ".join(filter(None, (job.phrase, job.said)))
    say(f"job {job.name} has failed{f': {words}' if words else ''}")
    return job.code or 1
