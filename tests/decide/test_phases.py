"""A move that the table does not have is refused, in words and with the story of the gang."""

from __future__ import annotations

import pytest

from holdfast.decide.job_state import STORY, STORY_TEXT, GangState
from holdfast.decide.phases import FIRST, SHOWN_MOVES, TABLE, InvalidTransition, Phase, PhaseTrigger

Move = tuple[Phase, PhaseTrigger]


def ways() -> dict[Phase, list[PhaseTrigger]]:
    """The shortest way from the first phase to each other one."""
    found: dict[Phase, list[PhaseTrigger]] = {FIRST: []}
    open_ = [FIRST]
    for phase in open_:
        for (source, trigger), target in TABLE.items():
            if source is phase and target not in found:
                found[target] = [*found[phase], trigger]
                open_.append(target)
    return found


WAYS = ways()


def gang_in(phase: Phase) -> GangState:
    gang = GangState(None)
    for at, trigger in enumerate(WAYS[phase], 1):
        gang.move(trigger, float(at), f"step {at}")
    return gang


def test_each_phase_can_be_reached() -> None:
    assert set(WAYS) == set(Phase)


@pytest.mark.parametrize("move", [(p, t) for p in Phase for t in PhaseTrigger if (p, t) not in TABLE], ids=str)
def test_a_move_that_the_table_lacks_is_refused_and_changes_nothing(move: Move) -> None:
    phase, trigger = move
    gang = gang_in(phase)
    before = (gang.phase, gang.entered_at, gang.story(), dict(gang.attempt_state.parts))
    with pytest.raises(InvalidTransition) as raised:
        gang.move(trigger, 100.0, "by mistake")
    assert (raised.value.phase, raised.value.trigger) == (phase, trigger)
    assert raised.value.story == tuple(gang.story())
    assert (gang.phase, gang.entered_at, gang.story(), dict(gang.attempt_state.parts)) == before


@pytest.mark.parametrize("move", TABLE, ids=str)
def test_a_move_of_the_table_is_made(move: Move) -> None:
    phase, trigger = move
    gang = gang_in(phase)
    gang.move(trigger, 100.0, "as it is written")
    assert gang.phase is TABLE[move]
    assert gang.story()[-1].endswith(": as it is written")


def test_the_message_names_the_move_what_was_possible_and_the_story() -> None:
    gang = gang_in(Phase.PREPARING)
    with pytest.raises(InvalidTransition) as raised:
        gang.move(PhaseTrigger.ALL_UP, 9.0, "all up")
    assert str(raised.value).split("\n") == [
        "ALL_UP (every rank is up) cannot end the phase PREPARING: only ALL_PREPARED or TROUBLE can end this phase.",
        "The last moves:",
        "  1.000 attempt 0 CHECKING (): step 1",
        "  2.000 attempt 0 PREPARING (): step 2",
    ]


def test_the_message_of_a_gang_without_a_story() -> None:
    with pytest.raises(InvalidTransition) as raised:
        GangState(None).move(PhaseTrigger.COMPLETED, 1.0, "")
    assert str(raised.value).endswith("\nThe gang had not moved before.")


def test_nothing_ends_the_last_phase() -> None:
    with pytest.raises(InvalidTransition, match="cannot end the phase DONE: nothing ends this phase"):
        gang_in(Phase.DONE).move(PhaseTrigger.DUE, 1.0, "")


def test_the_story_is_bounded() -> None:
    gang = gang_in(Phase.CHECKING)
    for at in range(2 * STORY):
        gang.move(PhaseTrigger.CHECK_ELSEWHERE, float(at), "x" * 10_000)
    assert len(gang.story()) == STORY
    assert max(map(len, gang.story())) < STORY_TEXT + 100
    with pytest.raises(InvalidTransition) as raised:
        gang.move(PhaseTrigger.ALL_UP, 9.0, "")
    assert len(raised.value.story) == STORY
    assert len(str(raised.value).split("\n")) == SHOWN_MOVES + 2
