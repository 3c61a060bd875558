"""The owner keeps a pod for each node: asked of a server that answers as the API does."""

from __future__ import annotations

import queue
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
from holdfast.model import events as ev
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


def waiting_pod(name: str, reason: str = "Unschedulable", **status: Any) -> dict[str, Any]:
    """A pod without a node, in the words of the scheduler."""
    refused = {"type": "PodScheduled", "status": "False", "reason": reason, "message": f"{name}: no node"}
    found = running_pod(1, "") | {"status": {"phase": "Pending", "conditions": [refused], **status}}
    generation = name.removeprefix("train-1").removeprefix("-") or "0"
    found["metadata"] |= {"name": name, "uid": f"u-{name}"}
    found["metadata"]["labels"] = {**found["metadata"]["labels"], object_names.GENERATION: generation}
    return found


class WatchedPods:
    """A server with two pods whose watch sends what the test puts into it."""

    def __init__(self) -> None:
        self.changes: queue.Queue[ApiReply | None] = queue.Queue()
        self.made: list[str] = []
        #: Answers to the creation of pods; empty: they are created.
        self.refusals: list[ApiReply] = []

    def answer(self, ask: Asked) -> ApiReply | None:
        if ask.watches:
            return self.changes.get() if ask.path.endswith("/pods") else None
        if ask.path.endswith("/jobs/train"):
            return 200, {"metadata": {"uid": "job-uid"}}
        if ask.method == "POST":
            self.made.append(ask.body["metadata"]["name"])
            if self.refusals:
                return self.refusals.pop(0)
            return 201, waiting_pod(self.made[-1], "")
        if ask.path.endswith("/pods"):
            return list_reply(1, running_pod(0, "k1"), running_pod(1, "k2"))
        return list_reply(1)

    def send(self, change: str, *pods: dict[str, Any]) -> None:
        self.changes.put((200, [{"type": change, "object": found} for found in pods]))

    def lose(self, *, leaving: bool = False) -> None:
        """The pod of the second node is deleted; `leaving`: its containers still run."""
        going = running_pod(1, "k2")
        going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
        self.send("MODIFIED" if leaving else "DELETED", going)


def rooms(news: list[Any]) -> list[tuple[int, str]]:
    return [(event.place, event.words) for event in news if isinstance(event, ev.RoomChanged)]


@contextmanager
def watched(place: Path) -> Iterator[tuple[WatchedPods, Callable[[Callable[[], object]], None], list[Any]]]:
    """The server, a wait for something, and the events that the owner's pods have led to."""
    server, news = WatchedPods(), list[Any]()
    with keeping(server.answer, place, []) as (reactor, pods):

        def wait(seen: Callable[[], object]) -> None:
            end = reactor.now() + 60
            while not seen():
                assert reactor.now() < end, (news, server.made)
                reactor.wait(lambda found: news.extend(found or ()), longest_s=0.5)

        pods.begin(lambda uid: None)
        wait(lambda: pods.find("train-1") is not None)
        yield server, wait, news
        server.changes.put(None)


@pytest.mark.real
@pytest.mark.extras
def test_no_room_for_a_pod_is_reported_once_and_so_is_room_again(tmp_path: Path) -> None:
    with watched(tmp_path) as (server, wait, news):
        server.lose()
        wait(lambda: server.made)
        for number in range(2):  # the scheduler says it again when it tries again
            server.send("MODIFIED", waiting_pod("train-1-1"), waiting_pod("train-1-1", startTime=str(number)))
        wait(lambda: rooms(news))
        placed = waiting_pod("train-1-1")
        placed["spec"], placed["status"] = {"nodeName": "k3"}, {"phase": "Pending"}
        server.send("MODIFIED", placed)
        wait(lambda: len(rooms(news)) > 1)
    ((place, words), again) = rooms(news)
    assert place == 1 and "Unschedulable: train-1-1: no node" in words
    assert again == (1, "")


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize(
    "hopeful",
    [
        waiting_pod("train-1-1", "SchedulingGated"),
        waiting_pod("train-1-1", "SchedulerError"),
        waiting_pod("train-1-1", nominatedNodeName="k3"),
    ],
    ids=["held back by a queue", "the scheduler's own error", "others make room for it"],
)
def test_a_pod_that_may_still_get_a_node_is_no_lack_of_room(hopeful: dict[str, Any], tmp_path: Path) -> None:
    with watched(tmp_path) as (server, wait, news):
        server.lose()
        wait(lambda: server.made)
        server.send("MODIFIED", hopeful)
        refused = waiting_pod("train-1-1")
        refused["status"]["conditions"][0]["message"] = "now there is none"
        server.send("MODIFIED", refused)
        wait(lambda: rooms(news))
    ((_, words),) = rooms(news)
    assert "now there is none" in words


@pytest.mark.real
@pytest.mark.extras
def test_room_is_judged_when_the_job_s_own_pod_has_left_its_node(tmp_path: Path) -> None:
    """The successor often waits for exactly that room."""
    with watched(tmp_path) as (server, wait, news):
        server.lose(leaving=True)
        wait(lambda: server.made)
        server.send("MODIFIED", waiting_pod("train-1-1"))
        placed = waiting_pod("train-1-1")
        placed["spec"], placed["status"] = {"nodeName": "k2"}, {"phase": "Pending"}
        server.lose()
        server.send("MODIFIED", placed)
        gone = waiting_pod("train-1-1")
        gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        server.send("DELETED", gone)
        wait(lambda: "train-1-2" in server.made)
        assert not rooms(news), "there was room all the time"
        server.send("MODIFIED", waiting_pod("train-1-2"))
        wait(lambda: rooms(news))
    ((_, words),) = rooms(news)
    assert "train-1-2" in words


@pytest.mark.real
@pytest.mark.extras
@pytest.mark.parametrize(
    ("refusal", "lacks"),
    [
        (status(403, "Forbidden", 'pods "train-1-1" is forbidden: exceeded quota: small'), True),
        (status(503, "ServiceUnavailable", "etcd is away"), False),
        (status(403, "Forbidden", "no create on pods"), True),
    ],
    ids=["a quota", "the server is away", "a right is missing"],
)
def test_a_pod_that_cannot_be_created_is_a_lack_of_room(refusal: ApiReply, lacks: bool, tmp_path: Path) -> None:
    with watched(tmp_path) as (server, wait, news):
        server.refusals = [refusal] * (2 if "quota" in str(refusal) else 1)
        server.lose()
        wait(lambda: rooms(news) if lacks else len(server.made) > 1)
    assert [bool(words) for _, words in rooms(news)] == ([True] if lacks else [])
