"""The records of PyTorch's flight recorder: for each process group of a rank, the last collective and the first
incomplete one.
"""

from __future__ import annotations

from holdfast.model.noun_base import Noun


class CollectiveRecord(Noun, frozen=True, kw_only=True):
    """One call of a collective, from the rank's flight recorder."""

    #: The number of the collective in its process group, from 1. The same call has the same number on every rank.
    number: int
    #: The name of the collective: `nccl:all_reduce`.
    name: str
    #: Shape and type of the collective's input: `[[4, 10]] Float`.
    sizes: str = ""
    #: The place of the call in the user's code: `train.py:20`.
    place: str = ""
    #: The collective's recorded state: `scheduled`, `started` or `completed`; for gloo always `scheduled`.
    state: str = ""
    done: bool = False


class GroupFlight(Noun, frozen=True, kw_only=True):
    """The collectives of one process group of a rank."""

    #: The description of the process group, or its name if it has none: `default_pg`.
    group: str
    #: The ranks in the process group; empty: the dump does not list them.
    ranks: tuple[int, ...] = ()
    #: The last collective that the rank called in the group.
    last: CollectiveRecord | None = None
    #: The first collective of the group that is incomplete on this rank.
    waits: CollectiveRecord | None = None


class FlightDump(Noun, frozen=True, kw_only=True):
    """The dump of one rank's flight recorder."""

    rank: int
    groups: tuple[GroupFlight, ...] = ()
    #: The name of the dump's file.
    source: str = ""
