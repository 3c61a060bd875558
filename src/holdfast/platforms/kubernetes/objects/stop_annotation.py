"""`holdfast stop` reaches an owner on Kubernetes through an annotation of its Job, which the owner watches.

It needs the right to change the Job, which its creator has, and no shell in a pod. A request that is written while no
owner's pod runs is read by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: The annotation with the stop request.
ASKED = "holdfast/stop"
#: The annotation with the owner's answer: the request's id, and what the owner does or why it does nothing.
HEARD = "holdfast/stop-heard"
MOST_BYTES = 32 << 10


class StopAnnotation(Noun, frozen=True, kw_only=True):
    """A stop request."""

    id: str
    reason: str
    solution: str = ""
    phrase: str = ""
    code: int | None = None
    who: str = ""


class StopAnnotationReply(Noun, frozen=True, kw_only=True):
    """The owner's answer to a stop request."""

    id: str
    ok: bool
    message: str


def stop_request_patch(wish: StopAnnotation) -> dict[str, Any]:
    """Return the merge patch of the Job that writes a stop request."""
    return _annotated(ASKED, wish)


def stop_reply_patch(heard: StopAnnotationReply) -> dict[str, Any]:
    """Return the merge patch of the Job that writes the owner's answer."""
    return _annotated(HEARD, heard)


def _annotated(name: str, value: Noun) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: msgspec.json.encode(value).decode()}}}


def wish_of(job: Mapping[str, Any]) -> StopAnnotation | None:
    """Return the last stop request on a Job; None: there is none, or it cannot be read."""
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
