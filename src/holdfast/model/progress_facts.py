"""The signs of progress of a job whose attempts fail."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class SignKind(enum.StrEnum):
    """The kind of evidence for progress."""

    #: A higher step of `holdfast.progress(step)` than in any earlier attempt.
    STEP = "step"
    #: A higher step, epoch or iteration in the workers' output than in any earlier attempt.
    COUNT = "count"
    #: A worker wrote a complete checkpoint.
    CHECKPOINT = "checkpoint"
    #: The attempt ran at least twice as long as every earlier attempt, and at least a minute longer.
    LONGER = "longer"
    #: The attempt ran for at least `healthy_s` seconds.
    HEALTHY = "healthy"


#: The signs of progress that restore the user's restart budget. The others only show that this failure differs from the
#: previous one.
RESTORING = frozenset({SignKind.STEP, SignKind.COUNT})


class Sign(Noun, frozen=True, kw_only=True):
    """One sign that an attempt made progress."""

    kind: SignKind
    #: The evidence for the sign, with the value of the earlier attempt: `step 120 (80 in attempt 1)`.
    text: str


class Count(Noun, frozen=True, kw_only=True):
    """A progress number in the workers' output, such as a step or an epoch."""

    #: The name of the count: `epoch`, `step`, `iteration`, `bar of 1000`. Only counts of the same name are compared.
    name: str
    value: float
    #: The epoch of the count, if the output shows it. Such a count may restart in each epoch.
    epoch: float | None = None
    #: Whether no lower number of this name came before it in the attempt. It then proves no progress, because every
    #: attempt may print it at its start.
    alone: bool = False
