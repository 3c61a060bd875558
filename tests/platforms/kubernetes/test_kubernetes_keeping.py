"""The owner keeps a pod for each node: asked of a server that answers as the API does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, list_reply

from holdfast.clock import Clock
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.job_pods import JobPods
from holdfast.platforms.kubernetes.owner.node_places import GangPatience, PodLost, PodPending, PodsImpossible
from holdfast.reactor import Reactor

TWO_PODS = PodPlan(
    name="train",
    namespace="ns",
    job="train",
    shapes=(PodShape(roles=("worker",), pods=2, workers=1, image="i"),),
    holdfast_image="h",
)


def running_pod(index: int, node: str) -> dict[str, Any]:
    labels = {object_names.NODE: str(index), object_names.GENERATION: "0"}
    return {
        "metadata": {"name": f"train-{index}", "uid": f"u{index}", "labels": labels, "resourceVersion": "1"},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize("avoid", [True, False])
def test_a_pod_that_is_to_be_replaced_is_deleted_and_its_successor_keeps_off_the_node(
    avoid: bool, tmp_path: Path
) -> None:
    over = threading.Event()
    asked: list[Asked] = []

    def answer(ask: Asked) -> ApiReply | None:
        asked.append(ask)
        if ask.watches:
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            return 201, {**ask.body, "metadata": {**ask.body["metadata"], "uid": "new"}}
        return (200, {}) if ask.method == "DELETE" else list_reply(1, running_pod(0, "k1"), running_pod(1, "k2"))

    told: list[PodLost | PodsImpossible | PodPending] = []
    with api(answer, tmp_path) as environment:
        reactor = Reactor(Clock().now)
        asking = ApiHelper(reactor, environment)
        pods = JobPods(
            asking,
            TWO_PODS,
            "order",
            lambda text: None,
            lambda said, now: told.append(said),
            lambda pod: None,
            GangPatience(nodes_s=lambda: 60.0, silent_s=11.0, heard_at=lambda node: None),
        )
        uids: list[str] = []
        pods.begin(uids.append)

        def until(method: str) -> Asked:
            end = reactor.now() + 60
            while not (found := [each for each in asked if each.method == method]):
                assert reactor.now() < end
                reactor.wait(longest_s=1.0)
            return found[0]

        while pods.find("train-1") is None:
            reactor.wait(longest_s=1.0)
        pods.joined("train-1", reactor.now())
        pods.replace("train-1", PodEndReason(phrase="NodeFailed", words="w"), reactor.now(), avoid=avoid)
        made, deleted = until("POST").body, until("DELETE")
        asking.close()
        over.set()
        reactor.close()
    assert uids == ["job-uid"] and not told
    assert deleted.path == "/api/v1/namespaces/ns/pods/train-1"
    assert made["metadata"]["name"] == "train-1-1"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    away = {"key": "metadata.name", "operator": "NotIn", "values": ["k2"]}
    near = made["spec"]["affinity"]["nodeAffinity"]
    if avoid:
        terms = near["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms == [{"matchFields": [away]}]
    else:
        (rather,) = near["preferredDuringSchedulingIgnoredDuringExecution"]
        assert rather == {"weight": 100, "preference": {"matchFields": [away]}}
    env = {each["name"]: each.get("value") for each in made["spec"]["containers"][0]["env"]}
    assert env["HOLDFAST_ORDER"] == "order"


@pytest.mark.real
@pytest.mark.extras
def test_the_end_of_a_job_deletes_no_pod_whose_agent_was_let_in(tmp_path: Path) -> None:
    """Its kubelet may not have said yet that it runs, and its log would go with it."""
    over = threading.Event()
    deleted: list[str] = []

    def answer(ask: Asked) -> ApiReply | None:
        if ask.watches:
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "DELETE":
            deleted.append(ask.path)
            return 200, {}
        pending = [running_pod(index, f"k{index}") | {"status": {"phase": "Pending"}} for index in (0, 1)]
        return list_reply(1, *pending)

    with api(answer, tmp_path) as environment:
        reactor = Reactor(Clock().now)
        asking = ApiHelper(reactor, environment)
        pods = JobPods(
            asking,
            TWO_PODS,
            "order",
            lambda text: None,
            lambda said, now: None,
            lambda pod: None,
            GangPatience(nodes_s=lambda: 60.0, silent_s=11.0, heard_at=lambda node: None),
        )
        pods.begin(lambda uid: None)
        while pods.find("train-1") is None:
            reactor.wait(longest_s=1.0)
        pods.joined("train-1", reactor.now())
        pods.finish()
        while pods.deleting:
            reactor.wait(longest_s=1.0)
        asking.close()
        over.set()
        reactor.close()
    assert deleted == ["/api/v1/namespaces/ns/pods/train-0"]


@pytest.mark.real
@pytest.mark.extras
def test_a_pod_whose_trouble_is_seen_before_the_answer_that_it_is_made_is_told_of(tmp_path: Path) -> None:
    """The watch is a connection of its own: it may be faster than the answer, and nothing changes after that."""
    over, seen = threading.Event(), threading.Event()
    words = "0/3 nodes are available: 3 Insufficient cpu."
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    watches: list[str] = []

    def answer(ask: Asked) -> ApiReply | None:
        if ask.watches:
            watches.append(ask.path)
            if ask.path.endswith("/pods") and watches.count(ask.path) == 1:
                waiting = running_pod(0, "") | {"status": {"phase": "Pending", "conditions": [refused]}}
                return 200, [{"type": "ADDED", "object": waiting}]
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            seen.wait(60)
            return 201, {**ask.body, "metadata": {**ask.body["metadata"], "uid": "u0"}}
        return list_reply(1)

    told: list[PodLost | PodsImpossible | PodPending] = []
    with api(answer, tmp_path) as environment:
        reactor = Reactor(Clock().now)
        asking = ApiHelper(reactor, environment)
        pods = JobPods(
            asking,
            TWO_PODS,
            "order",
            lambda text: None,
            lambda said, now: told.append(said),
            lambda pod: None,
            GangPatience(nodes_s=lambda: 60.0, silent_s=11.0, heard_at=lambda node: None),
        )
        pods.begin(lambda uid: None)
        while pods.find("train-0") is None:
            reactor.wait(longest_s=1.0)
        assert not told, "its making was not answered so far"
        seen.set()
        end = reactor.now() + 60
        while not told:
            assert reactor.now() < end
            reactor.wait(longest_s=1.0)
        asking.close()
        over.set()
        reactor.close()
    (waits,) = told
    assert isinstance(waits, PodPending) and waits.pod.name == "train-0" and words in waits.words
