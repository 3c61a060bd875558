"""A fetch as data: what its process is asked for, what it tells while it works, and how a failure is told."""

from __future__ import annotations

from holdfast.model.base import Message, Noun
from holdfast.model.runtime import Prerequisite


class FetchOrder(Noun, frozen=True, kw_only=True):
    """What one fetching process does: on its standard input, as JSON."""

    things: tuple[Prerequisite, ...]
    """Names expanded, `into` absolute."""
    who: str = ""
    """What another job that waits for this one reads of it: `job train on node gpu-1`."""
    node: str = ""
    seed: int = 0
    """Of the pauses between tries: nodes that fail together do not come back together."""
    limit_s: float = 14_400.0
    """No try begins later than this after the start."""
    stall_s: float = 60.0
    """A server that sends nothing for so long has failed."""


class FetchTrouble(Noun, frozen=True, kw_only=True):
    """Why a prerequisite could not be had."""

    name: str
    """Of the prerequisite."""
    phrase: str
    """A row of the catalogue: it says whose trouble this is, and whether another try helps."""
    words: str
    """One sentence, without secrets."""
    solution: str = ""
    """Where it is more than the row's."""
    here: bool = False
    """This node's own trouble (its disk, its file system): another node may do."""


class NotPrepared(Noun, frozen=True, kw_only=True):
    """What `holdfast prepare` leaves behind where it fails: as JSON in a file, and as its last line on stdout."""

    phrase: str
    words: str
    solution: str = ""
    code: int = 1
    """Its exit status."""
    name: str = ""
    """Of the prerequisite that could not be had; empty: it was something else."""


class FetchBegan(Message, frozen=True, kw_only=True):
    """The fetch of one prerequisite begins."""

    name: str
    uri: str
    """Without secrets."""
    into: str


class FetchMoved(Message, frozen=True, kw_only=True):
    """It has come further: twice a second at most."""

    name: str
    bytes: int
    """Of the prerequisite, those of earlier tries included."""
    most_bytes: int | None = None
    """All that there is; None: not known."""
    per_s: float = 0.0
    """Bytes a second, over the last seconds."""
    doing: str = "fetching"
    """Or `unpacking`, `checking`."""


class FetchWaits(Message, frozen=True, kw_only=True):
    """Another process of this node fetches the same; this one waits for it."""

    name: str
    who: str


class FetchAgain(Message, frozen=True, kw_only=True):
    """A try failed; another follows."""

    name: str
    trouble: FetchTrouble
    tried: int
    tries: int
    pause_s: float


class FetchDone(Message, frozen=True, kw_only=True):
    """It is there, whole."""

    name: str
    into: str
    bytes: int
    took_s: float
    there: bool = False
    """It was there before: nothing was fetched."""
    resumed_bytes: int = 0
    """So many of its bytes an earlier fetch had left."""
    tries: int = 1
    mark: str = ""
    """What the server calls this version: an ETag, a commit."""


class FetchFailed(Message, frozen=True, kw_only=True):
    """It is not there, and nothing of it counts. The fetch ends with this."""

    trouble: FetchTrouble
    tries: int = 1


FetchWord = FetchBegan | FetchMoved | FetchWaits | FetchAgain | FetchDone | FetchFailed
"""A line of the fetching process's standard output."""
