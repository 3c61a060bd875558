"""The messages between owner and nodes about a gang that may hang: the owner asks for looks, and each node looks at its
ranks."""

from __future__ import annotations

import enum

from holdfast.model.evidence import RankSnapshot
from holdfast.model.noun_base import At, Message, Noun


class Closeness(enum.StrEnum):
    """How closely the node looks."""

    #: The time of each rank's last line or step: it costs nothing.
    WORDS = "words"
    #: From /proc alone.
    LIGHT = "light"
    #: With every rank's stack.
    STACKS = "stacks"


class LookAtRanks(Message, frozen=True, kw_only=True):
    """Look at the ranks of this node; answer with `RanksSeen` of the same attempt and number."""

    attempt: int
    #: Rises with each look: an answer to another one is ignored.
    number: int
    closeness: Closeness
    #: With native frames, for which a process is halted for a moment.
    native: bool = False


class RankActivity(Noun, frozen=True, kw_only=True):
    """One live rank."""

    rank: int
    #: When it last printed a line or reported a step; None: never in this attempt.
    at: At | None = None


class RanksSeen(Message, frozen=True, kw_only=True):
    """The result of a look at one node's ranks."""

    attempt: int
    number: int
    #: Each rank of the attempt that is alive there.
    heard: tuple[RankActivity, ...] = ()
    #: Empty where only the times of last lines were requested.
    look: tuple[RankSnapshot, ...] = ()


class WantLastWords(Message, frozen=True, kw_only=True):
    """The gang hangs, and no look has a stack: the workers write theirs when they are stopped."""

    attempt: int
