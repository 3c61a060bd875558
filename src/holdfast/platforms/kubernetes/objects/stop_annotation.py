"""Stop requests from `holdfast stop` to an owner on Kubernetes: annotations of the Job, which the owner watches.

A request needs the right to change the Job, which its creator has. It needs no shell in a pod. If no owner's pod runs,
the next owner's pod reads the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, json_as

#: The annotation that contains the stop request.
REQUEST = "holdfast.io/stop"
#: The annotation that contains the owner's answer: the request's id, and the owner's action or its reason for none.
REPLY = "holdfast.io/stop-heard"
MOST_BYTES = 32 << 10


class StopAnnotation(Noun, frozen=True, kw_only=True):
    """The stop request in the Job's annotation."""

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
    """Return the merge patch that writes a stop request to the Job."""
    return _annotated(REQUEST, wish)


def stop_reply_patch(heard: StopAnnotationReply) -> dict[str, Any]:
    """Return the merge patch that writes the owner's answer to the Job."""
    return _annotated(REPLY, heard)


def _annotated(name: str, value: Noun) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: msgspec.json.encode(value).decode()}}}


def wish_of(job: Mapping[str, Any]) -> StopAnnotation | None:
    """Parse the last stop request on a Job. Return None if there is none, or if it cannot be parsed."""
    found: StopAnnotation | None = _read(job, REQUEST, StopAnnotation)
    return found


def heard_of(job: Mapping[str, Any]) -> StopAnnotationReply | None:
    found: StopAnnotationReply | None = _read(job, REPLY, StopAnnotationReply)
    return found


def _read(job: Mapping[str, Any], name: str, kind: Any) -> Any:
    text = ((job.get("metadata") or {}).get("annotations") or {}).get(name)
    if not isinstance(text, str):
        return None
    try:
        return json_as(text, kind, most_bytes=MOST_BYTES)
    except Malformed:
        return None
