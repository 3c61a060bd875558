"""A gang without a hang time-out that stands still: holdfast prints one warning, takes stacks, and stops nothing."""

from __future__ import annotations

import pytest
from decide_builders import IN_ALL_REDUCE, RANKS_OF, SEATS

from builders import T
from conftest import Holdfast, free_port
from holdfast.decide.queries.idle_warning import ANSWER_S, PARTS, IdleWarning
from holdfast.model.evidence import HangEvidence, RankSnapshot, ThreadState
from holdfast.model.gang_protocol import Closeness, LookAtRanks, RankActivity, RanksSeen

AFTER_S = 600.0
LOADS = ("load (data.py:3)", "main (train.py:9)")


class StillGang:
    """Four ranks on two nodes; rank 3 loads, the others wait."""

    def __init__(self) -> None:
        self.now = T
        self.stillness = IdleWarning(AFTER_S)
        self.stillness.begin(1, SEATS, T, T)
        self.words: dict[int, float] = {}
        self.cores = dict.fromkeys(range(4), 0.0)
        self.cpu_s = dict.fromkeys(range(4), 0.0)
        self.io_bytes_per_s = 0
        self.deaf: set[str] = set()
        self.asked: list[Closeness] = []
        self.found: list[HangEvidence] = []

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake := self.stillness.next_wake()) is not None and wake <= until:
            self._pass(wake)
            self._take(self.stillness.due(self.now))
        self._pass(until)

    def _pass(self, until: float) -> None:
        for rank, cores in self.cores.items():
            self.cpu_s[rank] += cores * max(0.0, until - self.now)
        self.now = max(self.now, until)

    def _take(self, step: LookAtRanks | HangEvidence | None) -> None:
        if isinstance(step, HangEvidence):
            self.found.append(step)
        elif step is not None:
            self.asked.append(step.closeness)
            for node in set(RANKS_OF) - self.deaf:
                self._take(self.stillness.hear(node, self._seen(node, step), self.now))

    def _seen(self, node: str, asked: LookAtRanks) -> RanksSeen:
        heard = tuple(RankActivity(rank=rank, at=self.words.get(rank)) for rank in RANKS_OF[node])
        look = () if asked.closeness is Closeness.WORDS else tuple(self._shot(rank, asked) for rank in RANKS_OF[node])
        return RanksSeen(attempt=asked.attempt, number=asked.number, heard=heard, look=look)

    def _shot(self, rank: int, asked: LookAtRanks) -> RankSnapshot:
        frames = (LOADS if rank == 3 else IN_ALL_REDUCE) if asked.closeness is Closeness.STACKS else ()
        thread = ThreadState(tid=100 + rank, pid=100 + rank, state="S", waits_in="futex", frames=frames)
        moved = int(self.io_bytes_per_s * (self.now - T))
        return RankSnapshot(
            rank=rank, pid=100 + rank, at=self.now, threads=(thread,), cpu_s=self.cpu_s[rank], io_bytes=moved
        )


def test_a_gang_that_stands_still_is_told_once_with_one_look_at_its_stacks() -> None:
    gang = StillGang()
    gang.run(AFTER_S - 1)
    assert gang.found == []
    gang.run(AFTER_S / PARTS)
    (found,) = gang.found
    assert found.culprits == (3,)
    assert found.why.startswith("rank 3 is blocked in load (data.py:3)")
    assert found.silent_s >= AFTER_S
    gang.run(100 * AFTER_S)
    assert gang.asked.count(Closeness.STACKS) == len(gang.found) == 1
    assert gang.stillness.next_wake() is None


def test_ranks_that_burn_cpu_evenly_stand_still_too() -> None:
    gang = StillGang()
    gang.cores = dict.fromkeys(range(4), 1.0)
    gang.run(2 * AFTER_S)
    assert len(gang.found) == 1


@pytest.mark.parametrize("sign", ["line", "cpu", "bytes"])
def test_a_sign_of_life_begins_the_time_anew(sign: str) -> None:
    gang = StillGang()
    for turn in range(20):
        if sign == "line":
            gang.words[1] = gang.now
        elif sign == "cpu":
            gang.cores[2] = float(turn % 2)
        else:
            gang.io_bytes_per_s = 1 << 20
        gang.run(AFTER_S * 0.8)
        assert gang.found == []


def test_a_gang_that_speaks_is_asked_for_words_alone() -> None:
    gang = StillGang()
    for _ in range(100):
        gang.words[0] = gang.now
        gang.run(60.0)
    assert set(gang.asked) == {Closeness.WORDS}
    assert len(gang.asked) <= 6000 / (AFTER_S / PARTS / 2) + 1


def test_a_node_that_does_not_answer_is_not_waited_for_longer_than_a_minute() -> None:
    gang = StillGang()
    gang.deaf = {"gpu-1"}
    gang.run(AFTER_S + (2 * PARTS + 3) * ANSWER_S)
    (found,) = gang.found
    assert [shot.rank for shot in found.looks[-1]] == [2, 3]


def test_another_attempt_is_watched_anew() -> None:
    gang = StillGang()
    gang.run(2 * AFTER_S)
    gang.stillness.end()
    gang.stillness.begin(2, SEATS, gang.now, gang.now)
    gang.run(2 * AFTER_S)
    assert [found.attempt for found in gang.found] == [1, 2]


STANDS = """
import os, time
def load():
    time.sleep(7)
print("up", flush=True)
if os.environ["RANK"] == "1": load()
else:
    def all_reduce():
        time.sleep(7)
    all_reduce()
"""


@pytest.mark.real
def test_a_real_run_says_it_and_goes_on(holdfast: Holdfast) -> None:
    ran = holdfast.run("--nproc-per-node", "2", "--hang-warning", "2", holdfast.script(STANDS))
    assert ran.status == 0
    (line,) = [line for line in ran.err.splitlines() if "no rank has printed" in line]
    assert "rank 1 is blocked in" in line
    assert "Nothing is stopped" in line
    (stacks,) = holdfast.dir.rglob("attempt-1-stacks.txt")
    assert "rank 1" in stacks.read_text()


@pytest.mark.real
def test_over_two_nodes_the_owner_says_it(holdfast: Holdfast) -> None:
    words = ["run", "--no-checks", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "7"]
    words += ["--nproc-per-node", "1", "--hang-warning", "2", str(holdfast.script(STANDS))]
    both = [holdfast.start(*words) for _ in range(2)]
    ended = [holdfast.finish(process, 90) for process in both]
    assert [ran.status for ran in ended] == [0, 0]
    assert sum(ran.err.count("no rank has printed") for ran in ended) >= 1


@pytest.mark.real
def test_zero_turns_it_off(holdfast: Holdfast) -> None:
    ran = holdfast.run("--hang-warning", "0", holdfast.script("import time; time.sleep(1)"))
    assert ran.status == 0
    assert "no rank has printed" not in ran.err
