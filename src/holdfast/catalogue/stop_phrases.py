"""Validates the failure class (phrase) and the code in a component's stop request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.catalogue.exit_codes import CONTRACT, in_words
from holdfast.catalogue.exit_rows import ExitRow, load
from holdfast.model.exit_report import OPERATOR_CODE, Blame, Rerun
from holdfast.model.phrases import Phrase

if TYPE_CHECKING:
    from holdfast.catalogue.exit_rows import Catalogue

BY_OPERATOR = Phrase.STOPPED_BY_OPERATOR
BY_CLEANER = Phrase.KILLED_BY_DISK_CLEANER
CLEANER_CODE = 198
LEGAL = (range(160, 200), range(220, 255))
MOST_PHRASE = 64


def is_cleaner(who: str) -> bool:
    """Whether the component is a disk cleaner: `diskCleaner`, `disk cleaner`, `disk_cleaner@node7`."""
    plain = "".join(c for c in who.lower() if c.isalnum())
    return plain.startswith("diskcleaner")


def misshapen(phrase: str, code: int | None, who: str) -> str:
    """Return an error message if the stop request's phrase or code is invalid. Return "" if both are valid."""
    if phrase:
        plain = phrase.isascii() and phrase.isalnum() and phrase[0].isupper() and any(c.islower() for c in phrase)
        if not plain or len(phrase) > MOST_PHRASE:
            return (
                f"phrase {phrase[:MOST_PHRASE]!r}: expected one word in CamelCase of at most {MOST_PHRASE} letters "
                "and digits, such as NodeDrained"
            )
    if code is not None and code in CONTRACT:
        return f"code {code} is left to the workers' own contract; expected {in_words(LEGAL)}"
    if code is not None and not any(code in block for block in LEGAL):
        return f"code {code} is no code of an exit that a component may ask for; expected {in_words(LEGAL)}"
    if code == CLEANER_CODE or phrase == BY_CLEANER:
        if not is_cleaner(who):
            return f"code {CLEANER_CODE} ({BY_CLEANER}) is the disk cleaner's, and this is asked by {who or 'another'}"
        if code not in (None, CLEANER_CODE):
            return f"{BY_CLEANER} has code {CLEANER_CODE}, and {code} was given: one phrase has one code"
    return ""


def choose(phrase: str, code: int | None, who: str, catalogue: Catalogue) -> tuple[str, int | None]:
    """Return the failure class of a stop request, and its code if no catalogue row has the class.

    Raises ValueError with a message for the user.

    `phrase`, `code`: from the component's request; each may be missing. `who`: name of the component.
    """
    if why := misshapen(phrase, code, who):
        raise ValueError(why)
    if not phrase and code is None:
        return BY_OPERATOR, None
    if not phrase:
        if code == CLEANER_CODE:
            return BY_CLEANER, None
        if code == OPERATOR_CODE:
            return BY_OPERATOR, None
        found = sorted(name for name, row in known(catalogue).items() if row.code == code)
        some = f"; {', '.join(found[:4])} has it" if found else ""
        raise ValueError(f"code {code} needs a phrase beside it, one of your own or a known one{some}")
    row = known(catalogue).get(phrase)
    if row is None:
        return phrase, OPERATOR_CODE if code is None else code
    if code is not None and code != row.code:
        raise ValueError(f"{phrase} has code {row.code}, and {code} was given: one phrase has one code")
    if why := misshapen("", row.code, who):
        raise ValueError(f"{phrase} cannot be asked for: {why}")
    return phrase, None


def known(catalogue: Catalogue) -> dict[str, ExitRow]:
    """Return all catalogue rows by failure class. A row in `catalogue` replaces the built-in row of the same class."""
    return {**load().by_phrase, **catalogue.by_phrase}


def own_row(phrase: str, code: int, solution: str = "") -> ExitRow:
    """Make a catalogue row for a failure class that a component has invented.

    The blame is unknown, because the code does not tell it.
    """
    return ExitRow(
        phrase=phrase,
        code=code,
        blame=Blame.UNKNOWN,
        rerun=Rerun.NEVER if code == OPERATOR_CODE else Rerun.UNKNOWN,
        what="a component asked for the job to stop, with a phrase of its own",
        solution=solution or "Read the reason: it is in the words of the component that asked for the stop.",
    )
