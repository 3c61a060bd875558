"""What PyTorch's flight recorder kept about one rank's collectives: the last one of each group, and those that wait."""

from __future__ import annotations

from holdfast.model.noun_base import Noun


class CollectiveRecord(Noun, frozen=True, kw_only=True):
    """One collective, as its rank recorded it."""

    #: Its number in the group, from 1: equal on all ranks for the same call.
    number: int
    #: `nccl:all_reduce`.
    name: str
    #: Shape and type of its input: `[[4, 10]] Float`.
    sizes: str = ""
    #: The place in the user's code that called it: `train.py:20`.
    place: str = ""
    #: `scheduled`, `started` or `completed`, as recorded; for gloo always the first.
    state: str = ""
    done: bool = False


class GroupFlight(Noun, frozen=True, kw_only=True):
    """One process group of a rank."""

    #: Its description, else its name: `default_pg`.
    group: str
    #: Its members; empty where the dump does not list them.
    ranks: tuple[int, ...] = ()
    #: The last one that the rank has called.
    last: CollectiveRecord | None = None
    #: The first one that is not complete.
    waits: CollectiveRecord | None = None


class FlightDump(Noun, frozen=True, kw_only=True):
    """The dump of one rank."""

    rank: int
    groups: tuple[GroupFlight, ...] = ()
    #: The file.
    source: str = ""
