"""The signs that a job makes progress although its attempts fail."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class SignKind(enum.StrEnum):
    """The kind of evidence for progress."""

    #: A step reported by `holdfast.progress(step)` is higher than in any earlier attempt.
    STEP = "step"
    #: The workers' output has a higher step, epoch or iteration than in any earlier attempt.
    COUNT = "count"
    #: A worker wrote a complete checkpoint.
    CHECKPOINT = "checkpoint"
    #: The attempt ran at least twice as long as every earlier attempt, and at least a minute longer.
    LONGER = "longer"
    #: The attempt ran for at least `healthy_s` seconds.
    HEALTHY = "healthy"


#: The signs of progress that restore the user's restart budget. The other signs only show that this failure differs
#: from the previous one.
RESTORING = frozenset({SignKind.STEP, SignKind.COUNT})


class Sign(Noun, frozen=True, kw_only=True):
    """One sign that an attempt made progress."""

    kind: SignKind
    #: The evidence for the sign, with the value of the earlier attempt: `step 120 (80 in attempt 1)`.
    text: str


class Count(Noun, frozen=True, kw_only=True):
    """A progress number in the workers' output, such as a step or an epoch."""

    #: The name of the count: `epoch`, `step`, `iteration`, `bar of 1000`. Only counts with the same name are compared.
    name: str
    value: float
    #: The epoch in which the count was printed, if the output names it. A count with an epoch may restart in each
    #: epoch.
    epoch: float | None = None
    #: Whether this is the only number of its name in the attempt, without a lower one before it. Every attempt may
    #: print such a number at its start, so it proves no progress.
    alone: bool = False
