"""A rank that waits for a child which burns CPU: a hang where the child does nothing that a program at work does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.explain.hangs.hang_judgement import Hung, Judgement, LookAgain, NotHung, gap_s, judge
from holdfast.model.evidence import RankSnapshot, ThreadState

SILENCE_S = 8.0
BEGIN_AT = 1000.0
WAITS_FOR_PEERS = (
    "all_reduce (/x/site-packages/torch/distributed/distributed_c10d.py:2806)",
    "main (/home/me/train.py:20)",
)
AWAITS = ("_try_wait (/usr/lib/python3.11/subprocess.py:1940)", "build (/home/me/train.py:9)")
#: What a look sees of it. Its arguments: the number of the look, seconds since the start.
Child = Callable[[int, float], ThreadState]


def loops(number: int, passed_s: float) -> ThreadState:
    return ThreadState(tid=612, pid=612, name="python (child 612)", state="R", cpu_s=passed_s)


def snapshot_of(
    number: int, at: float, frames: tuple[str, ...], *children: ThreadState, io: float = 0.0
) -> RankSnapshot:
    """`io`: bytes a second."""
    pid = 100 + number
    return RankSnapshot(
        rank=number,
        pid=pid,
        at=at,
        threads=(ThreadState(tid=pid, pid=pid, state="S", waits_in="wait4", frames=frames), *children),
        cpu_s=sum(child.cpu_s for child in children),
        io_bytes=int(io * (at - BEGIN_AT)),
        last_output_at=BEGIN_AT,
    )


def judged_with(
    *children: Child,
    count: int = 7,
    silent_s: float = 3 * SILENCE_S,
    io: float = 0.0,
    frames: tuple[str, ...] = AWAITS,
    alone: bool = False,
) -> Judgement:
    """Rank 1 has the children; rank 0 waits for it in a collective, unless rank 1 is `alone`."""
    looks = []
    for number in range(count):
        at = BEGIN_AT + silent_s - gap_s(SILENCE_S) * (count - 1 - number)
        parent = snapshot_of(1, at, frames, *(child(number, at - BEGIN_AT) for child in children), io=io)
        looks.append((parent,) if alone else (snapshot_of(0, at, WAITS_FOR_PEERS), parent))
    return judge(1, SILENCE_S, BEGIN_AT, looks)


def test_a_child_that_only_burns_cpu_is_a_loop_and_its_rank_the_culprit() -> None:
    found = judged_with(loops)
    assert isinstance(found, Hung)
    assert found.evidence.culprits == (1,)
    words = "rank 1 waits in build (train.py:9) for its child process 612 (python), which burns CPU without an end"
    assert words in found.evidence.why
    assert "while rank 0 waits in all_reduce" in found.evidence.why


@pytest.mark.parametrize(("count", "silent_s"), [(7, 2.9 * SILENCE_S), (6, 3 * SILENCE_S)])
def test_it_takes_three_time_outs_and_seven_looks(count: int, silent_s: float) -> None:
    assert isinstance(judged_with(loops, count=count, silent_s=silent_s), LookAgain)


def test_on_a_crowded_machine_it_gets_a_part_of_a_core() -> None:
    assert isinstance(judged_with(lambda number, s: replace(loops(number, s), cpu_s=0.2 * s)), Hung)


def stranger(pid: int, state: str = "S", cores: float = 0.0) -> Child:
    def seen(number: int, passed_s: float) -> ThreadState:
        return ThreadState(tid=pid, pid=pid, name=f"python (child {pid})", state=state, cpu_s=cores * passed_s)

    return seen


def test_its_idle_brothers_do_not_count() -> None:
    assert isinstance(judged_with(loops, stranger(613), stranger(614)), Hung)


@pytest.mark.parametrize(
    "children",
    [
        pytest.param([loops, stranger(613, "R", 0.1)], id="two are at work"),
        pytest.param([lambda n, s: replace(loops(n, s), tid=600 + n, pid=600 + n)], id="another process in each look"),
        pytest.param(
            [loops, lambda n, s: replace(loops(n, s), tid=700 + n, pid=700 + n, state="S")], id="one is started"
        ),
        pytest.param([lambda n, s: replace(loops(n, s), state="S" if n == 3 else "R")], id="it waited once"),
        pytest.param([lambda n, s: replace(loops(n, s), cpu_s=4 * s)], id="more than one core"),
        pytest.param([lambda n, s: replace(loops(n, s), name="cicc (child 612)")], id="a compiler"),
        pytest.param([lambda n, s: replace(loops(n, s), name="cc1plus (child 612)")], id="another compiler"),
    ],
)
@pytest.mark.parametrize("silent_s", [3 * SILENCE_S, 100 * SILENCE_S])
def test_children_at_work_are_no_hang(children: list[Child], silent_s: float) -> None:
    assert isinstance(judged_with(*children, count=12, silent_s=silent_s), NotHung)


def test_a_child_that_reads_is_at_work() -> None:
    assert isinstance(judged_with(loops, io=4096.0), NotHung)


def test_where_no_rank_waits_for_it_a_child_may_compute_for_ever() -> None:
    assert isinstance(judged_with(loops, alone=True, silent_s=100 * SILENCE_S, count=12), NotHung)
