"""Interpret the API server's answers."""

from __future__ import annotations

from typing import Any

from holdfast.platforms.kubernetes.objects.client_messages import ApiTrouble
from holdfast.safe_text import one_line

_WORDS = 600
_INVALID = frozenset({400, 405, 406, 413, 415, 422})
#: Statuses of a server that is away. 500 belongs to them: a starting or stopping server, or one without etcd, sends it.
_AWAY = frozenset({408, 429, 500, 502, 503, 504})


def meant(status: int, body: Any) -> tuple[ApiTrouble, str, str]:
    """Classify an answer: the trouble, Kubernetes' reason, and a clause.

    `body`: the Status object; others have no details.
    """
    reason, message = words_of(body)
    quoted = f" ({message})" if message else ""
    match status:
        case 200 | 201 | 202 | 204:
            return ApiTrouble.NONE, "", ""
        case 403 if "exceeded quota" in message:
            return ApiTrouble.QUOTA, reason, message
        case 401 | 403:
            return ApiTrouble.REFUSED, reason, message or f"the API server refuses it ({status})"
        case 404:
            return ApiTrouble.GONE, reason, message or "the API server knows no such object"
        case 409:
            return ApiTrouble.CONFLICT, reason, message or "the object is there already, or has changed"
        case _ if status in _INVALID:
            return ApiTrouble.INVALID, reason, message or f"the API server does not take it ({status})"
        case _ if status in _AWAY:
            return ApiTrouble.AWAY, reason, f"the API server answers {status}{quoted}"
    return ApiTrouble.FAILED, reason, f"the API server answers {status}{quoted}"


def words_of(body: Any) -> tuple[str, str]:
    """Return reason and message of a Status object; empty if it has none."""
    if not isinstance(body, dict):
        return "", ""
    return one_line(str(body.get("reason") or ""))[:64], one_line(str(body.get("message") or ""))[:_WORDS]
