"""The messages between owner and nodes about a gang that may hang: the owner asks for looks, and each node looks at its
ranks."""

from __future__ import annotations

import enum

from holdfast.model.evidence import RankSnapshot
from holdfast.model.noun_base import At, Message, Noun


class Closeness(enum.StrEnum):
    """How closely the node looks."""

    WORDS = "words"
    """The time of each rank's last line or step: it costs nothing."""
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
    """With native frames, for which a process is halted for a moment."""


class RankActivity(Noun, frozen=True, kw_only=True):
    """One live rank."""

    rank: int
    at: At | None = None
    """When it last printed a line or reported a step; None: never in this attempt."""


class RanksSeen(Message, frozen=True, kw_only=True):
    """The result of a look at one node's ranks."""

    attempt: int
    number: int
    heard: tuple[RankActivity, ...] = ()
    """Each rank of the attempt that is alive there."""
    look: tuple[RankSnapshot, ...] = ()
    """Empty where only the times of last lines were requested."""


class WantLastWords(Message, frozen=True, kw_only=True):
    """The gang hangs, and no look has a stack: the workers write theirs when they are stopped."""

    attempt: int
