"""The messages between the owner and its Kubernetes client process, one line of JSON each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Message

#: Limit of one line. An object has at most about 1.5 MiB, and a page of a list has 100 objects.
MOST_LINE_BYTES = 24 << 20


class ApiTrouble(enum.StrEnum):
    """Why a request to the API server failed."""

    NONE = "none"
    #: The API server does not answer, is overloaded, or is shutting down.
    AWAY = "away"
    #: The request reached its time limit.
    SLOW = "slow"
    #: The service account has no permission (401, 403).
    REFUSED = "refused"
    #: A quota of the namespace is used up (403, with a message about the quota).
    QUOTA = "quota"
    #: There is no such object (404).
    GONE = "gone"
    #: The object exists already, or has changed since it was read (409).
    CONFLICT = "conflict"
    #: The API server rejects the request's contents (400, 405, 413, 415, 422).
    INVALID = "invalid"
    #: The client cannot run: lightkube is not installed, or no cluster is configured.
    MISSING = "missing"
    #: Any other failure.
    FAILED = "failed"


#: Failures that a later try may not have.
TEMPORARY = frozenset({ApiTrouble.AWAY, ApiTrouble.SLOW})


class Method(enum.StrEnum):
    """The HTTP method."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class ObjectChange(enum.StrEnum):
    """How a watched object has changed."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Call(Message, frozen=True, kw_only=True):
    """One request to the API server. The client does not retry it."""

    #: Number of the request; the answer repeats it.
    number: int
    method: Method
    #: URL path: `/api/v1/namespaces/NS/pods`.
    path: str
    query: Mapping[str, str] = {}
    body: Any = None
    limit_s: float = 5.0


class Follow(Message, frozen=True, kw_only=True):
    """List these objects, then watch them until `Drop`. The client resumes a broken watch."""

    number: int
    path: str
    #: Query parameters, such as selectors.
    query: Mapping[str, str] = {}


class Drop(Message, frozen=True, kw_only=True):
    """End the request or watch with this number."""

    number: int


class Answered(Message, frozen=True, kw_only=True):
    """The answer to `Call`."""

    number: int
    #: HTTP status; 0: there was no answer.
    status: int = 0
    #: The object, if the request succeeded.
    body: Any = None
    #: Kubernetes' reason for a failure: `AlreadyExists`.
    reason: str = ""
    trouble: ApiTrouble = ApiTrouble.NONE
    #: The failure with Kubernetes' message, as a clause.
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.trouble is ApiTrouble.NONE


class Listed(Message, frozen=True, kw_only=True):
    """A page of a list, in answer to `Follow`.

    The first page makes earlier lists and changes of this watch obsolete.
    """

    number: int
    items: list[Any]
    first: bool
    last: bool


class Changed(Message, frozen=True, kw_only=True):
    """An object of a `Follow` has changed since the list."""

    number: int
    change: ObjectChange
    item: Any


class Unseen(Message, frozen=True, kw_only=True):
    """The objects of a `Follow` cannot be watched at the moment.

    The client retries; then `Listed` or `Changed` follows.
    """

    number: int
    trouble: ApiTrouble
    said: str


ToClient = Call | Follow | Drop
FromClient = Answered | Listed | Changed | Unseen
