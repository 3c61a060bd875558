"""What a swimlane is made of. Times are seconds since the epoch; texts are as the journal has them, not escaped."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class MarkKind(enum.StrEnum):
    """What happened at one moment. The value is its name in the legend."""

    OWN_DEATH = "own death"
    #: The rank ended because another one had.
    PEER_DEATH = "peer's death"
    STOPPED = "stopped"
    FINISHED = "finished"
    HANG = "hang"
    FAULT = "device fault"
    MEMORY_KILL = "memory kill"
    PROGRESS = "progress"
    #: A person asked for a stop.
    OPERATOR = "operator"
    #: A program, a limit or the platform asked for a stop.
    STOP_ASKED = "stop asked"
    LOST = "node lost"
    CHECK = "check failed"
    #: The platform has started the job again, or its owner is back.
    BACK = "started again"


class Mark(Noun, frozen=True, kw_only=True):
    """One mark on a row."""

    kind: MarkKind
    at: float
    #: What happened, in a sentence without its time.
    text: str
    #: 0: of no attempt.
    attempt: int = 0
    #: The last of several equal marks that are drawn as one; None: it is one.
    until: float | None = None
    count: int = 1


class Stretch(Noun, frozen=True, kw_only=True):
    """A rank's process in one attempt; of a row with several ranks from the first start to the last end."""

    attempt: int
    start: float
    end: float
    #: From here on nothing moved; None: no hang was found.
    silent_from: float | None = None


class SwimlaneRow(Noun, frozen=True, kw_only=True):
    """One row: a rank, or ranks of a node to which the same happened at nearly the same times."""

    #: Of the first of the nodes that share the row, where there are several.
    ranks: tuple[int, ...]
    role: str
    stretches: tuple[Stretch, ...] = ()
    marks: tuple[Mark, ...] = ()
    #: The report of an attempt names one of them as the first cause.
    culprit: bool = False
    #: The lowest last step that one of them told in the last attempt.
    step: int | None = None
    #: How many ranks the row stands for, over all its nodes.
    count: int = 0


class NodeLanes(Noun, frozen=True, kw_only=True):
    """A node with its rows, or several nodes to which the same happened."""

    nodes: tuple[str, ...]
    lanes: tuple[SwimlaneRow, ...]
    #: What concerns the machine and no single rank.
    marks: tuple[Mark, ...] = ()


class PhaseSpan(Noun, frozen=True, kw_only=True):
    """One phase of an attempt. Its name is that of `attempts[].parts` in a report."""

    name: str
    start: float
    end: float


class Band(Noun, frozen=True, kw_only=True):
    """One attempt."""

    attempt: int
    start: float
    end: float
    #: They follow each other without a gap; the pause before the attempt lies before `start`.
    parts: tuple[PhaseSpan, ...]
    #: The failure class; empty while the attempt runs.
    phrase: str = ""
    #: What was decided after it, with the reason; empty while the attempt runs.
    decision: str = ""
    running: bool = False


class Swimlane(Noun, frozen=True, kw_only=True):
    """A job as it is drawn."""

    start: float
    end: float
    bands: tuple[Band, ...]
    nodes: tuple[NodeLanes, ...]
    #: What concerns the whole job.
    marks: tuple[Mark, ...] = ()
    #: How many ranks the job has had.
    ranks: int = 0
    machines: int = 0
    #: So many of the first attempts are not drawn.
    left_out: int = 0
