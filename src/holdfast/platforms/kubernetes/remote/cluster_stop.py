"""Stop a job in a cluster, for `holdfast stop`: write the request to its Job, where the owner reads and answers it."""

from __future__ import annotations

import os

from holdfast.errors import BadUsage, HoldfastError
from holdfast.platforms.kubernetes.client.blocking_client import BlockingClient, BrokenAnswer
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.job_status import ClusterJobState, job_seen
from holdfast.platforms.kubernetes.objects.stop_annotation import (
    StopAnnotation,
    StopAnnotationReply,
    heard_of,
    stop_request_patch,
)
from holdfast.platforms.kubernetes.remote.cluster_jobs import is_over, job_there, must
from holdfast.untrusted import Malformed, json_value

#: How long to wait for the owner's answer, in seconds. The owner may be listing all objects again.
HEARD_S = 20


def stop(
    api: BlockingClient,
    namespace: str | None,
    name: str,
    *,
    reason: str,
    solution: str,
    phrase: str,
    code: int | None,
    who: str,
) -> str:
    """Ask the job's owner to stop the job, and return a message for the user.

    Raises `BadUsage` if there is no such job or its owner refuses, and HoldfastError if a request fails or no answer
    comes.

    The job's report names `phrase` (failure class), `code` (final code), `reason`, and `solution` (advice). `who`: the
    user who stops the job.
    """
    where = namespace or api.namespace
    job = job_there(api, where, name)
    called = str(job["metadata"]["name"])
    path = f"/apis/batch/v1/namespaces/{where}/jobs/{called}"
    pods = api.get(f"/api/v1/namespaces/{where}/pods", labelSelector=object_names.selector(called))
    must(pods, where)
    seen = job_seen(job, pods.body.get("items") or ())
    if is_over(seen):
        return _over(called, where, seen.state)
    if seen.state is ClusterJobState.ENDING:
        return f"job {called} in namespace {where} is being deleted already"
    if seen.state is ClusterJobState.PENDING and not seen.pods:
        must(api.delete(path), where)
        why = f" ({seen.said})" if seen.said else ""
        return f"job {called} in namespace {where}, pending{why}: deleted before it began"
    wish = StopAnnotation(id=os.urandom(8).hex(), reason=reason, solution=solution, phrase=phrase, code=code, who=who)
    answer = api.patch(path, stop_request_patch(wish))
    must(answer, where)
    if seen.state is ClusterJobState.PENDING:
        why = f" ({seen.said})" if seen.said else ""
        return (
            f"job {called} in namespace {where} has no owner now{why}: its next pod reads the stop request\n"
            f"look at it: holdfast show {called} --platform kubernetes -n {where}"
        )
    heard = _heard(api, where, called, wish, str(answer.body["metadata"]["resourceVersion"]))
    if heard is None:
        again = api.get(path)
        if again.status == 404:
            return f"job {called} in namespace {where} has just been deleted; there is nothing to stop"
        if again.ok and is_over(ended := job_seen(again.body, ())):
            return _over(called, where, ended.state)
        raise HoldfastError(
            f"job {called} in namespace {where} has a stop request, and its owner has not answered within {HEARD_S} s: "
            "it reads the request when it can",
            hint=f"holdfast show {called} --platform kubernetes -n {where}; kubectl delete job {called} -n {where}, "
            "which ends it without your reason",
        )
    if not heard.ok:
        raise BadUsage(f"job {called} goes on: {heard.message}", hint="holdfast exits")
    return (
        f"job {called} in namespace {where}: {heard.message}\n"
        f"watch it end: holdfast logs {called} --platform kubernetes -n {where} --follow"
    )


def _over(name: str, namespace: str, state: ClusterJobState) -> str:
    return f"job {name} in namespace {namespace} is over already: it has {state.value}; there is nothing to stop"


def _heard(
    api: BlockingClient, namespace: str, name: str, wish: StopAnnotation, version: str
) -> StopAnnotationReply | None:
    query = {
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": version,
        "watch": "true",
        "timeoutSeconds": str(HEARD_S),
    }
    try:
        with api.lines(f"/apis/batch/v1/namespaces/{namespace}/jobs", query) as lines:
            for line in lines:
                try:
                    job = json_value(line).get("object") or {}
                except (Malformed, AttributeError):
                    return None
                heard = heard_of(job)
                if heard is not None and heard.id == wish.id:
                    return heard
    except BrokenAnswer:
        pass  # the request has been written even if the watch for the answer fails
    return None
