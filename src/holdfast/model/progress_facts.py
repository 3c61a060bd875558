"""Signs that a job makes progress even if its attempts fail."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class SignKind(enum.StrEnum):
    """The kind of evidence for progress."""

    #: `holdfast.progress(step)` reported a higher step than any earlier attempt.
    STEP = "step"
    #: The workers' output has a higher step, epoch or iteration than in any earlier attempt.
    COUNT = "count"
    #: A worker completed a checkpoint.
    CHECKPOINT = "checkpoint"
    #: The attempt ran at least twice as long as every earlier attempt, and a minute longer.
    LONGER = "longer"
    #: The attempt ran for at least `healthy_s`.
    HEALTHY = "healthy"


#: The signs that restore the user's budget. The other signs only show that two failures are not the same.
RESTORING = frozenset({SignKind.STEP, SignKind.COUNT})


class Sign(Noun, frozen=True, kw_only=True):
    """One sign that an attempt made progress."""

    kind: SignKind
    #: The evidence, with the earlier value: `step 120 (80 in attempt 1)`.
    text: str


class Count(Noun, frozen=True, kw_only=True):
    """A progress number in the workers' output, such as a step or an epoch."""

    #: The name of the count: `epoch`, `step`, `iteration`, `bar of 1000`. Only counts of one name compare.
    name: str
    value: float
    #: The epoch of the count, if the output has one: such a count may begin again in each epoch.
    epoch: float | None = None
    #: No lower count of this name came before it in the attempt: a number that every attempt may print at its start.
    alone: bool = False
