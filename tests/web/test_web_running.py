"""The part of a job's page about its running attempt: the pace as a curve, and the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.decide.gang_view import MemberView
from holdfast.model.gang_protocol import MemberState
from holdfast.model.job_spec import NodeInfo, Placement
from holdfast.node.attempt_progress import AttemptProgress
from holdfast.web.running_job import HEIGHT, INTERVALS, WIDTH, StepMemory, node_rows, pace_curve


def member(rank: int, node: str, state: MemberState | None = MemberState.UP, device: str = "") -> MemberView:
    seat = Placement(rank=rank, role="worker", role_rank=rank, node=node, local_rank=0, device=device)
    return MemberView(placement=seat, state=state)


def test_the_curve_has_the_pace_of_each_interval() -> None:
    fast = [(100.0 + at, 4.0 * at) for at in range(31)]
    slow = [(130.0 + at, 120.0 + at) for at in range(1, 31)]
    curve = pace_curve([*fast, *slow])
    assert curve is not None
    assert (curve.begin, curve.end, curve.fastest, curve.slowest, curve.last) == (100, 160, 4, 1, 1)
    places = [tuple(map(float, point.split(","))) for point in curve.points.split()]
    assert len(places) <= INTERVALS and all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
    assert places[0][1] < places[-1][1], "a faster pace is higher"


def test_a_long_history_is_a_small_curve() -> None:
    curve = pace_curve([(float(at), float(at)) for at in range(100_000)])
    assert curve is not None and len(curve.points.split()) <= INTERVALS and curve.last == pytest.approx(1)


def test_a_count_that_begins_again_is_no_negative_pace() -> None:
    curve = pace_curve([(float(at), float(at % 10)) for at in range(100)])
    assert curve is not None and curve.slowest > 0


@pytest.mark.parametrize(
    "steps", [[], [(1.0, 1.0)], [(1.0, 1.0), (2.0, 2.0)], [(1.0, 1.0)] * 9, [(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)]]
)
def test_too_few_steps_are_no_curve(steps: list[tuple[float, float]]) -> None:
    assert pace_curve(steps) is None


def test_a_server_remembers_the_steps_that_it_has_seen(tmp_path: Path) -> None:
    memory = StepMemory()
    for at in range(5):
        seen = memory.with_step(tmp_path, "j", AttemptProgress(attempt=1, step=10 * at), float(at))
    assert seen == [(float(at), 10 * at) for at in range(5)]
    assert memory.with_step(tmp_path, "j", AttemptProgress(attempt=2, step=0), 9.0) == [(9.0, 0)]
    assert memory.with_step(tmp_path, "j", AttemptProgress(attempt=2), 9.0) == []


def test_the_nodes_that_are_not_all_up_come_first() -> None:
    nodes = {"b": NodeInfo(name="b", slots=2, devices=("gpu0", "gpu1"), address="10.0.0.2")}
    members = [
        member(0, "a", device="gpu3"),
        member(1, "a", device="gpu2"),
        member(2, "b", MemberState.BOOTING),
        member(3, "b", None),
    ]
    rows = node_rows(members, nodes, {0: 50.0, 1: 70.0})
    assert [(row.node, row.state, row.well, row.ranks) for row in rows] == [
        ("b (10.0.0.2)", "1 booting, 1 not heard yet", False, "ranks 2 and 3"),
        ("a", "2 up", True, "ranks 0 and 1"),
    ]
    assert [row.devices for row in rows] == [("gpu0", "gpu1"), ("gpu2", "gpu3")]
    assert [row.last_output for row in rows] == [None, 70.0]
