"""All bugs that are planted in the source, and those that change no behaviour."""

from __future__ import annotations

from holdfast_testing.planted_bug import EquivalentBug, PlantedBug
from holdfast_testing.planted_in_decisions import IN_DECISIONS
from holdfast_testing.planted_in_other_rooms import IN_OTHER_ROOMS
from holdfast_testing.planted_in_queue import IN_QUEUE

PLANTED_BUGS: tuple[PlantedBug, ...] = (*IN_DECISIONS, *IN_OTHER_ROOMS, *IN_QUEUE)

EQUIVALENT_BUGS: tuple[EquivalentBug, ...] = (
    EquivalentBug(
        name="stop-enters-its-own",
        wrong="a stop enters its own attempt, though the agent has a later one",
        file="decide/agent.py",
        place="Agent._stop",
        right="self._enter(max(command.attempt, self.attempt))",
        broken="self._enter(command.attempt)",
        proof="a stop below the agent's attempt has returned at the top of the method",
    ),
    EquivalentBug(
        name="go-below-the-floor",
        wrong="a GO is obeyed at or below the floor",
        file="decide/agent.py",
        place="Agent._go",
        right="max(self.floor, self.remembered)",
        broken="self.remembered",
        proof="a floor that reaches a live attempt ends and remembers it; no worker starts below the floor",
    ),
    EquivalentBug(
        name="link-ends-a-program",
        wrong="a lost link is the exception that ended a program before its stop",
        file="explain/causes/attribution.py",
        place="_was_ending",
        right=" and not _of_a_link(best)",
        broken="",
        proof="clue_ranking gives a lost link PEERS or less; only DEATH, BROAD and OWN reach this line",
    ),
)
