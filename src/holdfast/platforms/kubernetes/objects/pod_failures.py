"""Determine the failure class, with Kubernetes' own message, of a pod that has ended or does not start.

The condition DisruptionTarget (since Kubernetes 1.26) is the first source. Older versions only have events.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.platforms.kubernetes.objects.api_records import Container, Event, Pod, PodPhase
from holdfast.platforms.kubernetes.objects.object_names import PREPARE
from holdfast.safe_text import one_line
from holdfast.untrusted import Malformed, json_value

_QUOTED = 600


class StartOutlook(enum.StrEnum):
    """Whether a pod that has not started may still start."""

    #: The pod waits for resources, or for a start step in progress, such as an image pull.
    YES = "yes"
    #: The pod's node retries a failed start step, such as an image pull. The step may succeed within minutes.
    SOME = "some"
    #: The pod can never start, because its spec is wrong.
    NONE = "none"


class PodEndReason(Noun, frozen=True, kw_only=True):
    """Why a pod has ended, or is about to end."""

    phrase: str
    #: The reason as a clause, such as `it was preempted: "Preempted by default/x on node k1"`.
    words: str
    #: Whether the reason is final. If false, a later message from Kubernetes may explain the end better.
    certain: bool = True
    #: Whether a replacement for the pod may succeed.
    again: bool = True


class PodWaitReason(Noun, frozen=True, kw_only=True):
    """Why a pod does not start, and whether it still may."""

    phrase: str
    words: str
    outlook: StartOutlook


def describe(pod: Pod) -> str:
    """Return the kubectl command that shows the reason for the pod's state."""
    return f"kubectl -n {pod.namespace or 'default'} describe pod {pod.name}"


# ---------------------------------------------------------------------------------------------- why a pod has ended

#: Maps reasons of the condition DisruptionTarget to the failure class and a clause.
_DISRUPTIONS = {
    "PreemptionByScheduler": (Phrase.PREEMPTED, "the scheduler preempted it"),
    "PreemptionByKubeScheduler": (Phrase.PREEMPTED, "the scheduler preempted it"),
    "EvictionByEvictionAPI": (Phrase.EVICTED, "it was evicted through the API"),
    "DeletionByTaintManager": (Phrase.NODE_FAILED, "its node was tainted, and the pod does not tolerate that"),
    "DeletionByPodGC": (Phrase.NODE_FAILED, "its node is gone"),
    "TerminationByKubelet": (Phrase.EVICTED, "its node ended it"),
}
#: Maps reasons in a pod's status to the failure class and a clause.
_REASONS = {
    "Evicted": (Phrase.EVICTED, "its node evicted it"),
    "Preempting": (Phrase.PREEMPTED, "its node ended it for a critical pod"),
    "NodeLost": (Phrase.NODE_FAILED, "its node is lost"),
    "NodeShutdown": (Phrase.PREEMPTED, "its node is shut down"),
    "Shutdown": (Phrase.PREEMPTED, "its node is shut down"),
    "Terminated": (Phrase.PREEMPTED, "its node is shut down"),
    "DeadlineExceeded": (Phrase.TIME_LIMIT_REACHED, "its activeDeadlineSeconds are over"),
    "NodeAffinity": (Phrase.SCHEDULER_ERROR, "its node does not take it"),
    "UnexpectedAdmissionError": (Phrase.SCHEDULER_ERROR, "its node does not take it"),
    "OutOfcpu": (Phrase.SCHEDULER_ERROR, "its node has no room for it"),
    "OutOfmemory": (Phrase.SCHEDULER_ERROR, "its node has no room for it"),
    "OutOfpods": (Phrase.SCHEDULER_ERROR, "its node has no room for it"),
}
#: Maps reasons of events to the failure class and a clause, the most informative reason first.
_EVENTS = {
    "Preempted": (Phrase.PREEMPTED, "the scheduler preempted it"),
    "Evicted": (Phrase.EVICTED, "its node evicted it"),
    "TaintManagerEviction": (Phrase.NODE_FAILED, "its node was tainted, and the pod does not tolerate that"),
    "NodeControllerEviction": (Phrase.NODE_FAILED, "its node does not answer"),
    "NodeNotReady": (Phrase.NODE_FAILED, "its node is not ready"),
    "ExceededGracePeriod": (Phrase.EVICTED, "its node ended it"),
}


def pod_end_reason(pod: Pod, events: Iterable[Event] = ()) -> PodEndReason | None:
    """Return why a pod has ended, is ending or has disappeared. Return None if the pod goes on.

    `events`: Kubernetes' events about this pod.
    """
    if not (pod.over or pod.deleting):
        return None
    target = pod.condition("DisruptionTarget")
    if target is not None and target.true:
        phrase, words = _DISRUPTIONS.get(target.reason, (Phrase.EVICTED, "a part of Kubernetes ended it"))
        if "shutdown" in target.message.lower():
            phrase, words = Phrase.PREEMPTED, "its node is shut down"
        return PodEndReason(phrase=phrase, words=_said(words, target.reason, target.message))
    if (found := _REASONS.get(pod.reason)) is not None:
        return PodEndReason(phrase=found[0], words=_said(found[1], pod.reason, pod.message))
    if (failed := failed_prepare(pod)) is not None:
        return failed
    by_reason = {event.reason: event for event in events}
    for reason, (phrase, words) in _EVENTS.items():
        if (event := by_reason.get(reason)) is not None:
            return PodEndReason(phrase=phrase, words=_said(words, reason, event.message))
    if pod.deleting and _node_silent(pod):
        return PodEndReason(
            phrase=Phrase.NODE_FAILED, words="its node does not answer: Kubernetes marked the pod as not ready"
        )
    if pod.deleting and not pod.over:
        return PodEndReason(phrase=Phrase.EVICTED, words=_DELETED, certain=False)
    return _ended(pod)


def silent_pod(silent_s: float) -> PodEndReason:
    """Return the reason for a deleted pod whose agent was silent for `silent_s` seconds before."""
    words = f"its node does not answer: the pod was deleted, and its agent has not answered for {silent_s:.0f} s"
    return PodEndReason(phrase=Phrase.NODE_FAILED, words=words)


def by_force() -> PodEndReason:
    """Return the reason for the end of a pod whose object has disappeared, although Kubernetes had not reported the
    end.
    """
    return PodEndReason(phrase=Phrase.EVICTED, words="it was taken off the list of pods by force")


_DELETED = "it was deleted: by kubectl delete pod, by kubectl drain, or by a part of Kubernetes that does not say so"


def _node_silent(pod: Pod) -> bool:
    """Whether the node controller, not the kubelet, has marked the pod as not ready.

    The node controller leaves the containers ready and sets no reason (`MarkPodsNotReady` in Kubernetes). It marks the
    pod before the pod is deleted. The event about the change may come late.
    """
    ready, containers = pod.condition("Ready"), pod.condition("ContainersReady")
    if ready is None or containers is None:
        return False
    return ready.status == "False" and not ready.reason and containers.true


def _ended(pod: Pod) -> PodEndReason:
    """Return the reason for the end of a pod whose containers have exited."""
    for container in pod.containers:
        if (end := container.end) is None:
            continue
        if end.reason == "OOMKilled":
            return PodEndReason(
                phrase=Phrase.HOST_OUT_OF_MEMORY_KILLED,
                words=_said(f"the kernel killed its container {container.name} at its memory limit", end.reason, ""),
            )
        if end.reason in ("StartError", "ContainerCannotRun", "RunContainerError"):
            words = _said(f"its container {container.name} cannot be started", end.reason, end.message)
            return PodEndReason(phrase=Phrase.COMMAND_NOT_FOUND, words=words, again=False)
        how = f"with signal {end.signal}" if end.signal else f"with {end.code}"
        return PodEndReason(
            phrase=Phrase.SCHEDULER_ERROR,
            words=_said(f"its container {container.name} has ended {how}", "", _last_line(end.message)),
        )
    if pod.deleting:
        return PodEndReason(phrase=Phrase.EVICTED, words=_DELETED, certain=False)
    return PodEndReason(phrase=Phrase.SCHEDULER_ERROR, words=_said("it has failed", pod.reason, pod.message))


def failed_prepare(pod: Pod) -> PodEndReason | None:
    """Return why an init container failed. Its termination message is JSON with the failure class and the reason."""
    for container in pod.prepares:
        end = container.end
        if end is None or end.code == 0:
            continue
        phrase, words = _prepared(end.message)
        if end.reason == "OOMKilled":
            phrase = Phrase.HOST_OUT_OF_MEMORY_KILLED
        what = "the node was not prepared" if container.name == PREPARE else f"init container {container.name} failed"
        said = words or _last_line(end.message) or end.reason
        return PodEndReason(
            phrase=phrase or Phrase.SCHEDULER_ERROR, words=f"{what}: {said or f'it ended with {end.code}'}"
        )
    return None


def _prepared(message: str) -> tuple[str, str]:
    """Parse failure class and clause from an init container's termination message. Both are empty if it has none."""
    try:
        found = json_value(message.strip() or "null")
    except Malformed:
        return "", ""
    if not isinstance(found, dict):
        return "", ""
    phrase, words = found.get("phrase"), found.get("words")
    return (
        phrase if isinstance(phrase, str) else "",
        one_line(words)[:_QUOTED] if isinstance(words, str) else "",
    )


# -------------------------------------------------------------------------------------------- why a pod does not start

_HOPELESS_IMAGE = (
    "not found",
    "notfound",
    "manifest unknown",
    "does not exist",
    "denied",
    "unauthorized",
    "forbidden",
    "authentication required",
    "invalid reference",
)
#: Maps reasons for which a container waits to the failure class, a clause, and whether the pod may still start.
_WAITING = {
    "InvalidImageName": (Phrase.IMAGE_PULL_FAILED, "the name of its image is none", StartOutlook.NONE),
    "ErrImageNeverPull": (
        Phrase.IMAGE_PULL_FAILED,
        "its image is not on the node, and imagePullPolicy is Never",
        StartOutlook.NONE,
    ),
    "ErrImagePull": (Phrase.IMAGE_PULL_FAILED, "its image cannot be pulled", StartOutlook.SOME),
    "ImagePullBackOff": (Phrase.IMAGE_PULL_FAILED, "its image cannot be pulled", StartOutlook.SOME),
    "ImageInspectError": (Phrase.IMAGE_PULL_FAILED, "its image cannot be read", StartOutlook.SOME),
    "RegistryUnavailable": (Phrase.IMAGE_PULL_FAILED, "the registry does not answer", StartOutlook.SOME),
    "CreateContainerConfigError": (Phrase.SCHEDULER_ERROR, "what its container needs is not there", StartOutlook.SOME),
    "CreateContainerError": (Phrase.SCHEDULER_ERROR, "its container cannot be made", StartOutlook.SOME),
    "RunContainerError": (Phrase.COMMAND_NOT_FOUND, "its container cannot be started", StartOutlook.SOME),
    "CrashLoopBackOff": (Phrase.SCHEDULER_ERROR, "its container ends again and again", StartOutlook.SOME),
}
_MOUNTS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")


def pod_wait_reason(pod: Pod, events: Sequence[Event] = ()) -> PodWaitReason | None:
    """Return why a pod has not started. Return None if the pod has started, or if nothing is wrong so far.

    `events`: Kubernetes' events about this pod.
    """
    if pod.over or pod.deleting:
        return None
    for container in (*pod.prepares, *pod.containers):
        if (found := _WAITING.get(container.waiting)) is not None:
            return _container_waits(container, *found, events)
    scheduled = pod.condition("PodScheduled")
    if not pod.node and scheduled is not None and scheduled.status == "False":
        return PodWaitReason(
            phrase=Phrase.RESOURCES_INSUFFICIENT,
            words=_said("it has no node", scheduled.reason, scheduled.message),
            outlook=StartOutlook.YES,
        )
    # Prefer an event with the cause. The kubelet's later event only says that the mount timed out.
    mounts = [event for event in events if event.reason in _MOUNTS]
    mount = min(mounts, key=lambda event: (_sums_up(event), -event.at), default=None)
    if mount is not None and pod.phase is PodPhase.PENDING and not any(each.running for each in pod.prepares):
        words = _said("its volumes or its network are not ready", mount.reason, mount.message)
        return PodWaitReason(phrase=Phrase.SCHEDULER_ERROR, words=words, outlook=StartOutlook.YES)
    return None


def fits_nowhere(pod: Pod) -> bool:
    """Return whether the scheduler has found no room for the pod, and preempts no other pods to make room."""
    scheduled = pod.condition("PodScheduled")
    unscheduled = scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"
    return unscheduled and not pod.node and not pod.nominated


def _sums_up(event: Event) -> bool:
    return "timed out waiting" in event.message


def _container_waits(
    container: Container, phrase: str, words: str, outlook: StartOutlook, events: Sequence[Event]
) -> PodWaitReason:
    """Return why a container waits, and whether waiting helps. It does not if the image is missing or forbidden."""
    message = container.message
    if "runAsNonRoot" in message:
        words = (
            "its image runs as root, which the Pod Security level restricted forbids: name a user by number in the "
            "image (USER 1000) or in `template`, or set `pod_security: baseline` in the section `kubernetes:`"
        )
        return PodWaitReason(phrase=phrase, words=_said(words, container.waiting, message), outlook=StartOutlook.NONE)
    if container.waiting == "ImagePullBackOff":
        # ImagePullBackOff only says that the kubelet waits. The event before it has the cause.
        pulls = [event for event in events if event.reason == "Failed" and event.message.startswith("Failed to pull")]
        message = pulls[-1].message if pulls else message
    if phrase == Phrase.IMAGE_PULL_FAILED and any(word in message.lower() for word in _HOPELESS_IMAGE):
        outlook = StartOutlook.NONE
    image = f" ({container.image})" if phrase == Phrase.IMAGE_PULL_FAILED and container.image not in message else ""
    return PodWaitReason(phrase=phrase, words=_said(f"{words}{image}", container.waiting, message), outlook=outlook)


def _said(words: str, reason: str, message: str) -> str:
    """Return the clause `words`, followed by Kubernetes' own message, which is cut to a limit."""
    own = ": ".join(part for part in (reason, message[:_QUOTED]) if part)
    return f"{words} ({own})" if own else words


def _last_line(text: str) -> str:
    return next((one_line(line).strip() for line in reversed(text.splitlines()) if line.strip()), "")[:_QUOTED]
