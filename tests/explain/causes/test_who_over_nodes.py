"""Who it was, over several nodes: one rank dies, others on other nodes follow at once, and no clock can be trusted."""

from __future__ import annotations

from typing import Any

import pytest
from far_gang import FarGang

from builders import DAY_S
from holdfast.decide.queries.answer_collection import EVIDENCE_S
from holdfast.explain import explain
from holdfast.model.evidence import AttemptEvidence, Deadline, WorkerEvidence
from holdfast.model.exit_report import ExitReport

CLOCKS_AHEAD = (0.0, DAY_S, -1e6)
RANKS_PEER_CLOSED = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/srv/train.py", line 41, in <module>\n'
    "[rank{rank}]:     dist.all_reduce(x)\n"
    "[rank{rank}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[10.1.2.{node}]:30931\n"
)
RANKS_ERROR = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/srv/train.py", line 8, in <module>\n'
    "[rank{rank}]: {error}\n"
)


def words(rank: int, error: str) -> str:
    return RANKS_ERROR.replace("{rank}", str(rank)).replace("{error}", error)


def of_a_peer(rank: int, node: int) -> str:
    return RANKS_PEER_CLOSED.replace("{rank}", str(rank)).replace("{node}", str(node))


#: What the first rank ends of.
ENDS: list[tuple[str, dict[str, Any]]] = [
    ("ValueError: bad shard 17", {"exit_code": 1}),
    ("", {"signal": 11}),
    ("", {"signal": 9, "memory": True}),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", {"exit_code": 1}),
]
WHO_AND_HOW = [(rank, end) for rank in (1, 2, 5) for end in range(len(ENDS))]


def one_dies(rank: int, end: int, *, clocks: tuple[float, ...] = CLOCKS_AHEAD, lag_s: float = 0.0) -> ExitReport:
    """That rank ends of its own; within 50 ms all others, which only miss their peer."""
    gang = FarGang(*clocks)
    gang.node_of(rank).lag_s = lag_s
    error, how = ENDS[end]
    gang.dies(rank, 0.1, words(rank, error) if error else "", **how)
    others = [other for other in range(6) if other != rank]
    for place, other in enumerate(others):
        gang.dies(other, 0.11 + 0.008 * place, of_a_peer(other, rank // 2 + 1), exit_code=1)
    return gang.explained()


@pytest.mark.parametrize(("rank", "end"), WHO_AND_HOW)
def test_the_rank_that_died_first_of_its_own_is_named(rank: int, end: int) -> None:
    report = one_dies(rank, end)
    assert report.first is not None
    assert (report.first.rank, report.first.node, report.also) == (rank, f"gpu-{rank // 2 + 1}", ())
    assert f"rank {rank} on gpu-{rank // 2 + 1} (10.1.2.{rank // 2 + 1})" in report.reason


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_news_that_come_late_do_not_make_a_death_a_late_one(rank: int) -> None:
    report = one_dies(rank, 0, lag_s=0.03)
    assert report.first is not None and report.first.rank == rank


@pytest.mark.parametrize("end", range(len(ENDS)))
def test_wrong_clocks_change_no_word(end: int) -> None:
    right, wrong = one_dies(2, end, clocks=(0.0, 0.0, 0.0)), one_dies(2, end)
    assert (wrong.reason, wrong.phrase, wrong.collateral) == (right.reason, right.phrase, right.collateral)


def two_die(apart_s: float) -> ExitReport:
    """Two ranks of two nodes fail by themselves: the stop for the first is still on its way to the second."""
    gang = FarGang(*CLOCKS_AHEAD)
    gang.delay_s = 0.04
    gang.dies(1, 0.1, words(1, "ValueError: bad shard 17"), exit_code=1)
    gang.dies(4, 0.1 + apart_s, words(4, "ValueError: bad shard 23"), exit_code=1)
    report = gang.explained()
    assert gang.nodes["gpu-3"].logs.keys() == {4}, "it died before it was stopped"
    return report


@pytest.mark.parametrize("apart_s", [0.0, 0.0005, 0.01, 0.05])
def test_of_two_failures_on_two_nodes_the_earlier_is_named_or_both(apart_s: float) -> None:
    """Rank 4's node counts its deaths from a lower number: the order of one kernel says nothing of another's."""
    report = two_die(apart_s)
    assert report.first is not None
    named = {report.first.rank, *(other.rank for other in report.also)}
    assert report.first.rank == 1 or named == {1, 4}
    if report.also:
        assert report.confidence <= 0.5


def test_a_memory_kill_on_one_node_explains_no_death_on_another() -> None:
    """Ranks 0 and 2 have the same pid, and die 20 ms apart."""
    gang = FarGang(*CLOCKS_AHEAD)
    gang.delay_s = 0.04
    gang.dies(0, 0.1, signal=9)
    gang.dies(2, 0.12, memory=True, signal=9)
    report = gang.explained()
    assert report.first is not None and (report.first.rank, report.phrase) == (0, "KilledBySignal")


def test_a_node_without_evidence_is_named_and_the_cause_is_found_all_the_same() -> None:
    gang = FarGang(*CLOCKS_AHEAD)
    gang.dies(3, 0.1, words(3, "ValueError: bad shard 17"), exit_code=1)
    gang.dies(0, 0.12, of_a_peer(0, 2), exit_code=1)
    gang.until(lambda: gang.roundup.next_wake() is not None)
    gang.node_of(3).lag_s = EVIDENCE_S + 1.0
    report = gang.explained()
    assert report.first is not None and report.first.rank == 3
    assert any("gpu-2 gave no evidence within 10 s" in item.text for item in report.evidence)
    assert "bad shard 17" in report.reason


# ------------------------------------------------------------------------------------------ a gang that never met

STORE_TIMED_OUT = (
    "[W1122 15:46:40.976 TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host 10.1.2.1:29500 - "
    "retrying (try=0, timeout=6000ms, delay=2967ms): The client socket has timed out after 6000ms while trying to "
    "connect to (10.1.2.1, 29500).\n"
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/srv/train.py", line 4, in <module>\n'
    '[rank{rank}]:     dist.init_process_group("nccl")\n'
    "[rank{rank}]: torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to "
    "connect to (10.1.2.1, 29500).\n"
)
NO_ROUTE = (
    "[W socket.cpp:697] [c10d] The client socket has failed to connect to [::ffff:10.1.2.1]:29500 "
    "(errno: 113 - No route to host).\n"
)
WAITED = (
    "[rank0]: Traceback (most recent call last):\n"
    "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 4/6 clients joined.\n"
)


def never_met(*, route: bool = True) -> ExitReport:
    gang = FarGang(*CLOCKS_AHEAD)
    for rank in (4, 5):
        text = STORE_TIMED_OUT.replace("{rank}", str(rank))
        gang.dies(rank, 0.1 + rank / 100, text if route else NO_ROUTE + text, exit_code=1)
    gang.dies(0, 0.3, WAITED, exit_code=1)
    return gang.explained()


def test_the_ranks_that_never_reached_rank_0_are_named_with_a_command_that_tests_the_link() -> None:
    report = never_met()
    assert report.phrase == "RendezvousTimeout"
    assert report.reason == (
        "ranks 4 and 5 on gpu-3 (10.1.2.3) never reached rank 0's port (port 29500 of 10.1.2.1, which is gpu-1); "
        "the ranks on gpu-1 (10.1.2.1), gpu-2 say nothing of it"
    )
    assert "on gpu-3: nc -vz 10.1.2.1 29500" in report.solution
    assert report.first is not None and report.first.node == "gpu-3"
    assert not {4, 5} & set(report.collateral)


def test_the_reason_that_the_link_gave_is_told() -> None:
    assert "(port 29500 of 10.1.2.1, which is gpu-1): No route to host; " in never_met(route=False).reason


def test_the_ranks_that_were_never_prepared_are_named_with_their_nodes() -> None:
    workers = tuple(WorkerEvidence(rank=rank, node=f"gpu-{rank // 2 + 1}") for rank in range(6))
    known = AttemptEvidence(
        workers=workers,
        deadline=Deadline.PREPARE,
        late=(2, 3, 5),
        phase="PREPARING",
        job="far-1",
        addresses={f"gpu-{number}": f"10.1.2.{number}" for number in (1, 2, 3)},
    )
    report = explain(known)
    assert report.phrase == "GangStartTimeout"
    assert report.reason == (
        "ranks 2 and 3 on gpu-2 (10.1.2.2), rank 5 on gpu-3 (10.1.2.3) were not made ready in time; 3 of 6 were"
    )
    assert report.hint == "holdfast logs far-1 --attempt 1 --rank 2"
    assert report.first is not None and (report.first.node, report.first.address) == ("gpu-2", "10.1.2.2")
