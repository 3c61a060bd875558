"""A fetch as data: the request to its process, the process's messages while it works, and the form of a failure."""

from __future__ import annotations

from holdfast.model.noun_base import Message, Noun
from holdfast.model.runtime_plan import Prerequisite


class FetchOrder(Noun, frozen=True, kw_only=True):
    """The task of one fetching process: JSON on its standard input."""

    #: The prerequisites, with names expanded and `into` absolute.
    things: tuple[Prerequisite, ...]
    #: The name that another waiting job prints: `job train on node gpu-1`.
    who: str = ""
    node: str = ""
    #: The seed of the jitter of pauses between tries: nodes that fail together must not come back together.
    seed: int = 0
    #: Seconds after the start from which no further try begins.
    limit_s: float = 14_400.0
    #: Seconds without a byte after which a server has failed.
    stall_s: float = 60.0


class FetchTrouble(Noun, frozen=True, kw_only=True):
    """Why a prerequisite could not be fetched."""

    #: The prerequisite's name.
    name: str
    #: A row of the catalogue: it has the blame, and whether another try helps.
    phrase: str
    #: One sentence, without secrets.
    words: str
    #: The solution, where it is more precise than the row's.
    solution: str = ""
    #: The cause is this node's own (its disk, its file system): another node may succeed.
    here: bool = False


class NotPrepared(Noun, frozen=True, kw_only=True):
    """What `holdfast prepare` writes where it fails: JSON in a file, and as its last line on stdout."""

    phrase: str
    words: str
    solution: str = ""
    #: Its exit status.
    code: int = 1
    #: The prerequisite that could not be fetched; empty: the failure was something else.
    name: str = ""


class FetchBegan(Message, frozen=True, kw_only=True):
    """The fetch of one prerequisite begins."""

    name: str
    #: The address, without secrets.
    uri: str
    into: str


class FetchMoved(Message, frozen=True, kw_only=True):
    """The fetch has made progress; the process reports it at most twice a second."""

    name: str
    #: Bytes of the prerequisite so far, with those of earlier tries.
    bytes: int
    #: Bytes of the whole prerequisite; None: not known.
    most_bytes: int | None = None
    #: Bytes per second, over the last seconds.
    per_s: float = 0.0
    #: The step: fetching, `unpacking` or `checking`.
    doing: str = "fetching"


class FetchWaits(Message, frozen=True, kw_only=True):
    """Another process of this node fetches the same prerequisite; this one waits for it."""

    name: str
    who: str


class FetchAgain(Message, frozen=True, kw_only=True):
    """A try failed; another one follows."""

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
    #: It was complete before: nothing was fetched.
    there: bool = False
    #: Bytes of it that an earlier fetch had left.
    resumed_bytes: int = 0
    tries: int = 1
    #: The server's version of it: an ETag, a commit.
    mark: str = ""


class FetchFailed(Message, frozen=True, kw_only=True):
    """The fetch failed and ends; nothing of it is used."""

    trouble: FetchTrouble
    tries: int = 1


#: A line of the fetching process's standard output.
FetchWord = FetchBegan | FetchMoved | FetchWaits | FetchAgain | FetchDone | FetchFailed
