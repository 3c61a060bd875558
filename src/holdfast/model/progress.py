"""Signs that a job gets further, although its attempts fail."""

from __future__ import annotations

import enum

from holdfast.model.base import Noun


class SignKind(enum.StrEnum):
    """How progress was seen."""

    STEP = "step"
    """`holdfast.progress(step)` told a higher step than any earlier attempt."""
    COUNT = "count"
    """The workers' output counts a higher step, epoch or iteration than in any earlier attempt."""
    CHECKPOINT = "checkpoint"
    """A worker wrote a checkpoint to its end."""
    LONGER = "longer"
    """The attempt ran at least twice as long as every earlier one, and a minute longer."""
    HEALTHY = "healthy"
    """It ran for `healthy_s`."""


RESTORING = frozenset({SignKind.STEP, SignKind.COUNT})
"""The signs that restore the user's budget. The others only tell one failure from another."""


class Sign(Noun, frozen=True, kw_only=True):
    """One sign of progress of an attempt."""

    kind: SignKind
    text: str
    """What was seen, beside what was known before: `step 120 (80 in attempt 1)`."""


class Count(Noun, frozen=True, kw_only=True):
    """A number by which the output of workers counts their work."""

    name: str
    """What is counted: `epoch`, `step`, `iteration`, `bar of 1000`. Only counts of one name compare."""
    value: float
    epoch: float | None = None
    """The epoch that the count belongs to, where the output tells one: such a count may begin anew in each epoch."""
