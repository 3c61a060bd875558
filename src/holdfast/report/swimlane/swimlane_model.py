"""What a swimlane is made of. Times are seconds since the epoch; texts are as the journal has them, not escaped."""

from __future__ import annotations

import enum

from holdfast.model.noun_base import Noun


class MarkKind(enum.StrEnum):
    """What happened at one moment. The value is its name in the legend."""

    OWN_DEATH = "own death"
    PEER_DEATH = "peer's death"
    """The rank ended because another one had."""
    STOPPED = "stopped"
    FINISHED = "finished"
    HANG = "hang"
    FAULT = "device fault"
    MEMORY_KILL = "memory kill"
    PROGRESS = "progress"
    OPERATOR = "operator"
    """A person asked for a stop."""
    STOP_ASKED = "stop asked"
    """A program, a limit or the platform asked for a stop."""
    LOST = "node lost"
    CHECK = "check failed"
    BACK = "started again"
    """The platform has started the job again, or its owner is back."""


class Mark(Noun, frozen=True, kw_only=True):
    """One mark on a row."""

    kind: MarkKind
    at: float
    text: str
    """What happened, in a sentence without its time."""
    attempt: int = 0
    """0: of no attempt."""
    until: float | None = None
    """The last of several equal marks that are drawn as one; None: it is one."""
    count: int = 1


class Stretch(Noun, frozen=True, kw_only=True):
    """A rank's process in one attempt; of a row with several ranks from the first start to the last end."""

    attempt: int
    start: float
    end: float
    silent_from: float | None = None
    """From here on nothing moved; None: no hang was found."""


class SwimlaneRow(Noun, frozen=True, kw_only=True):
    """One row: a rank, or ranks of a node to which the same happened at nearly the same times."""

    ranks: tuple[int, ...]
    """Of the first of the nodes that share the row, where there are several."""
    role: str
    stretches: tuple[Stretch, ...] = ()
    marks: tuple[Mark, ...] = ()
    culprit: bool = False
    """The report of an attempt names one of them as the first cause."""
    step: int | None = None
    """The lowest last step that one of them told in the last attempt."""
    count: int = 0
    """How many ranks the row stands for, over all its nodes."""


class NodeLanes(Noun, frozen=True, kw_only=True):
    """A node with its rows, or several nodes to which the same happened."""

    nodes: tuple[str, ...]
    lanes: tuple[SwimlaneRow, ...]
    marks: tuple[Mark, ...] = ()
    """What concerns the machine and no single rank."""


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
    parts: tuple[PhaseSpan, ...]
    """They follow each other without a gap; the pause before the attempt lies before `start`."""
    phrase: str = ""
    """The failure class; empty while the attempt runs."""
    decision: str = ""
    """What was decided after it, with the reason; empty while the attempt runs."""
    running: bool = False


class Swimlane(Noun, frozen=True, kw_only=True):
    """A job as it is drawn."""

    start: float
    end: float
    bands: tuple[Band, ...]
    nodes: tuple[NodeLanes, ...]
    marks: tuple[Mark, ...] = ()
    """What concerns the whole job."""
    ranks: int = 0
    """How many ranks the job has had."""
    machines: int = 0
    left_out: int = 0
    """So many of the first attempts are not drawn."""
