"""The messages between owner and nodes about a possible hang: the owner requests looks, nodes look at their ranks."""

from __future__ import annotations

import enum

from holdfast.model.evidence import RankSnapshot
from holdfast.model.noun_base import At, Message, Noun


class Closeness(enum.StrEnum):
    """How closely a node looks at its ranks."""

    #: Only the time of each rank's last line or step, which costs nothing.
    WORDS = "words"
    #: The facts in /proc.
    LIGHT = "light"
    #: The facts in /proc, and every rank's stack.
    STACKS = "stacks"


class LookAtRanks(Message, frozen=True, kw_only=True):
    """Look at the ranks of this node; answer with `RanksSeen` of the same attempt and number."""

    attempt: int
    #: The number of the look, which rises; an answer to another look is ignored.
    number: int
    closeness: Closeness
    #: Whether the stacks have native frames; the node halts a process for a moment to read them.
    native: bool = False


class RankActivity(Noun, frozen=True, kw_only=True):
    """The last activity of one live rank."""

    rank: int
    #: When the rank last printed a line or reported a step; None: never in this attempt.
    at: At | None = None


class RanksSeen(Message, frozen=True, kw_only=True):
    """The result of a look at one node's ranks."""

    attempt: int
    number: int
    #: The live ranks of the attempt on the node.
    heard: tuple[RankActivity, ...] = ()
    #: A snapshot of each rank; empty if only the times of last lines were requested.
    look: tuple[RankSnapshot, ...] = ()


class WantLastWords(Message, frozen=True, kw_only=True):
    """Let the workers write their stacks when they are stopped, because the gang hangs and no look has a stack."""

    attempt: int
