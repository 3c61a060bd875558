"""The model of a swimlane (a time chart of ranks). Times are seconds since the epoch; texts are not escaped."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class MarkKind(enum.StrEnum):
    """The kind of an event in the picture. The value is its name in the legend."""

    OWN_DEATH = "own death"
    #: The rank ended because another rank had failed.
    PEER_DEATH = "peer's death"
    STOPPED = "stopped"
    FINISHED = "finished"
    HANG = "hang"
    FAULT = "device fault"
    MEMORY_KILL = "memory kill"
    PROGRESS = "progress"
    #: A person, or a signal, requested a stop.
    OPERATOR = "operator"
    #: A stop was requested by something other than a person: the platform, a limit, a fault, a hang, holdfast itself.
    STOP_ASKED = "stop asked"
    LOST = "node lost"
    CHECK = "check failed"
    #: The platform has started the job again, or the job's owner has restarted after a crash.
    BACK = "started again"


class Mark(Noun, frozen=True, kw_only=True):
    """One mark on a row."""

    kind: MarkKind
    at: float
    #: A sentence about the event, without its time.
    text: str
    #: The number of the mark's attempt; 0: the mark belongs to no attempt.
    attempt: int = 0
    #: The time of the last event, if this mark stands for several events; None: it stands for one.
    until: float | None = None
    count: int = 1


class Stretch(Noun, frozen=True, kw_only=True):
    """The life of a rank's process in one attempt. In a row of several ranks: from the first start to the last end."""

    attempt: int
    start: float
    end: float
    #: The time from which the rank showed no activity; None: no hang was found.
    silent_from: float | None = None


class SwimlaneRow(Noun, frozen=True, kw_only=True):
    """One row: a rank, or several ranks that had the same events at nearly the same times."""

    #: The ranks. If several nodes share the row, only the ranks of the first node.
    ranks: tuple[int, ...]
    role: str
    stretches: tuple[Stretch, ...] = ()
    marks: tuple[Mark, ...] = ()
    #: Whether the report of an attempt names one of the ranks as the culprit.
    culprit: bool = False
    #: The lowest of the last steps that the ranks reported in the last attempt.
    step: int | None = None
    #: The number of ranks in the row, over all its nodes.
    count: int = 0


class NodeLanes(Noun, frozen=True, kw_only=True):
    """A node with its rows, or several nodes that had the same events."""

    nodes: tuple[str, ...]
    lanes: tuple[SwimlaneRow, ...]
    #: Marks about the machine. Marks about a rank are in its row.
    marks: tuple[Mark, ...] = ()


class PhaseSpan(Noun, frozen=True, kw_only=True):
    """One phase of an attempt. The name is a key of `attempts[].parts` in a report."""

    name: str
    start: float
    end: float


class Band(Noun, frozen=True, kw_only=True):
    """One attempt, drawn as a band of the picture."""

    attempt: int
    start: float
    end: float
    #: The phases, without gaps between them. The pause before the attempt is before `start`.
    parts: tuple[PhaseSpan, ...]
    #: The failure class of the attempt; empty while it runs.
    phrase: str = ""
    #: The decision after the attempt, with the reason; empty while the attempt runs.
    decision: str = ""
    running: bool = False


class Swimlane(Noun, frozen=True, kw_only=True):
    """Everything that a job's swimlane (a time chart of its ranks) shows."""

    start: float
    end: float
    bands: tuple[Band, ...]
    nodes: tuple[NodeLanes, ...]
    #: Marks about the whole job.
    marks: tuple[Mark, ...] = ()
    #: The number of ranks that the job has had.
    ranks: int = 0
    machines: int = 0
    #: The number of attempts that are not drawn: the first ones.
    left_out: int = 0
