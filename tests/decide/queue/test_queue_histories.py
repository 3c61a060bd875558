"""Random histories of a queue keep every invariant, and have in them what the invariants speak of."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.decide.queue.queue_model import WaitingJob
from holdfast.decide.queue.queue_plan import Plan
from holdfast.decide.queue.wait_reason import Missing
from holdfast_testing.queue_history import draw_history
from holdfast_testing.queue_simulation import main, run_history, story_of
from holdfast_testing.queue_witness import Witness
from holdfast_testing.queue_world import QueueWorld

HISTORY_COUNT = 1200


class Counting(Witness):
    """Counts what it has judged."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Counter[str]()

    def judge(self, world: QueueWorld, made: Plan) -> None:
        super().judge(world, made)
        self.seen.update(reason.missing for reason in made.reasons.values())
        for each in made.reservations:
            self.seen["claim" if each.claim else "kept" if each.at is None else "timed"] += 1
        self.seen["preemption"] += len(made.preemptions)
        self.seen["first again"] += any(job.returns_first for job in world.waiting.values())
        reserved = next((each.job for each in made.reservations if not each.claim), None)
        for start in made.starts:
            job = world.waiting[start.job]
            first = world.waiting.get(reserved or "")
            self.seen["backfill"] += first is not None and job.submitted_at > first.submitted_at

    def core_died(self, world: QueueWorld, before: Plan, after: Plan) -> None:
        super().core_died(world, before, after)
        self.seen["core died"] += bool(before.reasons)

    def refused(self, world: QueueWorld, job: WaitingJob, words: str | None) -> None:
        super().refused(world, job, words)
        self.seen["refused"] += words is not None


def test_every_invariant_holds_in_random_histories() -> None:
    for seed in range(HISTORY_COUNT):
        run_history(seed)


def test_the_histories_have_what_the_invariants_speak_of() -> None:
    seen = Counter[str]()
    for seed in range(HISTORY_COUNT):
        witness = Counting()
        QueueWorld(draw_history(seed), witness).run()
        seen += witness.seen
    kinds = (*Missing, "claim", "kept", "timed", "preemption", "backfill", "core died", "first again", "refused")
    assert [kind for kind in kinds if seen[kind] < 3] == []


class FollowedTwice(QueueWorld):
    """Looks again at each moment at which a plan was followed."""

    def _follow(self, made: Plan) -> None:
        super()._follow(made)
        again = self.look()
        assert (again.starts, again.preemptions) == ((), ()), self.history.seed
        assert {name: why.missing for name, why in again.reasons.items()} == {
            name: why.missing for name, why in made.reasons.items()
        }, self.history.seed


def test_a_plan_that_was_followed_leaves_nothing_to_do() -> None:
    for seed in range(HISTORY_COUNT // 4):
        FollowedTwice(draw_history(seed), Witness()).run()


def test_a_history_is_the_same_each_time() -> None:
    assert story_of(7) == story_of(7)
    assert story_of(7) != story_of(8)


def test_the_command_prints_its_summary_and_one_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", "5"]) == 0
    assert "5 histories: " in capsys.readouterr().out
    assert main(["--seed", "3"]) == 0
    assert "is submitted" in capsys.readouterr().out
