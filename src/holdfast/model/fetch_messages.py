"""The messages of fetching a prerequisite: the request to the fetching process, its progress messages, and
a failure.
"""

from __future__ import annotations

from holdfast.model.noun_base import Message, Noun
from holdfast.model.runtime_plan import Prerequisite


class FetchOrder(Noun, frozen=True, kw_only=True):
    """The request to one fetching process, as JSON on its standard input."""

    #: The prerequisites to fetch, with variables expanded and absolute paths in `into`.
    things: tuple[Prerequisite, ...]
    #: The requester, such as `job train on node gpu-1`. Another job that waits for this fetch prints it.
    who: str = ""
    node: str = ""
    #: The seed for the jitter of pauses between tries. Nodes that fail together then retry at different times.
    seed: int = 0
    #: Seconds from the start of the fetch until no further try begins.
    limit_s: float = 14_400.0
    #: A server that sends nothing for this many seconds counts as failed.
    stall_s: float = 60.0


class FetchTrouble(Noun, frozen=True, kw_only=True):
    """Why a prerequisite could not be fetched."""

    #: The name of the prerequisite that could not be fetched.
    name: str
    #: The phrase of a row of the exit catalogue. The row says who is to blame, and whether another try helps.
    phrase: str
    #: The cause of the failure in one sentence, without secrets.
    words: str
    #: Advice to the user that is more precise than the catalogue row's; else empty.
    solution: str = ""
    #: Whether the cause is on this node (its disk or file system). A fetch on another node may then succeed.
    here: bool = False


class NotPrepared(Noun, frozen=True, kw_only=True):
    """The result of a failed `holdfast prepare`: JSON in a file, and on the last line of stdout."""

    phrase: str
    words: str
    solution: str = ""
    #: The exit status with which `holdfast prepare` ends.
    code: int = 1
    #: The prerequisite that could not be fetched; empty: something else has failed.
    name: str = ""


class FetchBegan(Message, frozen=True, kw_only=True):
    """The process begins to fetch one prerequisite."""

    name: str
    #: The address of the prerequisite, without secrets.
    uri: str
    into: str


class FetchMoved(Message, frozen=True, kw_only=True):
    """The fetch has made progress; the process reports it at most twice a second."""

    name: str
    #: The number of fetched bytes, with those of earlier tries.
    bytes: int
    #: The size of the whole prerequisite in bytes; None: not known.
    most_bytes: int | None = None
    #: The speed of the fetch during the last seconds, in bytes per second.
    per_s: float = 0.0
    #: The present step of the fetch: `fetching`, `unpacking` or `checking`.
    doing: str = "fetching"


class FetchWaits(Message, frozen=True, kw_only=True):
    """Another process of this node is fetching the same prerequisite, so this process waits for it."""

    name: str
    who: str


class FetchAgain(Message, frozen=True, kw_only=True):
    """A try to fetch the prerequisite failed; another try follows."""

    name: str
    trouble: FetchTrouble
    tried: int
    tries: int
    pause_s: float


class FetchDone(Message, frozen=True, kw_only=True):
    """The prerequisite is complete."""

    name: str
    into: str
    bytes: int
    took_s: float
    #: Whether the prerequisite was complete before, so that nothing was fetched.
    there: bool = False
    #: Bytes of the prerequisite that an earlier fetch had stored.
    resumed_bytes: int = 0
    tries: int = 1
    #: The prerequisite's version by its server: an ETag, a commit.
    mark: str = ""


class FetchFailed(Message, frozen=True, kw_only=True):
    """The prerequisite could not be fetched, and no further try follows. The job uses nothing of it."""

    trouble: FetchTrouble
    tries: int = 1


#: The messages of the fetching process. It writes one per line to its standard output.
FetchWord = FetchBegan | FetchMoved | FetchWaits | FetchAgain | FetchDone | FetchFailed
