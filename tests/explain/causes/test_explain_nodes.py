"""Two nodes: what may be compared across them is the date; pids and the kernel's order are each node's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import T
from holdfast.explain import explain
from holdfast.explain.causes.attribution import moments
from holdfast.model.evidence import (
    AttemptEvidence,
    LeftBehind,
    LogExcerpt,
    MemoryKill,
    StopRequest,
    StopSource,
    WorkerEvidence,
)
from holdfast.model.exit_report import Blame, Evidence, EvidenceKind, WorkerExit

#: Of a worker on each of the nodes.
PID = 4242


def died_on(
    rank: int, node: str, *, signal: int | None = None, at: float = 0.0, order: int = 0, words: str = ""
) -> WorkerEvidence:
    code = 1 if signal is None else None
    ended = WorkerExit(
        role="worker", rank=rank, node=node, attempt=1, pid=PID, exit_code=code, signal=signal, started_at=T - 60,
        ended_at=T + at, order=order, last_words=words,
    )  # fmt: skip
    return WorkerEvidence(
        rank=rank, node=node, exit=ended, stderr=LogExcerpt(source=f"worker-{rank} stderr", text=words)
    )


def test_a_memory_kill_of_one_node_explains_no_sigkill_of_another() -> None:
    kill = MemoryKill(source="kernel log", text=f"Killed process {PID} (python)", pid=PID, node="b", at=T)
    report = explain(AttemptEvidence(workers=(died_on(0, "a", signal=9),), memory_kills=(kill,)))
    assert report.phrase == "KilledBySignal"
    report = explain(AttemptEvidence(workers=(died_on(0, "b", signal=9),), memory_kills=(kill,)))
    assert report.phrase == "HostOutOfMemoryKilled"


def test_a_memory_kill_without_a_pid_explains_only_its_own_node() -> None:
    kill = MemoryKill(source="cgroup v2 memory.events", text="oom_kill 1", node="b", at=T)
    assert (
        explain(AttemptEvidence(workers=(died_on(0, "a", signal=9),), memory_kills=(kill,))).phrase == "KilledBySignal"
    )


def test_a_kernel_line_of_another_node_with_the_same_pid_explains_nothing() -> None:
    text = f"Out of memory: Killed process {PID} (python) total-vm:1kB, anon-rss:1kB"
    for node, phrase in (("b", "KilledBySignal"), ("a", "HostOutOfMemoryKilled")):
        line = Evidence(kind=EvidenceKind.KERNEL, text=text, source="kernel log", at=T, node=node)
        assert explain(AttemptEvidence(workers=(died_on(0, "a", signal=9),), kernel=(line,))).phrase == phrase


def test_of_two_deaths_on_two_nodes_the_earlier_is_named_whatever_place_each_kernel_gave_it() -> None:
    first, second = died_on(0, "a", signal=11, at=0.0, order=5), died_on(1, "b", signal=11, at=0.15, order=1)
    report = explain(AttemptEvidence(workers=(first, second)))
    assert report.first is not None
    assert report.first.rank == 0


def test_on_one_node_the_kernels_order_counts_more_than_the_time() -> None:
    first, second = died_on(0, "a", signal=11, at=0.15, order=1), died_on(1, "a", signal=11, at=0.1, order=2)
    report = explain(AttemptEvidence(workers=(first, second)))
    assert report.first is not None
    assert report.first.rank == 0


def test_two_that_died_at_one_moment_on_two_nodes_are_both_named() -> None:
    report = explain(
        AttemptEvidence(workers=(died_on(0, "a", signal=11, order=5), died_on(1, "b", signal=11, order=1)))
    )
    assert report.first is not None
    assert {report.first.rank, *(other.rank for other in report.also)} == {0, 1}


@pytest.mark.parametrize("node", ["a", "b"])
def test_an_unknown_moment_is_no_error(node: str) -> None:
    ended = WorkerExit(role="worker", rank=0, node=node, attempt=1, exit_code=1)
    assert moments([ended]) == {0: 0.0}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.floats(0, 9)), max_size=12))
def test_nothing_that_was_announced_later_on_a_node_died_earlier(deaths: list[tuple[str, int, float]]) -> None:
    exits = [
        WorkerExit(role="worker", rank=rank, node=node, attempt=1, signal=9, ended_at=at, order=order)
        for rank, (node, order, at) in enumerate(deaths)
    ]
    found = moments(exits)
    for one in exits:
        later = [e.ended_at or 0.0 for e in exits if e.node == one.node and e.order > one.order]
        assert found[one.rank] == min([one.ended_at or 0.0, *later])


def test_a_job_that_ends_since_its_nodes_were_typed_differently_was_used_wrongly_and_no_log_is_worth_a_look() -> None:
    request = StopRequest(
        reason="two nodes are to host the owner: a (is_host=1) and b, which answers",
        solution="holdfast run --rdzv-conf is_host=1 … on one node only",
        source=StopSource.SUPERVISOR,
        code=2,
        at=0.0,
    )
    report = explain(AttemptEvidence(attempt=0, stop=request, job="j-1"))
    assert (report.phrase, report.code, report.rerun) == ("BadUsage", 2, "never")
    assert report.hint == "holdfast show j-1"


def test_an_agent_that_was_killed_for_memory_took_its_workers_with_it() -> None:
    kill = MemoryKill(
        source="cgroup v1 memory.oom_control", text="oom_kill rose by 1", scope="container", limit_bytes=4
    )
    lost = LeftBehind(node="b", silent_s=0.0, ranks=(1,), back=True, memory_kill=kill)
    report = explain(AttemptEvidence(workers=(WorkerEvidence(rank=1, node="b"),), lost=(lost,)))
    assert (report.phrase, report.blame) == ("HostOutOfMemoryKilled", Blame.WORKLOAD)
    assert report.reason.startswith("b with rank 1 lost its workers: its agent was killed at the memory limit of ")
