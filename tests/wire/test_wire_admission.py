"""Who is let in: each reason to refuse an agent names what differs, and what to type."""

from __future__ import annotations

from typing import Any

import pytest

from builders import job_spec
from holdfast.model.job_spec import JobSpec, NodeInfo, NodePlan, Resources, Role
from holdfast.wire.admission import AdmissionContext, KnownAgent, KnownAgents, admit
from holdfast.wire.node_messages import PROTOCOL, Foreign, Refused, Welcome
from wire_ends import hello

TWO_OR_MORE = job_spec(nodes=NodePlan(least=2, most=4))
CONTEXT = AdmissionContext(version="1.0", job="j", user="u", host="node1", job_id="id", spec=TWO_OR_MORE, term=3)


def node_info(**more: Any) -> NodeInfo:
    return NodeInfo(**{"name": "n", "slots": 1, **more})


def agent(agent: str, name: str, **more: Any) -> KnownAgent:
    return KnownAgent(**{"agent": agent, "boot": 1, "name": name, "address": "10.0.0.5", **more})


def admit_answer(
    *admitted: KnownAgent, context: AdmissionContext = CONTEXT, lost: str = "", **more: Any
) -> Welcome | Refused:
    known = KnownAgents()
    for each in admitted:
        known.put(each)
    return admit(hello(**{"plan": TWO_OR_MORE.nodes, **more}), "10.0.0.7", context, known, lambda name: name != lost)


def admitted_name(*admitted: KnownAgent, **more: Any) -> str:
    said = admit_answer(*admitted, **more)
    assert isinstance(said, Welcome), said
    return said.node


def test_an_agent_is_let_in_with_what_it_has_to_know() -> None:
    assert admit_answer() == Welcome(job_id="id", node="n", spec=TWO_OR_MORE, term=3, owner="node1")


@pytest.mark.parametrize(
    ("said", "words", "code"),
    [
        ({"protocol": 9}, ["holdfast 1.0 (protocol 9)", f"holdfast 1.0 (protocol {PROTOCOL})"], 2),
        ({"version": "0.9"}, ["holdfast 0.9", "holdfast 1.0", "node1"], 2),
        ({"job": "--rdzv-id 7"}, ["--rdzv-id 7", "another job: j"], 2),
        ({"user": "eve"}, ["user eve", "user u", "node1"], 2),
        ({"plan": NodePlan(least=3, most=3)}, ["--nnodes 3:", "--nnodes 2:4"], 2),
    ],
)
def test_what_differs_is_named_with_both_values(said: dict[str, Any], words: list[str], code: int) -> None:
    refused = admit_answer(**said)
    assert isinstance(refused, Refused)
    assert [word for word in words if word not in refused.reason] == []
    assert (bool(refused.hint), refused.code) == (True, code)


def test_a_hello_of_another_version_that_cannot_be_read_is_refused_with_both() -> None:
    refused = admit(Foreign(protocol=7, version="3.0"), "10.0.0.7", CONTEXT, KnownAgents(), lambda name: True)
    assert isinstance(refused, Refused)
    assert "holdfast 3.0 (protocol 7)" in refused.reason and "holdfast-run==1.0" in refused.hint


def test_waits_and_spares_are_the_owners_and_may_differ() -> None:
    assert isinstance(admit_answer(plan=NodePlan(least=2, most=4, spares=2, join_s=1.0)), Welcome)


def test_a_rank_that_another_live_node_has_is_refused() -> None:
    other = agent("a2", "m", node_rank=1)
    refused = admit_answer(other, node=node_info(node_rank=1))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.code) == ("--node-rank 1 is taken by node m", 2)
    assert isinstance(admit_answer(other, lost="m", node=node_info(node_rank=1)), Welcome)
    assert isinstance(admit_answer(agent("a1", "n", node_rank=1), node=node_info(node_rank=1)), Welcome)


def test_names_are_made_unique_with_the_address_and_then_by_counting() -> None:
    one, two = agent("a2", "n"), agent("a3", "n@10.0.0.7", address="10.0.0.7")
    assert admitted_name(one) == "n@10.0.0.7"
    assert admitted_name(one, two) == "n@10.0.0.7#2"


def test_an_agent_that_comes_back_has_its_name_again() -> None:
    assert admitted_name(agent("a2", "n"), agent("a1", "n@10.0.0.7"), boot=2) == "n@10.0.0.7"


def test_a_machine_that_was_started_anew_has_its_name_again() -> None:
    before = agent("a2", "n", address="10.0.0.7")
    assert admitted_name(before, lost="n") == "n"
    assert admitted_name(before) == "n@10.0.0.7", "the one of before is still there: two runs on one machine"
    assert admitted_name(agent("a2", "n"), lost="n") == "n@10.0.0.7", "another machine of that name may come back"


def test_an_agent_of_before_is_refused() -> None:
    refused = admit_answer(agent("a1", "n", boot=3), boot=2)
    assert isinstance(refused, Refused)
    assert "newer agent of n" in refused.reason


def test_a_node_with_fewer_devices_than_its_workers_need_is_refused() -> None:
    role = Role(name="worker", count=4, command=("x",), resources=Resources(devices=2))
    context = AdmissionContext(version="1.0", job="j", user="u", host="node1", job_id="id", term=1,
                  spec=JobSpec(name="j", roles=(role,), nodes=TWO_OR_MORE.nodes))  # fmt: skip
    refused = admit_answer(context=context, node=node_info(slots=4, devices=("gpu0", "gpu1", "gpu2")))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.code) == ("this node has 3 devices, and its 4 workers need 8 (2 each)", 252)
    assert isinstance(admit_answer(context=context, node=node_info(slots=1, devices=("gpu0", "gpu1"))), Welcome)


def test_a_second_node_that_means_to_host_the_owner_is_refused() -> None:
    refused = admit_answer(hosts="is_host=1 says so")
    assert isinstance(refused, Refused)
    assert "two nodes are to host the owner: n (is_host=1 says so), and node1" in refused.reason
    assert (refused.code, "is_host=1" in refused.hint) == (2, True)
