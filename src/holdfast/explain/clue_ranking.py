"""Ranks clues: orders several possible causes by strength, and finds the wording that a clue matched."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.catalogue.exit_rows import Wording
from holdfast.explain.match_weight import ABOUT_PEERS, BROADEST
from holdfast.explain.row_matcher import Matcher
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, LinePlace, Weight

Key = tuple[float, int, bool, LinePlace]


def key(clue: Clue) -> Key:
    """Return the sort key of a clue; the strongest clue comes first.

    Among clues about peers, a failed connection or a failed start of the group comes before a wait that timed out; both
    come before the most general rows; and within each of these, other clues come before hints. A doubtful clue comes
    after every clue of its class that is not doubtful.
    """
    weight = Weight.OWN + 0.5 if clue.doubtful and clue.weight <= Weight.OWN else clue.weight
    if clue.weight is Weight.CONSEQUENCE:
        # Among consequences, a lost peer tells more than a library's general error, and a launcher's line tells least.
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
    """Whether a lost peer is the only explanation for the exit."""
    all_of_them = list(clues)
    return all(clue.weight >= Weight.ABORT for clue in all_of_them) and any(
        clue.weight is Weight.CONSEQUENCE and clue.phrase in ABOUT_PEERS for clue in all_of_them
    )


def wording_of(clue: Clue, matcher: Matcher) -> Wording | None:
    """Return the wording that matched the clue's line; None if none did, or if this catalogue lacks it."""
    if not clue.wording:
        return None
    return next((each for each in matcher.catalogue.row(clue.phrase).wordings if each.id == clue.wording), None)
