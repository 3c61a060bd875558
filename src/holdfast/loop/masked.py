"""What leaves a node, or is written down, holds no secret."""

from __future__ import annotations

from typing import TypeVar

from holdfast.model.secret_words import may_hold_anywhere

T = TypeVar("T")


def without_secrets(value: T) -> T:
    """`value` with the secrets in its texts masked. Most events hold none, and load no pattern."""
    if not may_hold_anywhere(value):
        return value
    from holdfast.explain.masking import masked  # a run without a suspicious word does without it

    return masked(value)
