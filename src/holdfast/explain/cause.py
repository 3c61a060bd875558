"""One possible cause of a worker's end: what was said, where it stands, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.catalogue.exits import ExitRow, Strength, Wording
from holdfast.explain.lines import Line
from holdfast.explain.notes import Note
from holdfast.explain.tracebacks import Raised
from holdfast.explain.weighing import ABOUT_PEERS, BROADEST, Standing


class Place(NamedTuple):
    """Where in a worker's words a line stands: earlier is smaller."""

    text: int
    """Of its texts (stderr, stdout, error file) the how manieth."""
    line: float
    """The line's place in that text; a half for what follows it."""


class Cause(msgspec.Struct):
    """One possible cause, with where and how it stands."""

    standing: Standing
    phrase: str
    row: ExitRow
    line: Line
    place: Place
    stream: str
    source: str
    wording: Wording | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    raised: Raised | None = None
    rank: int | None = None
    context: list[Line] = msgspec.field(default_factory=list)
    note: Note | None = None
    doubtful: bool = False
    """Signs of progress without a time follow it: buffered output, or a program that lived on."""

    @property
    def weight(self) -> float:
        """The standing; what is doubtful yields to every death that is not."""
        return Standing.OWN + 0.5 if self.doubtful and self.standing <= Standing.OWN else self.standing

    @property
    def key(self) -> tuple[float, int, bool, Place]:
        """Strongest first. Between workers a link or a meeting that failed comes before those who waited in vain, and
        any before the broadest; then a first-hand word before a hint."""
        if self.standing is not Standing.PEERS:
            return (self.weight, 0, False, self.place)
        hint = self.wording is not None and self.wording.strength is Strength.HINT
        if self.phrase in BROADEST:
            tier = 2 if hint else 1
        else:
            tier = 1 if self.phrase == "CollectiveTimeout" or (hint and self.phrase == "NetworkLost") else 0
        return (self.weight, tier, hint, self.place)


def gave_up_on_a_peer(causes: Sequence[Cause]) -> bool:
    """Does nothing but a peer's going away say why it ended?"""
    return (
        bool(causes)
        and all(cause.standing >= Standing.ABORT for cause in causes)
        and any(cause.standing is Standing.CONSEQUENCE and cause.phrase in ABOUT_PEERS for cause in causes)
    )
