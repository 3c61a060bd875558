"""The owner keeps a pod for each node: asked of a server that answers as the API does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kube_api import ApiReply, Asked, api, list_reply, status

from holdfast.clock import Clock
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan, PodShape
from holdfast.platforms.kubernetes.owner.api_helper import ApiHelper
from holdfast.platforms.kubernetes.owner.job_pods import JobPods
from holdfast.platforms.kubernetes.owner.node_places import GangPatience, PodLost, PodPending, PodsImpossible
from holdfast.reactor import Reactor

Said = PodLost | PodsImpossible | PodPending

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


@contextmanager
def keeping(
    answer: Callable[[Asked], ApiReply | None],
    place: Path,
    told: list[Said],
    *,
    nodes_s: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Reactor, JobPods]]:
    """The pods of a job at this server, which answers a watch with None at the end."""
    with api(answer, place) as environment:
        reactor = Reactor(Clock().now)
        asking = ApiHelper(reactor, environment)
        patience = GangPatience(nodes_s=lambda: nodes_s, silent_s=11.0, heard_at=lambda node: None)
        pods = JobPods(
            asking,
            TWO_PODS,
            "order",
            say,
            lambda said, now: told.append(said),
            lambda pod: None,
            patience,
        )
        yield reactor, pods
        asking.close()
        reactor.close()


def until(reactor: Reactor, seen: Callable[[], object]) -> None:
    end = reactor.now() + 60
    while not seen():
        assert reactor.now() < end
        reactor.wait(longest_s=1.0)


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize("patience_s", [3.0, 60.0])
def test_a_quota_that_is_used_up_is_told_of_once_and_ends_the_job_by_its_name(
    patience_s: float, tmp_path: Path
) -> None:
    over = threading.Event()
    asked: list[str] = []
    words = 'pods "train-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'

    def answer(ask: Asked) -> ApiReply | None:
        if ask.watches:
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            asked.append(ask.body["metadata"]["name"])
            if patience_s < 60 or len(asked) == 1:
                return status(403, "Forbidden", words)
            return 201, {**ask.body, "metadata": {**ask.body["metadata"], "uid": "new"}}
        return list_reply(1, running_pod(0, "k1"))

    told: list[Said] = []
    said: list[str] = []
    with keeping(answer, tmp_path, told, nodes_s=patience_s, say=said.append) as (reactor, pods):
        pods.begin(lambda uid: None)
        until(reactor, lambda: told)
        assert "exceeded quota: small" in pods.not_made
        until(reactor, lambda: len(told) > 1)
        over.set()
    assert set(asked) == {"train-1"} and len(asked) == 2 and len(said) == 1
    first, last = told
    assert isinstance(first, PodPending) and "exceeded quota: small" in first.words
    if patience_s < 60:
        assert isinstance(last, PodsImpossible) and last.phrase == "ResourcesInsufficient" and words in last.words
    else:
        assert isinstance(last, PodPending) and not last.words and not pods.not_made


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize(("reason", "phrase"), [("", "Evicted"), ("Preempted", "Preempted")])
def test_a_pod_that_was_lost_with_the_owner_is_told_of_once_and_its_successor_has_another_name(
    reason: str, phrase: str, tmp_path: Path
) -> None:
    over = threading.Event()
    made: list[str] = []
    about = {"kind": "Pod", "name": "train-1-2", "uid": "gone"}
    event = {"metadata": {"uid": "e"}, "reason": reason, "message": "m", "involvedObject": about}

    def answer(ask: Asked) -> ApiReply | None:
        if ask.watches:
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            made.append(ask.body["metadata"]["name"])
            return 201, {**ask.body, "metadata": {**ask.body["metadata"], "uid": "new"}}
        if ask.path.endswith("/events"):
            return list_reply(1, *([event] if reason else []))
        return list_reply(1, running_pod(0, "k1"))

    told: list[Said] = []
    with keeping(answer, tmp_path, told) as (reactor, pods):
        pods.begin(lambda uid: None, ["k1 (pod train-0)", "k2 (pod train-1)", "k3 (pod train-1-2)", "strange"])
        until(reactor, lambda: made)
        over.set()
    lost = [each for each in told if isinstance(each, PodLost)]
    assert made == ["train-1-3"] and len(lost) == len(told)
    assert {(each.node, each.why.phrase) for each in lost} == {("k3 (pod train-1-2)", phrase)}
    assert [each.over for each in lost].count(True) <= 1


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize("may_patch", [True, False])
@pytest.mark.parametrize("ends", ["with the job", "before"])
def test_a_container_that_was_added_to_a_pod_does_not_outlive_the_workers(
    may_patch: bool, ends: str, tmp_path: Path
) -> None:
    """A deadline keeps the pod's log. An account of a site that may not change pods deletes the pod."""
    over = threading.Event()
    asked: list[Asked] = []

    def answer(ask: Asked) -> ApiReply | None:
        if ask.method in ("PATCH", "DELETE"):
            asked.append(ask)
            return (200, {}) if may_patch or ask.method == "DELETE" else status(403, "Forbidden", "no patch")
        if ask.watches:
            over.wait(60)
            return None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            return 201, {**ask.body, "metadata": {**ask.body["metadata"], "uid": "new"}}
        served, alone = running_pod(0, "k1"), running_pod(1, "k2")
        alone["spec"]["containers"] = [{"name": "task"}]
        served["spec"]["containers"] = [{"name": "task"}, {"name": "istio-proxy"}]
        began = datetime.fromtimestamp(time.time() - 100, UTC).isoformat()
        served["status"]["startTime"] = alone["status"]["startTime"] = began
        if ends == "before":
            task = {"name": "task", "state": {"terminated": {"exitCode": 1}}}
            served["status"]["containerStatuses"] = [task, {"name": "istio-proxy", "state": {"running": {}}}]
        return list_reply(1, served, alone)

    told: list[Said] = []
    with keeping(answer, tmp_path, told) as (reactor, pods):
        pods.begin(lambda uid: None)
        until(reactor, lambda: pods.find("train-1") is not None)
        pods.joined("train-0", reactor.now())
        pods.joined("train-1", reactor.now())
        if ends == "with the job":
            pods.finish()
        until(reactor, lambda: asked and not pods.deleting)
        over.set()
    assert {ask.path for ask in asked} == {"/api/v1/namespaces/ns/pods/train-0"}
    assert [ask.method for ask in asked] == (["PATCH"] if may_patch else ["PATCH", "DELETE"])
    assert 130 <= asked[0].body["spec"]["activeDeadlineSeconds"] <= 200
    assert [type(each) for each in told] == ([PodLost] if ends == "before" else [])


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
