"""Is it a hang, and who differs? Tables over looks; no process, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from holdfast.decide.queries.hang_detection import HangWatch
from holdfast.explain.hangs.hang_judgement import Hung, Judgement, LookAgain, NotHung, gap_s, judge
from holdfast.explain.hangs.wait_rules import peer_wait, signature
from holdfast.model.evidence import RankSnapshot, ThreadState
from holdfast.model.gang_protocol import Closeness

N = 40.0
START = 1000.0

ALL_REDUCE = (
    "all_reduce (/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2806)",
    "wrapper (/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:81)",
    "step (/home/me/train.py:20)",
    "<module> (/home/me/train.py:31)",
)
IN_BARRIER = ("barrier (/x/site-packages/torch/distributed/distributed_c10d.py:4800)", "main (/home/me/train.py:44)")
SLEEP = ("load_batch (/home/me/data.py:12)", "step (/home/me/train.py:19)", "<module> (/home/me/train.py:31)")
JOIN = ("join (/usr/lib/python3.11/threading.py:1119)", "main (/home/me/train.py:50)")


class R:
    """One rank, described; `shot` is what a look at it saw."""

    def __init__(
        self,
        *,
        frames: Sequence[tuple[str, ...]] | tuple[str, ...] = (),
        state: str = "S",
        cores: float = 0.0,
        waits_in: str = "futex",
        word: float = START,
        step: int | None = None,
        io: float = 0.0,
        children: float = 0.0,
        child_state: str = "",
        switches: float = 0.0,
        faults: float = 0.0,
        repeats: bool = False,
    ) -> None:
        self.frames, self.state, self.cores, self.waits_in = frames, state, cores, waits_in
        self.word, self.step, self.io, self.children, self.child_state = word, step, io, children, child_state
        self.switches, self.faults, self.repeats = switches, faults, repeats

    def shot(self, rank: int, number: int, at: float) -> RankSnapshot:
        stack: tuple[str, ...] = ()
        if self.frames:
            stack = self.frames if isinstance(self.frames[0], str) else self.frames[number % len(self.frames)]  # type: ignore[assignment]  # told apart by the first element
        pid = 100 + rank
        used = self.cores * (at - START)
        switches, faults = (int(per_s * (at - START)) for per_s in (self.switches, self.faults))
        main = ThreadState(tid=pid, pid=pid, state=self.state, waits_in=self.waits_in, frames=stack, cpu_s=used)
        threads = [structs.replace(main, switches=1 + switches, faults=faults) if self.state == "R" else main]
        if self.child_state:
            threads.append(ThreadState(tid=pid + 500, pid=pid + 500, name="python (child 600)", state=self.child_state))
        return RankSnapshot(
            rank=rank,
            pid=pid,
            at=at,
            threads=tuple(threads),
            cpu_s=used + self.children * (at - START),
            io_bytes=int(self.io * (at - START)),
            last_output_at=self.word,
            repeats=self.repeats,
            last_step=self.step,
        )


def looks_at(ranks: Sequence[R], count: int, silent: float = N) -> list[tuple[RankSnapshot, ...]]:
    """`count` looks a gap apart; the last one `silent` seconds after the last word of all."""
    last = max(rank.word for rank in ranks) + silent
    times = [last - gap_s(N) * back for back in reversed(range(count))]
    return [tuple(one.shot(rank, number, at) for rank, one in enumerate(ranks)) for number, at in enumerate(times)]


def judged(ranks: Sequence[R], count: int, silent: float = N, ended: Sequence[int] = ()) -> Judgement:
    return judge(1, N, START, looks_at(ranks, count, silent), ended)


def hung(
    ranks: Sequence[R], count: int = 3, silent: float = N, ended: Sequence[int] = ()
) -> tuple[tuple[int, ...], str]:
    judgement = judged(ranks, count, silent, ended)
    assert isinstance(judgement, Hung), judgement
    return judgement.evidence.culprits, judgement.evidence.why


waiting = R(frames=ALL_REDUCE)
spinning = R(frames=ALL_REDUCE, state="R", cores=1.0, waits_in="")
sleeping = R(frames=SLEEP, waits_in="clock_nanosleep")
halted = R(frames=ALL_REDUCE, state="T")
asks = R(frames=("read (/usr/lib/python3.11/http/client.py:473)", "main (/home/me/train.py:9)"), waits_in="poll")
moving = R(frames=[ALL_REDUCE, SLEEP, IN_BARRIER], state="R", cores=0.9)


# ---------------------------------------------------------------------------------------------- a hang, and whose

WHO_HANGS = [
    ("stopped", [waiting, waiting, halted, waiting], (2,),
     ["rank 2 is stopped (state T) while ranks 0, 1 and 3 wait"]),
    ("stopped without any stack", [R(), R(state="T"), R()], (1,), ["rank 1 is stopped (state T)"]),
    ("stopped while others spin", [spinning, halted], (1,), ["rank 0 waits busily in all_reduce (called at train.py"]),
    ("all stopped", [halted, halted], (0, 1), ["ranks 0 and 1 are stopped"]),
    ("held by a debugger", [waiting, R(frames=SLEEP, state="t")], (1,), ["held by a debugger"]),
    ("a child is stopped", [waiting, R(frames=JOIN, child_state="T")], (1,), ["rank 1 is stopped"]),
    ("asleep in its own code", [waiting, sleeping, waiting], (1,), ["load_batch (data.py:12)", "clock_nanosleep"]),
    ("asleep while others spin", [spinning, spinning, sleeping, spinning], (2,), ["rank 2 is blocked in load_batch"]),
    ("stuck in the kernel", [waiting, R(frames=SLEEP, state="D", waits_in="fsync (jbd2_log_wait)")], (1,),
     ["rank 1 is stuck in the kernel (state D)"]),
    ("joined to its own thread", [R(frames=JOIN), waiting, waiting], (0,), ["main (train.py:50)"]),
    ("alone", [sleeping], (0,), ["rank 0 is blocked in load_batch"]),
    ("another collective than most", [waiting, waiting, R(frames=IN_BARRIER), waiting], (2,), ["waits in barrier"]),
    ("a lower step", [R(frames=ALL_REDUCE, step=9), R(frames=ALL_REDUCE, step=8), R(frames=ALL_REDUCE, step=9)], (1,),
     ["step 8", "the others at 9"]),
    ("fell silent first", [R(frames=ALL_REDUCE, word=START + 5), R(frames=ALL_REDUCE, word=START + 1)], (1,),
     ["fell silent first"]),
    ("never spoke is not silent first", [R(frames=ALL_REDUCE, word=START + 5), waiting], (0, 1),
     ["no rank stands out"]),
    ("all wait for the same thing outside of the gang", [asks, asks], (0, 1),
     ["ranks 0 and 1 are blocked in main (train.py:9), where they wait for an answer over HTTP", "no rank stands out"]),
    ("no difference at all", [waiting, waiting], (0, 1), ["no rank stands out"]),
    ("no stacks, one sleeps", [R(waits_in="futex"), R(waits_in="clock_nanosleep"), R(waits_in="futex")], (1,),
     ["rank 1 is blocked in the system call clock_nanosleep"]),
    ("no stacks, others on sockets", [R(waits_in="recvfrom"), R(waits_in="futex"), R(waits_in="recvmsg")], (1,),
     ["rank 1 is blocked in the system call futex"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "culprits", "words"), [row[1:] for row in WHO_HANGS], ids=[row[0] for row in WHO_HANGS]
)
def test_who_differs(ranks: list[R], culprits: tuple[int, ...], words: list[str]) -> None:
    found, why = hung(ranks)

    assert found == culprits
    for word in words:
        assert word in why


def test_the_sentence() -> None:
    assert hung([waiting, waiting, sleeping, waiting])[1] == (
        "rank 2 is blocked in load_batch (data.py:12), in the system call clock_nanosleep "
        "while ranks 0, 1 and 3 wait in all_reduce (called at train.py:20); no rank has printed anything for 40 s"
    )


def test_who_has_left_is_missed_by_those_who_wait() -> None:
    culprits, why = hung([waiting, waiting], ended=[2])

    assert culprits == (2,)
    assert why.startswith("rank 2 has ended already, and ranks 0 and 1 wait in all_reduce")


def test_the_silence_is_the_gangs() -> None:
    judgement = judged([waiting, sleeping], 2, silent=N + 3)
    assert isinstance(judgement, Hung)
    assert judgement.evidence.silent_s == pytest.approx(N + 3)
    assert len(judgement.evidence.looks) == 2


def test_many_looks_are_not_all_kept() -> None:
    judgement = judged([spinning, sleeping], 30, silent=20 * N)
    assert isinstance(judgement, Hung)
    assert len(judgement.evidence.looks) == 3


# ---------------------------------------------------------------------------------------------- no hang


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([moving, moving], id="all compute"),
        pytest.param([waiting, moving], id="one computes, the other waits for it"),
        pytest.param([sleeping, moving], id="one computes, the other polls for its file"),
        pytest.param([R(frames=SLEEP, io=1e6), waiting], id="a silent download"),
        pytest.param([R(frames=JOIN, children=2.0), waiting], id="data loaders at work"),
        pytest.param([R(frames=[SLEEP, IN_BARRIER, JOIN]), waiting], id="little CPU, but its place changes"),
    ],
)
@pytest.mark.parametrize("silent", [N, 5 * N, 100 * N])
def test_what_moves_is_not_hung(ranks: list[R], silent: float) -> None:
    assert isinstance(judged(ranks, 3, silent), NotHung)
    assert isinstance(judged(ranks, 12, silent), NotHung)


def test_one_look_never_decides() -> None:
    for ranks in ([halted, waiting], [sleeping, waiting], [spinning, spinning]):
        assert isinstance(judged(ranks, 1, 100 * N), LookAgain)


def test_before_the_time_out_nothing_is_hung() -> None:
    assert not isinstance(judged([waiting, sleeping], 3, N - 1), Hung)


def test_a_loop_that_sleeps_and_checks_stands() -> None:
    poll = [("wait_for_file (/home/me/t.py:5)",), ("wait_for_file (/home/me/t.py:6)",)]
    assert hung([R(frames=poll), waiting])[0] == (0,)


def test_spinning_in_collectives_alone_takes_longer() -> None:
    ranks = [spinning, spinning]
    assert isinstance(judged(ranks, 3, 1.5 * N), LookAgain)
    assert isinstance(judged(ranks, 6, 1.5 * N), LookAgain)
    assert isinstance(judged(ranks, 6, 2.5 * N), Hung)


def test_one_line_burning_cpu_takes_longest() -> None:
    endless = R(frames=("<module> (/home/me/t.py:3)",), state="R", cores=1.0)
    polling = R(frames=SLEEP)
    assert isinstance(judged([endless, polling], 9, 99 * N), LookAgain)
    assert isinstance(judged([endless, polling], 10, 9 * N), LookAgain)
    assert isinstance(judged([endless, polling], 10, 599), LookAgain)
    assert isinstance(judged([endless, polling], 10, 601), Hung)
    assert hung([endless], 10, 601)[0] == (0,)


def test_one_line_burning_cpu_while_the_others_wait_is_found_within_three_time_outs() -> None:
    endless = R(frames=("sample (/home/me/t.py:3)", "<module> (/home/me/t.py:9)"), state="R", cores=1.0)
    assert isinstance(judged([waiting, endless, waiting], 6, 2.9 * N), LookAgain)
    assert isinstance(judged([waiting, endless, waiting], 8, 1.9 * N), LookAgain)
    assert hung([waiting, endless, waiting], 8, 2.1 * N)[0] == (1,)


LOOP = [
    ("sample (/home/me/t.py:3)", "<module> (/home/me/t.py:9)"),
    ("sample (/home/me/t.py:4)", "<module> (/home/me/t.py:9)"),
    ("done (/home/me/t.py:20)", "sample (/home/me/t.py:5)", "<module> (/home/me/t.py:9)"),
]


def test_a_loop_over_a_few_lines_is_found_while_the_others_wait_for_it() -> None:
    looping = R(frames=LOOP, state="R", cores=1.0)
    culprits, why = hung([waiting, looping, spinning], 9, 2.1 * N)
    assert culprits == (1,)
    assert "rank 1 burns CPU in a loop" in why
    found = follow_watch([looping, waiting], START + 3 * N)
    assert found is not None and found[0] <= START + 3 * N


@pytest.mark.parametrize("further", [("step (/home/me/t.py:7)",), ALL_REDUCE], ids=["another function", "a collective"])
def test_a_loop_that_leaves_its_functions_moves(further: tuple[str, ...]) -> None:
    looping = R(frames=[*LOOP, (*further, "train (/home/me/t.py:6)", "<module> (/home/me/t.py:9)")], state="R", cores=1)
    assert isinstance(judged([waiting, looping], 9, 2.9 * N), NotHung)
    assert isinstance(judged([R(frames=LOOP, state="R", cores=1.0)], 9, 2.9 * N), NotHung)


def test_a_starved_rank_is_not_asleep() -> None:
    assert isinstance(judged([R(frames=SLEEP, state="R", cores=0.01), waiting], 3, N), LookAgain)


def test_cpu_without_stacks_is_never_called_a_hang_by_itself() -> None:
    burning = R(state="R", cores=1.0, switches=100)
    assert isinstance(judged([burning, R()], 20, 100 * N), LookAgain)
    assert hung([burning, R(state="T")])[0] == (1,)


IN_RECV = R(waits_in="recvfrom (tcp_recvmsg)")


@pytest.mark.parametrize("other", [R(), IN_RECV, R(waits_in=""), waiting], ids=["futex", "recv", "unknown", "stack"])
def test_a_rank_that_only_computes_in_place_is_found_without_its_stack(other: R) -> None:
    spins = R(state="R", cores=1.0, waits_in="")
    assert isinstance(judged([other, spins, other], 9, 2.9 * N), LookAgain)
    assert isinstance(judged([other, spins, other], 6, 3.1 * N), LookAgain)
    culprits, why = hung([other, spins, other], 9, 3.1 * N)
    assert culprits == (1,)
    assert why.startswith("rank 1 burns CPU in place, without a system call while ranks 0 and 2 ")


@pytest.mark.parametrize(
    "ranks",
    [
        [R(state="R", cores=1.0, faults=100), R()],
        [R(state="R", cores=1.0, switches=100), R()],
        [R(state="R", cores=1.0, children=3.0), R()],
        [R(state="R", cores=1.0), R(waits_in="clock_nanosleep (hrtimer_nanosleep)")],
        [R(state="R", cores=1.0), R(waits_in="wait4 (do_wait)")],
        [R(state="R", cores=1.0), R(state="R", cores=1.0)],
        [R(state="R", cores=1.0)],
    ],
    ids=[
        "new memory",
        "system calls",
        "children compute",
        "another sleeps",
        "another waits for its child",
        "all",
        "one",
    ],
)
def test_a_rank_that_may_be_computing_is_not_found_without_its_stack(ranks: list[R]) -> None:
    assert not isinstance(judged(ranks, 20, 100 * N), Hung)


def test_lines_that_only_repeat_are_named_in_the_reason() -> None:
    assert "no rank has printed anything for 40 s" in hung([sleeping, waiting])[1]
    assert "anything new for 40 s" in hung([R(frames=SLEEP, repeats=True), waiting])[1]


def test_a_rank_that_stands_is_found_while_the_waiting_ones_still_print() -> None:
    chatty = R(frames=ALL_REDUCE, word=START + 95)
    assert hung([chatty, sleeping], 3, silent=5)[0] == (1,)
    assert isinstance(judged([R(frames=JOIN, word=START + 95), sleeping], 3, silent=5), NotHung)


def test_a_stopped_rank_is_found_while_the_others_go_on() -> None:
    busy = R(frames=[SLEEP, IN_BARRIER, JOIN], cores=0.9, state="R", word=START + 95)
    assert isinstance(judged([busy, halted], 3, silent=5), LookAgain)
    assert hung([busy, halted], 6, silent=5)[0] == (1,)


def test_nobody_left() -> None:
    assert isinstance(judge(1, N, START, []), NotHung)
    assert isinstance(judge(1, N, START, [()]), NotHung)


# ---------------------------------------------------------------------------------------------- stacks


@pytest.mark.parametrize(
    ("frame", "waits"),
    [
        ("all_reduce (/home/me/train.py:3)", True),
        ("_all_gather_base (x.py:3)", True),
        ("monitored_barrier (x.py:3)", True),
        ("my_barrier_impl (x.py:3)", True),
        ("reduce_scatter_tensor (x.py:3)", True),
        ("recv (/x/torch/distributed/distributed_c10d.py:9)", True),
        ("wait (/x/torch/distributed/rpc.py:9)", True),
        ("ncclGroupEnd (libnccl.so.2)", True),
        ("cudaStreamSynchronize (libcudart.so)", True),
        ("recv (/usr/lib/python3.11/multiprocessing/connection.py:250)", False),
        ("wait (/usr/lib/python3.11/threading.py:327)", False),
        ("broadcast_to (/x/numpy/lib/stride_tricks.py:9)", False),
        ("load (/home/me/barriers.py:1)", False),
        ("train (/home/me/train.py:1)", False),
    ],
)
def test_names_that_wait_for_peers(frame: str, waits: bool) -> None:
    assert (peer_wait([frame]) is not None) == waits


def test_inside_a_collective_its_own_lines_do_not_count() -> None:
    inner = ("poll (/x/torch/distributed/store.py:1)", *ALL_REDUCE)
    assert signature(inner) == signature(ALL_REDUCE)
    assert signature(SLEEP) != signature(ALL_REDUCE)


# ---------------------------------------------------------------------------------------------- when to look


def follow_watch(ranks: list[R], until: float, words: dict[float, int] | None = None) -> tuple[float, Judgement] | None:
    """Drive a watch as the supervisor does; when it found a hang, or None by `until`."""
    watch = HangWatch(1, N, range(len(ranks)), START)
    pending = sorted((words or {}).items())
    number = 0
    closeness: Closeness | None
    while (at := watch.next_wake()) is not None and at <= until:
        while pending and pending[0][0] <= at:
            moment, rank = pending.pop(0)
            watch.heard(rank, moment)
            ranks[rank].word = moment
        closeness = watch.wants(at)
        if closeness is None:
            assert watch.next_wake() != at, "it would wake for ever"
            continue
        look = tuple(one.shot(rank, number, at) for rank, one in enumerate(ranks))
        if closeness is Closeness.LIGHT:
            look = tuple(bare(shot) for shot in look)
        number += 1
        judgement = watch.looked(look, at, closeness)
        if isinstance(judgement, Hung):
            assert watch.next_wake() is None
            return at, judgement
    return None


def bare(shot: RankSnapshot) -> RankSnapshot:
    from msgspec.structs import replace

    return replace(shot, threads=tuple(replace(thread, frames=()) for thread in shot.threads))


def test_the_judgement_falls_when_the_time_out_has_passed() -> None:
    found = follow_watch([R(frames=ALL_REDUCE), R(frames=SLEEP)], START + 10 * N)
    assert found is not None
    assert found[0] == pytest.approx(START + N)


def test_words_put_it_off() -> None:
    words = {START + 20.0 * k: k % 2 for k in range(1, 20)}
    found = follow_watch([R(frames=ALL_REDUCE), R(frames=SLEEP)], START + 2000, words)
    assert found is not None
    assert found[0] == pytest.approx(START + 380 + N)


def test_a_gang_that_speaks_is_rarely_looked_at() -> None:
    watch = HangWatch(1, N, [0, 1], START)
    looks = 0
    at: float | None = START
    while (at := watch.next_wake()) is not None and at < START + 100 * N:
        watch.heard(0, at)
        if watch.wants(at) is not None:
            looks += 1
            watch.looked((waiting.shot(0, 0, at), moving.shot(1, looks, at)), at)
    assert looks <= 2 * 100 / 8 + 8


def test_a_stopped_rank_among_speaking_ones() -> None:
    ranks = [R(frames=[SLEEP, IN_BARRIER, JOIN], cores=0.9, state="R"), R(state="T")]
    found = follow_watch(ranks, START + 10 * N, {START + 3.0 * k: 0 for k in range(1, 200)})
    assert found is not None
    assert isinstance(found[1], Hung)
    assert found[1].evidence.culprits == (1,)
    assert found[0] <= START + 3 * N


def test_working_in_silence_is_left_alone() -> None:
    ranks = [R(frames=[SLEEP, IN_BARRIER, JOIN], cores=0.9, state="R"), R(frames=ALL_REDUCE)]
    assert follow_watch(ranks, START + 50 * N) is None


def test_nothing_to_watch() -> None:
    watch = HangWatch(1, N, [0], START)
    watch.ended(0)
    assert watch.next_wake() is None
    assert watch.wants(START + 2 * N) is None
