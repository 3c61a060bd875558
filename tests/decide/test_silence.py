"""A gang over several nodes hangs: all its nodes are looked at together, and the rank that differs is named."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from decide_builders import IN_ALL_REDUCE, RANKS_OF, SEATS
from msgspec.structs import replace

from builders import T
from holdfast.decide.queries.hang_detection import ANSWER_S, HangDetection, Next
from holdfast.explain import explain
from holdfast.model.events import HangFound
from holdfast.model.evidence import AttemptEvidence, RankSnapshot, ThreadState
from holdfast.model.gang_protocol import Closeness, LookAtRanks, RankActivity, RanksSeen, WantLastWords
from holdfast.observe.rank_look import LOOK_BYTES, RANK_BYTES, bounded
from holdfast.wire.message_ages import aged, dated

TIMEOUT_S = 60.0
Shot = Callable[[int, float], RankSnapshot | None]


def shot(rank: int, at: float, *frames: str, state: str = "S") -> RankSnapshot:
    thread = ThreadState(tid=100 + rank, state=state, waits_in="futex", frames=frames)
    return RankSnapshot(rank=rank, pid=100 + rank, at=at, threads=(thread,), stack_source="py-spy" if frames else "")


class SilentGang:
    """Nodes that look at their ranks, each on a clock of its own, and the owner's pure part."""

    def __init__(self, looks: Shot, *, spoke: dict[int, float] | None = None, ahead: dict[str, float] | None = None):
        self.now = T
        self.silence = HangDetection(TIMEOUT_S)
        self.silence.begin(1, SEATS, T)
        self.looks = looks
        self.spoke = spoke or {}
        self.ahead = ahead or {}
        self.deaf: set[str] = set()
        self.ended: set[int] = set()
        self.asked: list[LookAtRanks] = []
        self.out: list[Next] = []

    def run(self, seconds: float) -> list[Next]:
        """Let time pass; what was found."""
        until = self.now + seconds
        while (wake := self.silence.next_wake()) is not None and wake <= until and not self.found:
            self.now = max(self.now, wake)
            self._go_on(self.silence.due(self.now))
        self.now = until
        return self.found

    @property
    def found(self) -> list[Next]:
        return [step for step in self.out if isinstance(step, HangFound)]

    def _go_on(self, steps: list[Next]) -> None:
        for step in steps:
            self.out.append(step)
            if isinstance(step, LookAtRanks):
                self.asked.append(step)
                for node in RANKS_OF:
                    if node not in self.deaf:
                        self._go_on(self.silence.hear(node, self._seen(node, step), self.now))

    def _seen(self, node: str, asked: LookAtRanks) -> RanksSeen:
        here = self.now + self.ahead.get(node, 0.0)
        ranks = [rank for rank in RANKS_OF[node] if rank not in self.ended]
        spoke = {rank: at + self.ahead.get(node, 0.0) for rank, at in self.spoke.items()}
        heard = tuple(RankActivity(rank=rank, at=spoke.get(rank)) for rank in ranks)
        look = tuple(each for rank in ranks if (each := self.looks(rank, here)) is not None)
        if asked.closeness is Closeness.WORDS:
            look = ()
        seen = RanksSeen(attempt=asked.attempt, number=asked.number, heard=heard, look=look)
        return dated(aged(seen, here), self.now)


def one_loads(rank: int, at: float) -> RankSnapshot:
    return shot(rank, at, "load (data.py:3)", "main (train.py:9)") if rank == 3 else shot(rank, at, *IN_ALL_REDUCE)


def evidence_of(found: list[Next]) -> HangFound:
    (only,) = found
    assert isinstance(only, HangFound)
    return only


def test_the_rank_that_differs_is_found_over_all_nodes() -> None:
    gang = SilentGang(one_loads)
    found = evidence_of(gang.run(70.0)).evidence
    assert found.culprits == (3,) and "load (data.py:3)" in found.why
    assert [shot.rank for shot in found.looks[-1]] == [0, 1, 2, 3]
    assert gang.now <= T + TIMEOUT_S + 10.0
    assert [asked.closeness for asked in gang.asked][:2] == [Closeness.WORDS, Closeness.STACKS]


def test_clocks_that_are_wrong_change_nothing() -> None:
    right = evidence_of(SilentGang(one_loads).run(70.0)).evidence
    wrong = evidence_of(SilentGang(one_loads, ahead={"gpu-1": 86_400.0, "gpu-2": -1e6}).run(70.0)).evidence
    assert (wrong.culprits, wrong.why, round(wrong.silent_s, 3)) == (
        right.culprits,
        right.why,
        round(right.silent_s, 3),
    )


def test_one_node_that_speaks_keeps_the_gang_from_being_looked_at_closely() -> None:
    gang = SilentGang(one_loads, spoke={0: T + 50.0})
    gang.run(65.0)
    assert {asked.closeness for asked in gang.asked} <= {Closeness.WORDS, Closeness.LIGHT} and gang.found == []


def test_a_gang_that_works_is_asked_once_in_a_time_out() -> None:
    gang = SilentGang(one_loads)
    for second in range(600):
        gang.spoke = dict.fromkeys(range(4), T + second)
        gang.run(1.0)
    assert len(gang.asked) <= 600 / (TIMEOUT_S - 10.0) + 1
    assert {asked.closeness for asked in gang.asked} == {Closeness.WORDS}


def test_a_node_that_does_not_answer_is_named_with_its_ranks() -> None:
    gang = SilentGang(lambda rank, at: shot(rank, at, *IN_ALL_REDUCE))
    gang.deaf = {"gpu-2"}
    found = evidence_of(gang.run(120.0)).evidence
    assert found.culprits == (2, 3)
    assert "ranks 2 and 3 on gpu-2 gave no answer within" in found.why


def test_a_rank_that_differs_is_named_before_a_node_that_does_not_answer() -> None:
    gang = SilentGang(lambda rank, at: shot(rank, at, state="T") if rank == 1 else shot(rank, at, *IN_ALL_REDUCE))
    gang.deaf = {"gpu-2"}
    found = evidence_of(gang.run(200.0)).evidence
    assert found.culprits == (1,) and found.why.endswith("gave no answer within 13 s")


def test_an_answer_that_comes_late_or_for_another_look_counts_nothing() -> None:
    silence = HangDetection(TIMEOUT_S)
    silence.begin(2, SEATS, T)
    wake = silence.next_wake()
    assert wake is not None
    (asked,) = silence.due(wake)
    assert isinstance(asked, LookAtRanks)
    for stray in (
        RanksSeen(attempt=1, number=asked.number),
        RanksSeen(attempt=2, number=asked.number + 1),
    ):
        assert silence.hear("gpu-1", stray, wake) == []
    assert silence.hear("gpu-9", RanksSeen(attempt=2, number=asked.number), wake) == []
    assert silence.next_wake() == wake + ANSWER_S


def test_nothing_is_asked_when_no_gang_runs() -> None:
    gang = SilentGang(one_loads)
    gang.silence.end()
    assert gang.run(1000.0) == [] and gang.asked == []


def test_where_no_look_has_a_stack_the_workers_are_to_write_theirs() -> None:
    gang = SilentGang(lambda rank, at: shot(rank, at))
    gang.run(70.0)
    assert [type(step) for step in gang.out[-2:]] == [WantLastWords, HangFound]


def test_a_rank_that_has_ended_is_what_the_others_wait_for() -> None:
    gang = SilentGang(lambda rank, at: shot(rank, at, *IN_ALL_REDUCE))
    gang.ended = {2}
    found = evidence_of(gang.run(70.0)).evidence
    assert found.culprits == (2,) and "ended already" in found.why


def test_a_look_is_bounded_before_it_travels() -> None:
    frames = tuple(f"function_{number} (/srv/{'deep/' * 20}train.py:{number})" for number in range(60))
    threads = tuple(ThreadState(tid=tid, state="S", frames=frames if tid % 2 else ()) for tid in range(200))
    many = tuple(RankSnapshot(rank=rank, pid=rank, at=T, threads=threads) for rank in range(128))
    for look, most in ((many[:1], RANK_BYTES), (many, LOOK_BYTES)):
        small = bounded(look)
        assert [each.rank for each in small] == [each.rank for each in look]
        assert len(msgspec.json.encode(small)) <= most * 1.05
        assert all(each.threads and each.threads[0].tid == 0 for each in small)
    slim = (shot(0, T, *IN_ALL_REDUCE),)
    assert bounded(slim) == slim


def test_the_report_names_the_rank_and_its_node() -> None:
    found = evidence_of(SilentGang(one_loads).run(70.0)).evidence
    report = explain(AttemptEvidence(hang=replace(found, attempt=1), workers=()))
    assert report.phrase == "HungWorker" and report.first is not None and report.first.rank == 3
