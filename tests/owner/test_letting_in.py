"""What nodes are called in a job: by what the machine calls itself, and never two alike."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builders import job_spec
from holdfast import __version__
from holdfast.model.job_spec import NodeInfo, NodePlan
from holdfast.node.agent.local_node import user_here
from holdfast.owner.nodes.agent_admission import AgentAdmission, own_name
from holdfast.settings.resolved_settings import DEFAULTS
from holdfast.wire.node_messages import Foreign, Hello
from wire_ends import hello

PLAN = NodePlan(least=2, most=4)


def door() -> AgentAdmission:
    launch: Any = SimpleNamespace(spec=job_spec(nodes=PLAN), settings=DEFAULTS)
    order: Any = SimpleNamespace(job="j", host="10.0.0.1")
    place: Any = SimpleNamespace(job_id="id", home=Path("/"))
    return AgentAdmission(launch, order, place, "node1")


def said(agent: str, **more: Any) -> Hello:
    return hello(agent, **{"version": __version__, "user": user_here(), "plan": PLAN, **more})


def name(at: AgentAdmission, agent: str, address: str = "10.0.0.7", connected: bool = True, **more: Any) -> str:
    answer = at.answer(said(agent, **more), address, 1, lambda node: connected)
    assert answer.welcome is not None, answer.refused
    return answer.welcome.node


def test_equal_names_are_told_apart_by_address_and_then_by_counting() -> None:
    at = door()
    assert [name(at, agent) for agent in ("a", "b", "c", "d")] == [
        "n",
        "n@10.0.0.7",
        "n@10.0.0.7#2",
        "n@10.0.0.7#3",
    ]


def test_an_agent_that_comes_back_and_a_machine_that_is_started_anew_have_their_name_again() -> None:
    at = door()
    assert name(at, "a") == name(at, "a", boot=2) == "n"
    assert name(at, "b", connected=False) == "n"


def test_the_name_of_an_agent_that_dials_again_is_not_given_to_another_one_of_its_machine() -> None:
    at = door()
    assert name(at, "a") == "n"
    other = at.answer(said("b"), "10.0.0.7", 1, lambda node: False, lambda node: False)
    assert other.welcome is not None
    assert other.welcome.node == "n@10.0.0.7"
    assert name(at, "a") == "n"
    third = at.answer(said("c"), "10.0.0.7", 1, lambda node: False, lambda node: node == "n")
    assert third.welcome is not None
    assert third.welcome.node == "n", "that node is lost"


def test_an_agent_beside_the_owner_is_reached_as_the_owner_is() -> None:
    at = door()
    name(at, "a", "127.0.0.1")
    assert at.address_of("n") == "10.0.0.1"


def test_a_rank_is_free_again_when_its_node_is_not_connected() -> None:
    at = door()
    ranked = NodeInfo(name="n", slots=1, node_rank=0)
    name(at, "a", node=ranked)
    taken = at.answer(said("b", node=NodeInfo(name="m", slots=1, node_rank=0)), "10.0.0.8", 1, lambda node: True)
    assert taken.refused is not None and "--node-rank 0 is taken by node n" in taken.refused.reason
    assert name(at, "b", "10.0.0.8", connected=False, node=NodeInfo(name="m", slots=1, node_rank=0)) == "m"


def test_another_version_is_refused_in_words_and_this_owner_itself_is_neither_let_in_nor_refused() -> None:
    at = door()
    foreign = at.answer(Foreign(protocol=99, version="9.0"), "10.0.0.7", 1, lambda node: True)
    assert foreign.refused is not None and "holdfast 9.0 (protocol 99)" in foreign.refused.reason
    itself = at.answer(said(own_name("id"), hosts="is_host=1 says so"), "10.0.0.1", 1, lambda node: True)
    assert (itself.welcome, itself.refused) == (None, None)
