"""What others see of a gang, and why it waits."""

from __future__ import annotations

import pytest

from gang_play import Play
from holdfast.decide.gang_view import waits_for
from holdfast.decide.phases import Phase
from holdfast.model.gang_protocol import MemberState


@pytest.fixture
def submitted_play() -> Play:
    made = Play()
    made.submit()
    return made


def why(play: Play) -> str:
    return play.gang.view().waits_for


def test_each_phase_tells_what_it_waits_for(submitted_play: Play) -> None:
    assert why(submitted_play) == "the pre-checks"
    submitted_play.to(Phase.PREPARING)
    submitted_play.report("a", MemberState.PREPARED)
    assert why(submitted_play) == "rank 1 (worker 1 on b) to be ready"
    submitted_play.report("b", MemberState.PREPARED)
    assert why(submitted_play) == "rank 0 (worker 0 on a), rank 1 (worker 1 on b) to come up"
    submitted_play.all(MemberState.UP)
    assert (why(submitted_play), submitted_play.gang.view().running) == ("", 1)
    submitted_play.crash()
    submitted_play.report("a", stopped=1)
    assert why(submitted_play) == "the last process on b"
    submitted_play.stopped("b")
    assert why(submitted_play) == "the evidence of its end"
    submitted_play.collect()
    assert why(submitted_play).startswith("the end of the pause")


def test_the_view_has_the_ranks_and_stays_as_it_was(submitted_play: Play) -> None:
    submitted_play.to(Phase.RUNNING)
    before = submitted_play.gang.view()
    assert before is submitted_play.gang.view()
    assert [(member.placement.rank, member.state) for member in before.members] == [
        (0, MemberState.UP),
        (1, MemberState.UP),
    ]
    submitted_play.crash()
    assert before.phase is Phase.RUNNING
    assert submitted_play.gang.view().phase is Phase.DRAINING
    ended = submitted_play.gang.view().members[1].exit
    assert ended is not None
    assert ended.signal == 11


def test_of_thousands_a_few_are_named(submitted_play: Play) -> None:
    submitted_play.to(Phase.RUNNING)
    nodes = tuple(f"n{index}" for index in range(1000))
    text = waits_for(Phase.DRAINING, submitted_play.gang.attempt_state, undrained=nodes, unheard=frozenset(), due=0.0)
    assert text == "the last process on n0, n1, n2, n3, n4, n5, n6, n7 and 992 more"
