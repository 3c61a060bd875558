"""What the owner and its client for Kubernetes say to each other: a line of JSON each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from holdfast.model.noun_base import Message

#: One line. An object of Kubernetes has at most about 1.5 MiB, a page of a list has 100 of them.
MOST_LINE_BYTES = 24 << 20


class ApiTrouble(enum.StrEnum):
    """Why a question has no good answer."""

    NONE = "none"
    #: The API server does not answer, or is overloaded, or ends.
    AWAY = "away"
    #: It had not answered when the time was over.
    SLOW = "slow"
    #: The service account may not (401, 403).
    REFUSED = "refused"
    #: A quota of the namespace is used up (403, with Kubernetes' own words).
    QUOTA = "quota"
    #: There is no such object (404).
    GONE = "gone"
    #: It is there already, or has changed since it was read (409).
    CONFLICT = "conflict"
    #: The API server does not take what was sent (400, 405, 413, 415, 422).
    INVALID = "invalid"
    #: The client cannot run: lightkube is not installed, or no cluster is configured.
    MISSING = "missing"
    #: Anything else.
    FAILED = "failed"


#: Troubles that another try may end.
TEMPORARY = frozenset({ApiTrouble.AWAY, ApiTrouble.SLOW})


class Method(enum.StrEnum):
    """Of HTTP."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class ObjectChange(enum.StrEnum):
    """What has become of an object that is watched."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Call(Message, frozen=True, kw_only=True):
    """One request to the API server. It is made once."""

    #: The answer has it too.
    number: int
    method: Method
    #: `/api/v1/namespaces/NS/pods`
    path: str
    query: Mapping[str, str] = {}
    body: Any = None
    limit_s: float = 5.0


class Follow(Message, frozen=True, kw_only=True):
    """List these objects, then watch them, until `Drop`. A watch that breaks is taken up where it broke."""

    number: int
    path: str
    #: Selectors.
    query: Mapping[str, str] = {}


class Drop(Message, frozen=True, kw_only=True):
    """What this number has asked for is wanted no more."""

    number: int


class Answered(Message, frozen=True, kw_only=True):
    """To `Call`."""

    number: int
    #: Of HTTP; 0: there was no answer.
    status: int = 0
    #: Of a good answer: the object.
    body: Any = None
    #: Kubernetes' word for a bad one: `AlreadyExists`.
    reason: str = ""
    trouble: ApiTrouble = ApiTrouble.NONE
    #: The trouble in words, with Kubernetes' own, for a sentence.
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.trouble is ApiTrouble.NONE


class Listed(Message, frozen=True, kw_only=True):
    """To `Follow`: a page of all objects that there are; what an earlier list or watch has said counts no more."""

    number: int
    items: list[Any]
    first: bool
    last: bool


class Changed(Message, frozen=True, kw_only=True):
    """To `Follow`: an object has changed since the list."""

    number: int
    change: ObjectChange
    item: Any


class Unseen(Message, frozen=True, kw_only=True):
    """To `Follow`: the objects cannot be watched just now; it is tried on. A `Listed` or `Changed` follows then."""

    number: int
    trouble: ApiTrouble
    said: str


ToClient = Call | Follow | Drop
FromClient = Answered | Listed | Changed | Unseen
