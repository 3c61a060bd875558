"""What owner and nodes say about a gang that may hang: the owner asks for looks, and each node looks at its ranks."""

from __future__ import annotations

import enum

from holdfast.model.base import At, Message, Noun
from holdfast.model.evidence import RankSnapshot


class Closeness(enum.StrEnum):
    """How a look is to be taken."""

    WORDS = "words"
    """When each rank spoke last: it costs nothing."""
    LIGHT = "light"
    """From /proc alone."""
    STACKS = "stacks"
    """With every rank's stack."""


class LookAtRanks(Message, frozen=True, kw_only=True):
    """Look at the ranks of this node; answer with `RanksSeen` of the same attempt and number."""

    attempt: int
    number: int
    """Rises with each look: an answer to another one is ignored."""
    closeness: Closeness
    native: bool = False
    """With the frames of machine code, too, for which a process is halted for a moment."""


class Heard(Noun, frozen=True, kw_only=True):
    """One rank that lives."""

    rank: int
    at: At | None = None
    """When it printed or told a step last; None: it never did in this attempt."""


class RanksSeen(Message, frozen=True, kw_only=True):
    """What a look at one node's ranks has found."""

    attempt: int
    number: int
    heard: tuple[Heard, ...] = ()
    """Each rank of the attempt that lives there."""
    look: tuple[RankSnapshot, ...] = ()
    """Empty where only words were asked for."""


class WantLastWords(Message, frozen=True, kw_only=True):
    """The gang hangs, and no look has a stack: the workers are to write theirs when they are stopped."""

    attempt: int
