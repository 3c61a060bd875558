"""Determine a job's status from its objects in a cluster, for `jobs`, `show`, `logs` and `stop`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.decisions import JobReport
from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Event, Pod, PodPhase, api_time, event, pod
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.objects.saved_state import Header
from holdfast.safe_text import one_line
from holdfast.untrusted import Malformed, json_as, json_leniently

#: Key in the state ConfigMap under which the job's report is stored.
REPORT = "report.json"
MOST_PLAN_BYTES = 1 << 20
MOST_EVENTS = 20
#: Maximum length of a termination message, in bytes. The kubelet cuts longer messages.
MOST_MESSAGE_BYTES = 4096


class ClusterJobState(enum.StrEnum):
    """State of a job in a cluster."""

    #: The owner's pod has not started.
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: Kubernetes is deleting the job's objects.
    ENDING = "ending"


class ClusterJob(Noun, frozen=True, kw_only=True):
    """The status of one job in a cluster."""

    #: Name of the job's objects.
    name: str
    namespace: str
    uid: str
    state: ClusterJobState
    #: When the Kubernetes Job was created, in seconds since the epoch.
    created: float
    ended: float | None = None
    #: The job's final code from the owner's report. Without a report, the exit status of the owner's last container.
    code: int | None = None
    phrase: str = ""
    #: Why the job has ended, or why it has not started, as a clause for messages.
    said: str = ""
    #: The owner's newest pod.
    owner: Pod | None = None
    #: Agents' pods, sorted by node and generation.
    pods: tuple[Pod, ...] = ()
    #: Number of pods in the job's plan; 0 if unknown.
    nodes: int = 0
    running: int = 0
    #: Number of the last attempt that the owner has recorded; 0 if it has recorded none.
    attempt: int = 0


def job_seen(
    job: Mapping[str, Any],
    pods: Iterable[Any],
    plan: PodPlan | None = None,
    header: Header | None = None,
    events: Iterable[Event] = (),
) -> ClusterJob:
    """Derive a job's status from its objects.

    `job`: the Job from the API server.
    `pods`: pods with the job's label.
    `header`: the header of the owner's saved state.
    `events`: events about Jobs of the namespace.
    """
    meta, status = job.get("metadata") or {}, job.get("status") or {}
    found = [(str((each.get("metadata") or {}).get("creationTimestamp") or ""), pod(each)) for each in pods]
    own = sorted(
        (each for each in found if each[1].labels.get(object_names.PART) == object_names.OWNER),
        key=lambda each: each[0],
    )
    agents = sorted((each for _, each in found if each.labels.get(object_names.PART) == object_names.AGENT), key=_place)
    owner = own[-1][1] if own else None
    ended, state, said = _end(status)
    if state is None:
        state = (
            ClusterJobState.RUNNING
            if owner is not None and owner.phase is PodPhase.RUNNING
            else ClusterJobState.PENDING
        )
        if meta.get("deletionTimestamp"):
            state = ClusterJobState.ENDING
        if state is ClusterJobState.PENDING:
            said = _waits(job, owner) or _not_created(meta, events)
        elif state is ClusterJobState.RUNNING:
            said = _lacks([each for _, each in own], agents, header)
    code, phrase, words = (
        verdict(owner) if state in (ClusterJobState.SUCCEEDED, ClusterJobState.FAILED) else (None, "", "")
    )
    return ClusterJob(
        name=str(meta.get("name") or ""),
        namespace=str(meta.get("namespace") or ""),
        uid=str(meta.get("uid") or ""),
        state=state,
        created=api_time(str(meta.get("creationTimestamp") or "")),
        ended=ended,
        code=0 if state is ClusterJobState.SUCCEEDED else code,
        phrase=phrase,
        said=words or said,
        owner=owner,
        pods=tuple(agents),
        nodes=plan.nodes if plan is not None else 0,
        running=sum(_runs(each) for each in agents),
        attempt=header.attempt if header is not None else 0,
    )


def _waits(job: Mapping[str, Any], owner: Pod | None) -> str:
    """Return why a job has not started."""
    if (job.get("spec") or {}).get("suspend") is True:
        queue = ((job.get("metadata") or {}).get("labels") or {}).get("kueue.x-k8s.io/queue-name", "")
        whose = f"Kueue's queue {one_line(str(queue))}" if queue else "a queue such as Kueue's, or its administrator"
        return f"the Job is suspended (spec.suspend): {whose} lets it begin"
    return _before(owner) if owner is not None else ""


def _not_created(meta: Mapping[str, Any], events: Iterable[Event]) -> str:
    """Return why Kubernetes cannot create the owner's pod: a quota, a limit, or a rule for pods."""
    refused = [each for each in events if each.reason == "FailedCreate" and each.of == meta.get("uid")]
    last = max(refused, key=lambda each: each.at, default=None)
    return f"the owner's pod cannot be made: {last.message}" if last is not None else ""


def _lacks(owners: Sequence[Pod], agents: Sequence[Pod], header: Header | None) -> str:
    """Return why a running job has not all of its pods."""
    if header is not None and header.waits:
        return header.waits
    if (held := next((each for each in newest(agents) if _stuck(each)), None)) is not None:
        return f"pod {held.name} waits ({_stuck(held)})"
    return _before(owners[-2]) if len(owners) > 1 and not any(map(_runs, agents)) else ""


def _before(owner: Pod) -> str:
    """Return why Kubernetes does not run the owner's pod."""
    if why := waits(owner):
        return why
    code, phrase, words = verdict(owner)
    why = ": ".join(filter(None, (phrase, words)))
    return f"its pod {owner.name} ended with {code}{f' ({why})' if why else ''}" if code is not None else ""


def is_over(job: Mapping[str, Any]) -> bool:
    """Whether a Kubernetes Job has succeeded or failed."""
    return _end(job.get("status") or {})[1] is not None


def _place(found: Pod) -> tuple[int, int]:
    return _number(found.labels.get(object_names.NODE)), _number(found.labels.get(object_names.GENERATION))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 0


def _runs(found: Pod) -> bool:
    task = found.container(object_names.TASK)
    return task is not None and task.running and not found.deleting


def _end(status: Mapping[str, Any]) -> tuple[float | None, ClusterJobState | None, str]:
    for each in status.get("conditions") or ():
        if each.get("status") == "True" and each.get("type") in ("Complete", "Failed"):
            state = ClusterJobState.SUCCEEDED if each["type"] == "Complete" else ClusterJobState.FAILED
            words = one_line(str(each.get("message") or each.get("reason") or ""))
            return api_time(str(each.get("lastTransitionTime") or "")) or None, state, words
    return None, None, ""


def verdict(owner: Pod | None) -> tuple[int | None, str, str]:
    """Return code, failure class and reason from the termination message of the owner's container."""
    container = owner.container("owner") if owner is not None else None
    end = (container.end or container.last) if container is not None else None
    if end is None:
        return None, "", ""
    try:
        said = json_leniently(end.message)
    except Malformed:
        said = None
    if isinstance(said, dict):
        code = next((said[key] for key in ("code", "exitcode", "exit_code") if isinstance(said.get(key), int)), None)
        reason = str(said.get("reason") or said.get("words") or "")
        return (end.code if code is None else code), one_line(str(said.get("phrase") or "")), one_line(reason)
    lines = end.message.strip().splitlines()
    return end.code, "", one_line(lines[-1]) if lines else end.reason


def termination_message(report: JobReport) -> bytes:
    """Encode a report as a termination message. `verdict` decodes it, and `kubectl describe pod` prints it."""
    why = report.report
    rank = {"rank": why.first.rank, "node": why.first.node} if why.first is not None else {}
    whole: dict[str, Any] = {
        "job": report.name,
        "outcome": report.outcome.value,
        "phrase": why.phrase,
        "code": why.code,
        "blame": why.blame.value,
        "rerun": why.rerun.value,
        "attempts": len(report.attempts),
        **rank,
        "reason": why.reason,
        "solution": why.solution,
    }
    for key in ("solution", "reason", "solution", "reason"):
        over = len(msgspec.json.encode(whole)) - MOST_MESSAGE_BYTES
        if over > 0:
            # Each removed character shortens the JSON by at least one byte, so removing `over` characters is enough. A
            # shorter text becomes empty.
            text = str(whole[key])
            whole[key] = text[: max(len(text) - over, 0)] if len(text) > over else ""
    return msgspec.json.encode(whole)


def waits(found: Pod) -> str:
    """Return why a pod has not started, in Kubernetes' words. Return "" if the pod has started."""
    if found.phase not in (PodPhase.PENDING, PodPhase.UNKNOWN):
        return ""
    if why := _stuck(found):
        return why
    for each in found.prepares:
        if each.running:
            return "it prepares"
    return "its containers are being made" if found.node else "no node has been chosen yet"


def _stuck(found: Pod) -> str:
    """Return the reason that keeps a pod from starting, in Kubernetes' words. Return "" if nothing is wrong so far."""
    if found.phase not in (PodPhase.PENDING, PodPhase.UNKNOWN):
        return ""
    placed = found.condition("PodScheduled")
    if placed is not None and not placed.true:
        return f"{placed.reason}: {placed.message}" if placed.message else placed.reason
    for each in (*found.prepares, *found.containers):
        if each.waiting and each.waiting not in ("PodInitializing", "ContainerCreating"):
            return f"{each.waiting}: {each.message}" if each.message else each.waiting
    return ""


def pod_in_words(found: Pod) -> str:
    """Describe the state of an agent's pod in words."""
    if found.deleting:
        return "is being deleted"
    if why := waits(found):
        return f"waits ({why})"
    task = found.container(object_names.TASK)
    if task is not None and task.end is not None:
        return f"ended with {task.end.code}{f' ({task.end.reason})' if task.end.reason not in ('', 'Error') else ''}"
    if found.reason:
        return f"{found.phase.value.lower()} ({found.reason}{f': {found.message}' if found.message else ''})"
    return "runs" if _runs(found) else found.phase.value.lower()


def newest(pods: Sequence[Pod]) -> list[Pod]:
    """Return the newest pod of each node."""
    return list({each.labels.get(object_names.NODE, each.name): each for each in pods}.values())


def plan_of(config: Any) -> PodPlan | None:
    """Parse the pod plan in a job's ConfigMap. Return None if the plan is missing or invalid."""
    text = ((config or {}).get("data") or {}).get(object_names.PLAN_FILE) if isinstance(config, Mapping) else None
    try:
        return json_as(text, PodPlan, most_bytes=MOST_PLAN_BYTES) if isinstance(text, str) else None
    except Malformed:
        return None


def placement(plan: PodPlan) -> str:
    """Describe how the job's pods are placed, in words."""
    if plan.together.kind:
        return f"{plan.together.kind} places the {plan.nodes} pods at once"
    if plan.nodes > 1:
        return f"the gang waits for all of its {plan.nodes} pods itself: no gang scheduler places them at once"
    return ""


def rank_at(plan: PodPlan, rank: int) -> tuple[int, int] | None:
    """Return the index of a rank's pod and the number of workers in this pod. Return None if there is no such rank."""
    index = 0
    for shape in plan.shapes:
        if rank < shape.pods * shape.workers:
            return index + rank // shape.workers, shape.workers
        rank -= shape.pods * shape.workers
        index += shape.pods
    return None


def events_seen(items: Iterable[Any]) -> list[Event]:
    """Parse Kubernetes events, sort them by time, and return the last ones."""
    return sorted(map(event, items), key=lambda each: each.at)[-MOST_EVENTS:]
