"""Why a pod is gone, and why one does not start: documents of real pods, and those of newer versions made from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.platforms.kubernetes.objects import api_records
from holdfast.platforms.kubernetes.objects.api_records import Condition, Pod
from holdfast.platforms.kubernetes.objects.pod_failures import (
    StartOutlook,
    describe,
    failed_prepare,
    pod_end_reason,
    pod_wait_reason,
)
from holdfast.platforms.kubernetes.owner.node_places import neighbourhood
from places import DATA

RECORDED = DATA / "kubernetes"


def document(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


def recorded_pod(name: str) -> Pod:
    return api_records.pod(document(name))


def events(found: Pod) -> tuple[api_records.Event, ...]:
    every = (api_records.event(item) for item in document("events")["items"])
    return tuple(event for event in every if event.of == found.uid)


GONE = {
    "deadline": (
        "TimeLimitReached",
        "its activeDeadlineSeconds are over (DeadlineExceeded: Pod was active on the node",
    ),
    "diskpig": ("Evicted", "its node evicted it (Evicted: Pod ephemeral local storage usage exceeds the total limit"),
    "evictme": ("Evicted", "it was deleted: by kubectl delete pod, by kubectl drain, or by a part of Kubernetes"),
    "initfails": ("DataNotFound", "the node was not prepared: s3://x/y: 404"),
    "nocommand": ("CommandNotFound", "its container task cannot be started (StartError: failed to create containerd"),
    "oom": ("HostOutOfMemoryKilled", "the kernel killed its container task at its memory limit (OOMKilled)"),
    "sleeper_lost": ("NodeFailed", "its node is not ready (NodeNotReady: Node is not ready)"),
    "victim": ("Preempted", "the scheduler preempted it (Preempted: Preempted by default/preemptor on node k1)"),
}


@pytest.mark.parametrize("name", GONE)
def test_a_pod_that_is_gone_has_a_phrase_and_kubernetes_own_words(name: str) -> None:
    found = recorded_pod(name)
    why = pod_end_reason(found, events(found))
    assert why is not None
    phrase, words = GONE[name]
    assert (why.phrase, why.words[: len(words)]) == (phrase, words)
    assert pod_wait_reason(found, events(found)) is None


WAITING_PODS = {
    "badname": (
        "ImagePullFailed",
        StartOutlook.NONE,
        "the name of its image is none (InvalidImageName: Failed to apply",
    ),
    "never": (
        "ImagePullFailed",
        StartOutlook.NONE,
        "its image is not on the node, and imagePullPolicy is Never (ErrImageNever",
    ),
    "noconfig": (
        "SchedulerError",
        StartOutlook.SOME,
        'what its container needs is not there (CreateContainerConfigError: configmap "absent" not found)',
    ),
    "noroom": (
        "ResourcesInsufficient",
        StartOutlook.YES,
        "it has no node (Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.)",
    ),
    "novolume": (
        "SchedulerError",
        StartOutlook.YES,
        'its volumes or its network are not ready (FailedMount: MountVolume.SetUp failed for volume "v" : secret "abs',
    ),
    "pull": (
        "ImagePullFailed",
        StartOutlook.SOME,
        "its image cannot be pulled (ImagePullBackOff: Failed to pull image",
    ),
}


@pytest.mark.parametrize("name", WAITING_PODS)
def test_a_pod_that_does_not_start_says_what_it_waits_for(name: str) -> None:
    found = recorded_pod(name)
    why = pod_wait_reason(found, events(found))
    assert why is not None
    phrase, outlook, words = WAITING_PODS[name]
    assert (why.phrase, why.outlook, why.words[: len(words)]) == (phrase, outlook, words)
    assert pod_end_reason(found, events(found)) is None


def test_a_pod_that_runs_is_neither_gone_nor_waits() -> None:
    found = recorded_pod("sleeper")
    assert pod_end_reason(found, events(found)) is None and pod_wait_reason(found) is None
    assert describe(found) == "kubectl -n default describe pod sleeper"


@pytest.mark.parametrize(
    ("reason", "message", "phrase"),
    [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", "Preempted"),
        ("EvictionByEvictionAPI", "Eviction API: evicting", "Evicted"),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "NodeFailed"),
        ("DeletionByPodGC", "PodGC: node no longer exists", "NodeFailed"),
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "Preempted"),
        ("TerminationByKubelet", "The node was low on resource: memory.", "Evicted"),
        ("SomethingNew", "of a later version", "Evicted"),
    ],
)
def test_the_condition_of_newer_versions_comes_first(reason: str, message: str, phrase: str) -> None:
    found = recorded_pod("victim")
    target = Condition(kind="DisruptionTarget", status="True", reason=reason, message=message)
    found = replace(found, conditions=(*found.conditions, target))
    why = pod_end_reason(found, events(found))
    assert why is not None and why.certain
    assert (why.phrase, f"({reason}: {message})" in why.words) == (phrase, True)


def test_a_silent_node_has_an_unknown_state_and_taints() -> None:
    lost = api_records.node(document("node_lost"))
    assert lost.ready is not None and lost.ready.status == "Unknown"
    assert lost.taints == ("node.kubernetes.io/unreachable",) * 2


def test_a_pod_of_a_silent_node_is_told_from_a_deleted_one_before_any_event_comes() -> None:
    lost, deleted = recorded_pod("sleeper_lost"), recorded_pod("evictme")
    why = pod_end_reason(lost)
    assert why is not None and (why.phrase, why.certain) == ("NodeFailed", True)
    told = pod_end_reason(deleted)
    assert told is not None and (told.phrase, told.certain) == ("Evicted", False), "a node that answers"


def test_a_termination_message_that_is_no_json_is_quoted_as_it_is() -> None:
    found = recorded_pod("initfails")
    (prepare,) = found.prepares
    assert prepare.end is not None
    for message, words in (
        ("fetching s3://x\nno such bucket\n", "the node was not prepared: no such bucket"),
        ('["no", "object"]', 'the node was not prepared: ["no", "object"]'),
        ("", "the node was not prepared: Error"),
    ):
        ended = replace(prepare, end=replace(prepare.end, message=message))
        why = failed_prepare(replace(found, prepares=(ended,)))
        assert why is not None and (why.phrase, why.words) == ("SchedulerError", words)


@pytest.mark.parametrize("item", [None, [], "pod", {}, {"metadata": 1, "spec": [], "status": {"phase": 7}}])
def test_a_document_that_is_none_is_an_empty_record(item: Any) -> None:
    assert api_records.pod(item) == Pod(name="")
    assert api_records.node(item).name == "" and api_records.event(item).reason == ""


def test_ranks_go_by_zone_and_rack_where_labels_tell_them() -> None:
    zone, rack = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
    nodes = {"a": {zone: "z2", rack: "r1"}, "b": {zone: "z1", rack: "r2"}, "c": {zone: "z1", rack: "r1"}}
    assert sorted(nodes, key=lambda name: neighbourhood(nodes[name])) == ["c", "b", "a"]
    assert neighbourhood({"kubernetes.io/hostname": "k1"}) == ()


def test_an_image_that_runs_as_root_ends_the_job_at_once_with_what_to_set() -> None:
    message = "container has runAsNonRoot and image will run as root"
    waiting = {"name": "task", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}
    found = pod_wait_reason(
        api_records.pod({"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}})
    )
    assert found is not None and found.outlook is StartOutlook.NONE
    assert "`pod_security: baseline`" in found.words and message in found.words
