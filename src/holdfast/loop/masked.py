"""What leaves a node, or is written down, holds no secret."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from holdfast.model.events import EvidenceCollected
from holdfast.model.secret_words import may_hold_anywhere

T = TypeVar("T")


def without_secrets(value: T) -> T:
    """`value` with the secrets in its texts masked. Most events hold none, and load no pattern."""
    if not may_hold_anywhere(value):
        return value
    from holdfast.explain.masking import masked  # a run without a suspicious word does without it

    return masked(value)


def collected_without_secrets(event: EvidenceCollected) -> EvidenceCollected:
    """The same for evidence. A node has masked the texts before it reads them: its readings are left as they are."""
    workers = event.evidence.workers
    bare = replace(event.evidence, workers=tuple(replace(worker, reading=None) for worker in workers))
    kept = without_secrets(replace(event, evidence=bare))
    read = tuple(replace(one, reading=said.reading) for one, said in zip(kept.evidence.workers, workers, strict=True))
    return replace(kept, evidence=replace(kept.evidence, workers=read))
