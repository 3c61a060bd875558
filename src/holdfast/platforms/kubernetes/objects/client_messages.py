"""The messages between the owner and its Kubernetes client process. Each message is one line of JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Message

#: Maximum length of a message, in bytes. An object has at most about 1.5 MiB, and a page of a list 100 objects.
MOST_LINE_BYTES = 24 << 20


class ApiTrouble(enum.StrEnum):
    """Why a request to the API server failed."""

    NONE = "none"
    #: The API server does not answer, is overloaded, or is shutting down.
    AWAY = "away"
    #: The server did not answer within the request's time limit.
    SLOW = "slow"
    #: The service account has no permission (401, 403).
    REFUSED = "refused"
    #: A quota of the namespace is used up (403, with a message about the quota).
    QUOTA = "quota"
    #: The object of the request does not exist (404).
    GONE = "gone"
    #: The object exists already, or has changed since it was read (409).
    CONFLICT = "conflict"
    #: The API server rejects the request's contents (400, 405, 413, 415, 422).
    INVALID = "invalid"
    #: The client cannot run: lightkube is not installed, or no cluster is configured.
    MISSING = "missing"
    #: Any other failure of a request.
    FAILED = "failed"


#: Kinds of failure that may go away if the request is repeated later.
TEMPORARY = frozenset({ApiTrouble.AWAY, ApiTrouble.SLOW})
#: How long a request that the API server refuses (401, 403) is retried, in seconds. The reason: an API server that
#: starts refuses every request until it has read its roles and its service accounts.
DOUBT_S = 10.0


class Method(enum.StrEnum):
    """The HTTP method of a request."""

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
    """One request to the API server. The client process does not retry it."""

    #: Number of the request; the answer repeats it.
    number: int
    method: Method
    #: Path in the URL, such as `/api/v1/namespaces/NS/pods`.
    path: str
    query: Mapping[str, str] = {}
    body: Any = None
    limit_s: float = 5.0


class Follow(Message, frozen=True, kw_only=True):
    """A request to list objects, then to watch them until `Drop`. The client process resumes a broken watch."""

    number: int
    path: str
    #: Query parameters of the list and the watch, such as selectors.
    query: Mapping[str, str] = {}


class Drop(Message, frozen=True, kw_only=True):
    """A request to end the call or the watch with this number."""

    number: int


class Answered(Message, frozen=True, kw_only=True):
    """The answer to a `Call`."""

    number: int
    #: HTTP status; 0 if no answer came.
    status: int = 0
    #: The object that the API server returned, if the request succeeded.
    body: Any = None
    #: Kubernetes' reason for a failure, such as `AlreadyExists`.
    reason: str = ""
    trouble: ApiTrouble = ApiTrouble.NONE
    #: Description of the failure, with Kubernetes' message, as a clause.
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.trouble is ApiTrouble.NONE


class Listed(Message, frozen=True, kw_only=True):
    """A page of a list, in answer to `Follow`.

    The first page of a list replaces all objects that earlier messages of this watch have reported.
    """

    number: int
    items: list[Any]
    first: bool
    last: bool


class Changed(Message, frozen=True, kw_only=True):
    """The report that one object of a `Follow` was added, changed or deleted after the list."""

    number: int
    change: ObjectChange
    item: Any


class Unseen(Message, frozen=True, kw_only=True):
    """A report that the objects of a `Follow` cannot be watched at the moment.

    The client process retries. `Listed` or `Changed` follows after a success.
    """

    number: int
    trouble: ApiTrouble
    said: str


ToClient = Call | Follow | Drop
FromClient = Answered | Listed | Changed | Unseen
