"""Masks secrets in everything that leaves a node or is written to a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.explain.text.secret_masking import masked
from holdfast.model.events import EvidenceCollected
from holdfast.model.secret_hints import may_hold_anywhere

T = TypeVar("T")

#: Minimum length of a secret that is masked. A shorter secret would also occur in unrelated words.
LEAST = 6
_known: list[str] = []


def hide(values: Iterable[str]) -> None:
    """From now on also mask these texts, in this process and its forks. The job file declares them as secrets."""
    _known.extend(value for value in values if len(value) >= LEAST and value not in _known)
    _known.sort(key=len, reverse=True)


def without_secrets(value: T) -> T:
    """Return `value` with the secrets in its texts masked. If no text hints at a secret, no pattern is compiled."""
    if _known:
        value = _hidden(value)
    if not may_hold_anywhere(value):
        return value
    return masked(value)


def _hidden(value: Any) -> Any:
    if type(value) is str:
        for secret in _known:
            value = value.replace(secret, "***") if secret in value else value
        return value
    if isinstance(value, msgspec.Struct):
        found = {
            name: (old, _hidden(old)) for name in value.__struct_fields__ if (old := getattr(value, name)) is not None
        }
        changed = {name: new for name, (old, new) in found.items() if new is not old}
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple | list):
        items = [_hidden(item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        pairs = {key: _hidden(item) for key, item in value.items()}
        return value if all(pairs[key] is value[key] for key in value) else pairs
    return value


def collected_without_secrets(event: EvidenceCollected) -> EvidenceCollected:
    """Mask the secrets in collected evidence.

    Log readings are left as they are, because a node masks log texts before it reads them.
    """
    workers = event.evidence.workers
    bare = replace(event.evidence, workers=tuple(replace(worker, reading=None) for worker in workers))
    kept = without_secrets(replace(event, evidence=bare))
    read = tuple(replace(one, reading=said.reading) for one, said in zip(kept.evidence.workers, workers, strict=True))
    return replace(kept, evidence=replace(kept.evidence, workers=read))
