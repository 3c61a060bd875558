"""How `holdfast stop` reaches an owner on Kubernetes: by an annotation of its Job, which the owner follows. Pure.

It needs the right to change the Job, which its creator has, and no shell in a pod. A wish that is written while the
owner's pod is away is heard by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: The annotation with the wish.
ASKED = "holdfast/stop"
#: The owner's answer: the wish's id and what it does, or why it does nothing.
HEARD = "holdfast/stop-heard"
MOST_BYTES = 32 << 10


class StopAnnotation(Noun, frozen=True, kw_only=True):
    """What a stop says of itself."""

    id: str
    reason: str
    solution: str = ""
    phrase: str = ""
    code: int | None = None
    who: str = ""


class StopAnnotationReply(Noun, frozen=True, kw_only=True):
    """The owner's answer."""

    id: str
    ok: bool
    message: str


def stop_request_patch(wish: StopAnnotation) -> dict[str, Any]:
    """As a merge patch of the Job."""
    return _annotated(ASKED, wish)


def stop_reply_patch(heard: StopAnnotationReply) -> dict[str, Any]:
    """As a merge patch of the Job."""
    return _annotated(HEARD, heard)


def _annotated(name: str, value: Noun) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: msgspec.json.encode(value).decode()}}}


def wish_of(job: Mapping[str, Any]) -> StopAnnotation | None:
    """The last wish that was written at a Job; None: there is none that can be read."""
    found: StopAnnotation | None = _read(job, ASKED, StopAnnotation)
    return found


def heard_of(job: Mapping[str, Any]) -> StopAnnotationReply | None:
    found: StopAnnotationReply | None = _read(job, HEARD, StopAnnotationReply)
    return found


def _read(job: Mapping[str, Any], name: str, kind: Any) -> Any:
    text = ((job.get("metadata") or {}).get("annotations") or {}).get(name)
    if not isinstance(text, str):
        return None
    try:
        return json_as(text, kind, most_bytes=MOST_BYTES)
    except Malformed:
        return None
