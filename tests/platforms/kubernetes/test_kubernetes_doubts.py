"""A pod is being deleted, and Kubernetes does not say why: its agent's silence tells a dead node from a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.platforms.kubernetes.objects.api_records import Condition, Event, Pod, PodPhase
from holdfast.platforms.kubernetes.objects.pod_context import node_name
from holdfast.platforms.kubernetes.objects.pod_failures import PodEndReason
from holdfast.platforms.kubernetes.owner.deleted_pods import DeletedPods
from holdfast.platforms.kubernetes.owner.node_places import GangPatience
from holdfast.reactor import Reactor

if TYPE_CHECKING:
    from holdfast.reactor import News

UNREADY = Condition(kind="Ready", status="False", reason="ContainersNotReady")
#: The node lost its power before its kubelet had reported that the containers run: Kubernetes gives no reason.
DELETED_POD = Pod(name="train-0", uid="u", node="k3", phase=PodPhase.PENDING, deleting=True, conditions=(UNREADY,))
DOUBTED_NODE = node_name("k3", "train-0")


class PodWorld:
    """One pod, the clock, and when its agent spoke last."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reactor = Reactor(lambda: self.now)
        self.pod = DELETED_POD
        self.events: tuple[Event, ...] = ()
        self.heard: dict[str, float] = {DOUBTED_NODE: 95.0}
        self._why: PodEndReason | None = None
        self.looks: list[float] = []
        patience = GangPatience(nodes_s=lambda: 60.0, silent_s=11.0, heard_at=self.heard.get)
        self.doubts = DeletedPods(self.reactor, patience, self.look)

    def look(self, name: str, now: float) -> News:
        self.looks.append(now)
        self._why = self.doubts.why(self.pod, self.events, now)
        return None

    def phrase(self) -> str:
        return self._why.phrase if self._why is not None else ""

    def words(self) -> str:
        return self._why.words if self._why is not None else ""

    def in_doubt(self) -> bool:
        return bool(self.doubts)

    def until(self, at: float) -> None:
        while self.now < at:
            self.now += 0.5
            self.reactor.wait(lambda news: None, longest_s=0.0)


@pytest.fixture
def pod_world() -> Iterator[PodWorld]:
    made = PodWorld()
    made.look(DELETED_POD.name, made.now)
    yield made
    made.reactor.close()


def test_an_agent_that_says_nothing_more_is_on_a_silent_node(pod_world: PodWorld) -> None:
    pod_world.until(105.5)
    assert not pod_world.phrase() and pod_world.in_doubt(), "one beat may be late"
    pod_world.until(107.5)
    assert pod_world.phrase() == "NodeFailed" and not pod_world.in_doubt()
    assert pod_world.words() == "its node does not answer: the pod was deleted, and its agent has not answered for 11 s"


def test_an_agent_that_was_silent_before_the_deletion_is_not_waited_for(pod_world: PodWorld) -> None:
    pod_world.heard[DOUBTED_NODE] = -200.0
    pod_world.until(101.0)
    assert pod_world.phrase() == "NodeFailed" and "for 301 s" in pod_world.words()


def test_an_agent_that_speaks_after_the_deletion_lives_and_the_pod_was_deleted(pod_world: PodWorld) -> None:
    pod_world.until(103.0)
    assert not pod_world.phrase()
    pod_world.heard[DOUBTED_NODE] = 103.2
    pod_world.until(104.5)
    assert pod_world.phrase() == "Evicted"
    pod_world.until(140.0)
    pod_world.look(DELETED_POD.name, pod_world.now)
    assert pod_world.phrase() == "Evicted", "what was told once is not told otherwise later"


def test_a_pod_without_an_agent_is_in_doubt_for_a_second(pod_world: PodWorld) -> None:
    pod_world.heard.clear()
    pod_world.until(100.5)
    assert not pod_world.phrase()
    pod_world.until(101.5)
    assert pod_world.phrase() == "Evicted"


def test_kubernetes_own_words_end_the_doubt_at_once(pod_world: PodWorld) -> None:
    pod_world.events = (Event(name=DELETED_POD.name, reason="Preempted", message="by default/x"),)
    pod_world.look(DELETED_POD.name, pod_world.now)
    assert pod_world.phrase() == "Preempted" and not pod_world.in_doubt()
    looks = len(pod_world.looks)
    pod_world.until(120.0)
    assert len(pod_world.looks) == looks, "it is not looked at again"


def test_a_pod_that_ends_while_in_doubt_is_told_at_once(pod_world: PodWorld) -> None:
    pod_world.pod = replace(DELETED_POD, phase=PodPhase.FAILED)
    pod_world.look(DELETED_POD.name, pod_world.now)
    assert pod_world.phrase() == "Evicted"


@pytest.mark.parametrize(("heard_at", "phrase"), [(95.0, "Evicted"), (60.0, "NodeFailed"), (None, "Evicted")])
def test_a_pod_that_is_taken_off_the_list_by_force_had_a_silent_agent_or_not(
    pod_world: PodWorld, heard_at: float | None, phrase: str
) -> None:
    pod_world.heard.clear()
    if heard_at is not None:
        pod_world.heard[DOUBTED_NODE] = heard_at
    assert pod_world.doubts.removed(replace(DELETED_POD, deleting=False), (), pod_world.now).phrase == phrase
    assert not pod_world.in_doubt()
