"""Compares clues: which of several possible causes is the strongest, and which row of the catalogue it matches."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.catalogue.exit_rows import Wording
from holdfast.explain.match_weight import ABOUT_PEERS, BROADEST
from holdfast.explain.row_matcher import Matcher
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, LinePlace, Weight

Key = tuple[float, int, bool, LinePlace]


def key(clue: Clue) -> Key:
    """The sort key of clues, strongest first.

    Between workers, a connection or a start of the group that failed comes before ranks that waited in vain, and both
    come before the broadest rows; then a line about the worker itself comes before a hint. A doubtful clue comes after
    every clue that is not doubtful.
    """
    weight = Weight.OWN + 0.5 if clue.doubtful and clue.weight <= Weight.OWN else clue.weight
    if clue.weight is Weight.CONSEQUENCE:
        # Of what only follows, a peer that is gone says more than a library's last word, and a launcher says least.
        tier = 2 if clue.phrase == Phrase.UNEXPLAINED else 1 if clue.phrase in BROADEST else 0
        return (weight, tier, False, clue.place)
    if clue.weight is not Weight.PEERS:
        return (weight, 0, False, clue.place)
    if clue.phrase in BROADEST:
        tier = 2 if clue.hint else 1
    else:
        tier = (
            1 if clue.phrase == Phrase.COLLECTIVE_TIMEOUT or (clue.hint and clue.phrase == Phrase.NETWORK_LOST) else 0
        )
    return (weight, tier, clue.hint, clue.place)


def gave_up_on_a_peer(clues: Iterable[Clue]) -> bool:
    """Whether the only explanation for the exit is that a peer was lost."""
    all_of_them = list(clues)
    return all(clue.weight >= Weight.ABORT for clue in all_of_them) and any(
        clue.weight is Weight.CONSEQUENCE and clue.phrase in ABOUT_PEERS for clue in all_of_them
    )


def wording_of(clue: Clue, matcher: Matcher) -> Wording | None:
    """The wording that matched the clue's line; None where none did, or where this catalogue lacks it."""
    if not clue.wording:
        return None
    return next((each for each in matcher.catalogue.row(clue.phrase).wordings if each.id == clue.wording), None)
