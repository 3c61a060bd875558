"""Who sits where, and who may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decide.placement import place, usable, users
from holdfast.model.job_spec import JobSpec, NodeInfo, Role
from holdfast.node.devices.visible_devices import node_info

TWO_NODES_OF_TWO = (
    NodeInfo(name="a", slots=2, devices=("a/0", "a/1")),
    NodeInfo(name="b", slots=2, devices=("b/0", "b/1")),
)
PLAIN_NODES = (NodeInfo(name="a", slots=2), NodeInfo(name="b", slots=1), NodeInfo(name="c", slots=3))


def job_of_roles(*counts: int) -> JobSpec:
    return JobSpec(
        name="j", roles=tuple(Role(name=f"role{i}", count=count, command=("x",)) for i, count in enumerate(counts))
    )


@pytest.mark.parametrize(
    ("nodes", "counts", "avoid", "expected"),
    [
        (PLAIN_NODES, (3,), (), [("a", 0), ("a", 1), ("b", 0)]),
        (PLAIN_NODES, (3,), ("a",), [("b", 0), ("c", 0), ("c", 1)]),
        (PLAIN_NODES, (6,), (), [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]),
        (PLAIN_NODES, (7,), (), None),
        (PLAIN_NODES, (4,), ("c",), None),
        (TWO_NODES_OF_TWO, (3,), ("a/0",), [("a", 0), ("b", 0), ("b", 1)]),
        (TWO_NODES_OF_TWO, (3,), ("a/0", "a/1"), None),
        (TWO_NODES_OF_TWO, (2,), ("a/0", "a/1"), [("b", 0), ("b", 1)]),
    ],
)
def test_nodes_are_filled_in_order(
    nodes: tuple[NodeInfo, ...], counts: tuple[int, ...], avoid: tuple[str, ...], expected: list[tuple[str, int]] | None
) -> None:
    placements = place(job_of_roles(*counts), nodes, avoid)
    assert (placements and [(placement.node, placement.local_rank) for placement in placements]) == expected


def test_a_rank_gets_the_device_that_may_be_used() -> None:
    placements = place(job_of_roles(3), TWO_NODES_OF_TWO, {"a/0"})
    assert placements is not None
    assert [placement.device for placement in placements] == ["a/1", "b/0", "b/1"]


def test_ranks_run_through_the_roles() -> None:
    placements = place(job_of_roles(1, 2), PLAIN_NODES, ())
    assert placements is not None
    assert [(placement.rank, placement.role, placement.role_rank) for placement in placements] == [
        (0, "role0", 0),
        (1, "role1", 0),
        (2, "role1", 1),
    ]


def test_a_node_without_a_usable_device_drops_out() -> None:
    assert usable(TWO_NODES_OF_TWO, {"b/0", "b/1"}) == TWO_NODES_OF_TWO[:1]
    assert usable(TWO_NODES_OF_TWO, {"a"}) == TWO_NODES_OF_TWO[1:]


FEW = NodeInfo(name="n", slots=4, devices=("gpu0", "gpu1"))


def test_more_workers_than_devices_share_them_all() -> None:
    assert node_info("n", job_of_roles(4), ("gpu0", "gpu1")) == FEW
    placements = place(job_of_roles(4), (FEW,), ())
    assert placements is not None
    assert {(placement.device, placement.shares, placement.visible) for placement in placements} == {
        ("", ("gpu0", "gpu1"), ())
    }
    assert users("gpu1", placements, (FEW,)) == (0, 1, 2, 3)
    left = place(job_of_roles(4), (FEW,), {"gpu1"})
    assert left is not None
    assert {(placement.shares, placement.visible) for placement in left} == {(("gpu0",), ("gpu0",))}
    assert users("gpu1", left, (FEW,)) == ()
    assert place(job_of_roles(4), (FEW,), {"gpu0", "gpu1"}) is None


def test_a_role_whose_environment_names_devices_uses_those() -> None:
    def roles(*named: str) -> JobSpec:
        return JobSpec(
            name="j",
            roles=tuple(
                Role(name=f"role{i}", count=2, command=("x",), env={"CUDA_VISIBLE_DEVICES": text})
                for i, text in enumerate(named)
            ),
        )

    node = NodeInfo(name="n", slots=6, devices=("gpu0", "gpu1", "gpu2"))
    spec = roles("2", "0,1", "")
    placements = place(spec, (node,), ())
    assert placements is not None
    assert [users(f"gpu{number}", placements, (node,)) for number in range(3)] == [(2, 3), (2, 3), (0, 1)]
    left = place(spec, (node,), {"gpu1"})
    assert left is not None
    assert [placement.visible for placement in left] == [(), (), ("gpu0",), ("gpu0",), (), ()]
    assert place(spec, (node,), {"gpu2"}) is None, "the first role has nothing else"
    unknown = place(roles("GPU-5ebe9a2f", "0", "-1"), (node,), ())
    assert unknown is not None
    assert [placement.shares for placement in unknown[::2]] == [("gpu0", "gpu1", "gpu2"), ("gpu0",), ()]


@given(st.sets(st.sampled_from(["a", "b", "a/0", "a/1", "b/0", "b/1"])), st.integers(1, 5))
def test_nothing_is_ever_placed_on_what_is_avoided(avoid: set[str], count: int) -> None:
    placements = place(job_of_roles(count), TWO_NODES_OF_TWO, avoid)
    if placements is not None:
        assert [placement.rank for placement in placements] == list(range(count))
        assert not avoid & {name for placement in placements for name in (placement.node, placement.device)}
        assert len({(placement.node, placement.local_rank) for placement in placements}) == count
        assert len({placement.device for placement in placements}) == count
