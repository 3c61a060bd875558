"""The gang's phases and every transition between them, as one table.

`decide/gang.py` makes only transitions of this table. `docs/internals/gang.md` draws its diagram from it; a test
compares the two. A failure always belongs to an attempt: a late report of an older attempt never stops a newer one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Phase(enum.StrEnum):
    ASSEMBLING = "ASSEMBLING"
    CHECKING = "CHECKING"
    PREPARING = "PREPARING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    BACKOFF = "BACKOFF"
    QUEUED = "QUEUED"
    DONE = "DONE"


class PhaseTrigger(enum.StrEnum):
    """Why the phase changes. The value is the label of an arrow in the diagram."""

    DUE = "the delay is over: attempt + 1"
    TOO_FEW_NODES = "too few nodes are here"
    ENOUGH_NODES = "enough nodes have joined: attempt + 1, if the present one has ended"
    CHECKS_PASSED = "all checks passed, or none asked"
    CHECK_ELSEWHERE = "a check failed or a node is gone: look elsewhere"
    NONE_HEALTHY = "no healthy node is left"
    STOP_REQUESTED = "a stop request"
    ALL_PREPARED = "every worker is prepared: GO"
    ALL_UP = "every rank is up"
    COMPLETED = "the completion policy is met"
    TROUBLE = "a failure, loss, deadline, hang, fault or stop request"
    TRY_AGAIN = "drained, explained: restart"
    ENOUGH = "drained, explained: the end"
    REQUEUE = "the platform is asked to start the job again"
    REFUSED = "the platform does not start it again"
    RESUMED = "the platform has started the job again"


#: The first phase of a job. The first attempt is due at once.
FIRST = Phase.BACKOFF

TABLE: dict[tuple[Phase, PhaseTrigger], Phase] = {
    (Phase.BACKOFF, PhaseTrigger.DUE): Phase.CHECKING,
    (Phase.BACKOFF, PhaseTrigger.TOO_FEW_NODES): Phase.ASSEMBLING,
    (Phase.BACKOFF, PhaseTrigger.STOP_REQUESTED): Phase.DONE,
    (Phase.BACKOFF, PhaseTrigger.NONE_HEALTHY): Phase.DONE,
    (Phase.BACKOFF, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.ASSEMBLING, PhaseTrigger.ENOUGH_NODES): Phase.CHECKING,
    (Phase.ASSEMBLING, PhaseTrigger.NONE_HEALTHY): Phase.DONE,
    (Phase.ASSEMBLING, PhaseTrigger.STOP_REQUESTED): Phase.DONE,
    (Phase.ASSEMBLING, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.CHECKING, PhaseTrigger.CHECKS_PASSED): Phase.PREPARING,
    (Phase.CHECKING, PhaseTrigger.TOO_FEW_NODES): Phase.ASSEMBLING,
    (Phase.CHECKING, PhaseTrigger.CHECK_ELSEWHERE): Phase.CHECKING,
    (Phase.CHECKING, PhaseTrigger.NONE_HEALTHY): Phase.DONE,
    (Phase.CHECKING, PhaseTrigger.STOP_REQUESTED): Phase.DONE,
    (Phase.CHECKING, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.PREPARING, PhaseTrigger.ALL_PREPARED): Phase.STARTING,
    (Phase.PREPARING, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.STARTING, PhaseTrigger.ALL_UP): Phase.RUNNING,
    (Phase.STARTING, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.RUNNING, PhaseTrigger.COMPLETED): Phase.DRAINING,
    (Phase.RUNNING, PhaseTrigger.TROUBLE): Phase.DRAINING,
    (Phase.DRAINING, PhaseTrigger.TRY_AGAIN): Phase.BACKOFF,
    (Phase.DRAINING, PhaseTrigger.ENOUGH): Phase.DONE,
    (Phase.DRAINING, PhaseTrigger.REQUEUE): Phase.QUEUED,
    (Phase.BACKOFF, PhaseTrigger.REQUEUE): Phase.QUEUED,
    (Phase.ASSEMBLING, PhaseTrigger.REQUEUE): Phase.QUEUED,
    (Phase.CHECKING, PhaseTrigger.REQUEUE): Phase.QUEUED,
    (Phase.QUEUED, PhaseTrigger.REFUSED): Phase.DONE,
    (Phase.QUEUED, PhaseTrigger.STOP_REQUESTED): Phase.DONE,
    (Phase.QUEUED, PhaseTrigger.RESUMED): Phase.BACKOFF,
    (Phase.ASSEMBLING, PhaseTrigger.RESUMED): Phase.BACKOFF,
    (Phase.CHECKING, PhaseTrigger.RESUMED): Phase.BACKOFF,
}

#: The message of an `InvalidTransition` shows at most this many of the latest transitions.
SHOWN_MOVES = 20


class InvalidTransition(RuntimeError):
    """A bug of holdfast: the code tried a transition that the table of phases lacks."""

    def __init__(self, phase: Phase, trigger: PhaseTrigger, story: Sequence[str]) -> None:
        """`phase`, `trigger`: the transition that was tried. `story`: a line for each transition so far,
        oldest first.
        """
        self.phase = phase
        self.trigger = trigger
        self.story = tuple(story)
        super().__init__(phase, trigger, self.story)

    def __str__(self) -> str:
        possible = [trigger.name for source, trigger in TABLE if source is self.phase]
        ends = f"only {' or '.join(possible)} can end this phase" if possible else "nothing ends this phase"
        moves = self.story[-SHOWN_MOVES:]
        told = ["The last moves:", *(f"  {move}" for move in moves)] if moves else ["The gang had not moved before."]
        return "\n".join([f"{self.trigger.name} ({self.trigger}) cannot end the phase {self.phase}: {ends}.", *told])


MEANING: dict[Phase, str] = {
    Phase.ASSEMBLING: "too few nodes are here; waiting for others, for a limited time",
    Phase.CHECKING: "a new attempt (its number is durable) has its checks out",
    Phase.PREPARING: "every worker is being made ready (process, environment, imports), and waits",
    Phase.STARTING: "told to go; not all ranks are up",
    Phase.RUNNING: "every rank is up",
    Phase.DRAINING: "stop asked, with a reason; waiting for the attempt's last exit",
    Phase.BACKOFF: "the next attempt is decided; nothing lives",
    Phase.QUEUED: "the platform is to start the job again; this run of it ends",
    Phase.DONE: "the job's one report is final",
}

#: The phases in which workers may be alive and no stop is requested.
LIVE = frozenset({Phase.PREPARING, Phase.STARTING, Phase.RUNNING})


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for `docs/internals/gang.md`."""
    lines = ["stateDiagram-v2", f"    [*] --> {FIRST}: submitted"]
    lines += [
        f"    {source} --> {target}: {trigger.value.replace(':', ' -')}" for (source, trigger), target in TABLE.items()
    ]
    lines += [f"    {Phase.DONE} --> [*]"]
    return "\n".join(lines)
